"""Finding the declared metric of a name that a run wrote."""

from __future__ import annotations

import re

from rlf.types.events import METRICS, Metric


def find_metric(name: str) -> Metric | None:
    """The metric that a run's name is of; None for a name that is not known."""
    return next((metric for metric in METRICS if _pattern(metric.name).fullmatch(name)), None)


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile("[^/]+".join(map(re.escape, re.split(r"<\w+>", name))))
