"""A command that continues after the call, with a budget: `python -m rlf.apps.mcp.background SECONDS COMMAND...`.

It is a process of its own, so that the budget holds also when client and server are gone.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence

from rlf.processes.child import start_apart

_GRACE_S = 60.0
"""From Ctrl-C to a kill: what a run takes to write down where it is."""


def main(arguments: Sequence[str]) -> int:
    """Runs the command to its end, or interrupts it as Ctrl-C does once its time is over; its exit code."""
    budget_s, *command = arguments
    child = start_apart(command)
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda number, frame: child.send_signal(signal.SIGINT))
    try:
        return child.wait(float(budget_s))
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGINT)
    try:
        return child.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
