"""Finding the declared metric of a name that a run wrote."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import yaml


class Metric(NamedTuple):
    """One name, or a family of names."""

    name: str
    unit: str
    meaning: str


FILE = Path(__file__).parents[1] / "docs/metrics.yaml"
METRICS = [Metric(**metric) for metric in yaml.safe_load(FILE.read_text(encoding="utf-8"))]


def find_metric(name: str) -> Metric | None:
    """The metric that a run's name is of; None for a name that is not known."""
    return next((metric for metric in METRICS if _pattern(metric.name).fullmatch(name)), None)


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile("[^/]+".join(map(re.escape, re.split(r"<\w+>", name))))
