"""The program's entry: Ctrl-C is answered in one word also while the commands are still being loaded."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys

_LOADED = 200_000
"""New objects before Python first looks for cycles of garbage: more than commands and a check need."""
_OBJECTS = 20_000
"""New objects from one look to the next after that."""


def main() -> None:
    """Loads the commands and runs the one that is asked for."""
    gc.set_threshold(_LOADED, *gc.get_threshold()[1:])
    gc.callbacks.append(_settle)
    atexit.register(gc.freeze)  # at its end Python looks through all that is left for cycles, a tenth of a check's time
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave_at_once)
    from rlf.cli.main import main as run

    if signal.getsignal(signal.SIGINT) is _leave_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _settle(phase: str, _: dict[str, int]) -> None:
    """After the first look: what was loaded stays, and no later look passes through it."""
    if phase == "stop":
        gc.callbacks.remove(_settle)
        gc.freeze()
        gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])


def _leave_at_once(*_: object) -> None:
    """Ends at once: nothing has been done yet that would have to be undone."""
    print("interrupted", file=sys.stderr, flush=True)
    os._exit(130)
