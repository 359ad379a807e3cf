"""The program's entry: Ctrl-C is answered in one word also while the commands are still being loaded."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Loads the commands and runs the one that is asked for."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave_at_once)
    from rlf.cli.main import main as run

    if signal.getsignal(signal.SIGINT) is _leave_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _leave_at_once(*_: object) -> None:
    """Ends at once: nothing has been done yet that would have to be undone."""
    print("interrupted", file=sys.stderr, flush=True)
    os._exit(130)
