"""How runs differ, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlf.lineage.reader import Reader
from rlf.reports.arms import read_arms
from rlf.reports.comparison import Comparison, compare
from rlf.reports.comparison_views import markdown, seeds_markdown
from rlf.reports.sweep import SeedReport, read_seeds


def compare_runs(
    reader: Reader,
    names: Sequence[str],
    mode: str | None = None,
    threshold: float | None = None,
    *,
    at_ends: bool = False,
) -> Comparison | SeedReport:
    """Compares runs; of one sweep whose members differ in their seeds alone, what these show."""
    seeds = read_seeds(reader, names)
    if seeds is not None:
        return replace(seeds, markdown=seeds_markdown(seeds))
    found = compare(read_arms(reader, names), mode, threshold, at_ends=at_ends)
    return replace(found, markdown=markdown(found))
