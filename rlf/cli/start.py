"""The program's entry: Ctrl-C is answered in one word also while the commands are still being loaded."""

from __future__ import annotations

import _thread
import atexit
import gc
import os
import signal
import sys
import time

_LOADED = 200_000
"""New objects before Python looks for cycles of garbage: more than commands and a check need; `settle` lowers it."""
_OBJECTS = 20_000
"""New objects from one search to the next after that."""
_PAUSE_S = 0.05
"""Time after which a Ctrl-C that Python dropped comes again."""


def main() -> None:
    """Loads the commands and runs the one that is asked for."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave_at_once)
    gc.set_threshold(_LOADED, *gc.get_threshold()[1:])
    sys.unraisablehook = _send_again
    atexit.register(gc.freeze)  # at its end Python looks through all that is left for cycles, a tenth of a check's time
    from rlf.cli.main import main as run

    if signal.getsignal(signal.SIGINT) is _leave_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    except KeyboardInterrupt:  # before the first command, or behind the last one
        _leave_at_once()
    except SystemExit as end:
        if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):  # typer's own, without a word
            print("interrupted", file=sys.stderr)
        raise


def _send_again(dropped: sys.UnraisableHookArgs) -> None:
    """Has a Ctrl-C come again that was raised where Python drops errors: in what finalizes objects."""
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
        return
    caller = _thread.get_ident()  # the main thread: Python raises it there alone

    def send() -> None:
        time.sleep(_PAUSE_S)
        signal.pthread_kill(caller, signal.SIGINT)

    _thread.start_new_thread(send, ())


def settle() -> None:
    """Once what a command works with is loaded: it stays, and no search for cycles of garbage passes through it.

    It is called and is no callback of `gc`, where Python drops a Ctrl-C that comes meanwhile.
    """
    gc.freeze()
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])


def _leave_at_once(*_: object) -> None:
    """Ends at once: nothing has been done yet that would have to be undone."""
    print("interrupted", file=sys.stderr, flush=True)
    os._exit(130)
