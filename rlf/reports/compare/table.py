"""Every curve of arms as CSV, one value a line, for tools of the reader's own."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from rlf.reports.compare.arms import Arm

HEADER = ("arm", "run", "seed", "phase", "step", "metric", "value")


def csv_text(arms: Sequence[Arm]) -> str:
    """Step metrics (phase `train`) and evaluations (phase: their mode) of every run."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(HEADER)
    for arm in arms:
        for member in arm.members:
            place = (arm.letter, member.run.record.id, member.run.record.seed)
            points = [("train", step.step, step.metrics) for step in member.steps]
            points += [(e.mode, e.step, e.metrics) for e in member.evaluations]
            for phase, step, metrics in points:
                rows.writerows((*place, phase, step, name, repr(value)) for name, value in metrics.items())
    return text.getvalue()
