"""Child processes: how they are started, framed, watched, ended and started again.

- `child`: a process with one socket (`Child`) or spoken to over its streams (`PipedChild`), a command that prints
  something (`run_to_end`), one that is ended with all that it started (`supervised`), and one thing that is kept
  running (`Keeper`).
- `channel`: what a process may say over its socket. The form of frames is `rlf.sandbox.guest.wire`, which stands there
  because a sandbox shows its processes that folder alone.
- `fork_server` and `forking`: both ends of a process that loads something once and forks for each that needs it.
- `supervise`: the program that orphans fall to.
"""
