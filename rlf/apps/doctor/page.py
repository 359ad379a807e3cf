"""What the page shows of the machine, in a fork: plain values in, the JSON of commands out."""

from __future__ import annotations

from pathlib import Path

from rlf.apps.doctor import findings
from rlf.apps.doctor.findings import Examination


def examine(runs: str) -> Examination:
    """`rlf doctor`."""
    return findings.examine(Path(runs))


TASKS = (examine,)
