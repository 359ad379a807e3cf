"""How runs differ, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from rlf.core.plain_json import Jsonable
from rlf.lineage.reader import Reader
from rlf.reports.compare.arms import read_arms
from rlf.reports.compare.comparison import Comparison as Found
from rlf.reports.compare.comparison import compare
from rlf.reports.compare.differences import Difference
from rlf.reports.compare.outcomes import Basis, Contrast, Outcome
from rlf.reports.compare.sheets import markdown
from rlf.reports.power import Power
from rlf.reports.statistics import Interval
from rlf.reports.sweep import SeedReport, read_seeds


@dataclass(frozen=True, slots=True)
class ComparedArm:
    """Runs of one plan but for the seed."""

    letter: str
    label: str
    runs: tuple[str, ...]
    """Ids of its runs."""


@dataclass(frozen=True, slots=True)
class ComparedContrast:
    """An arm against the baseline, at the last evaluation of each."""

    difference: float
    """Mean success of the arm minus the baseline's."""
    interval: Interval | None
    """Holds 0 exactly where the difference is not shown; null where there are too few values."""
    confidence: float
    """Of the interval: 0.95 for two arms; for more that of the step at which Holm's procedure tests the arm."""
    basis: Basis
    num_questions: int
    num_not_shared: int
    num_seeds: tuple[int, int]
    num_gained: int
    num_lost: int
    binary: bool
    """Whether each side is one run and every success is 0 or 1: then the test is the exact one on the flips."""
    p: float | None
    """Of the arm alone: the exact McNemar test, Welch's over seeds, Fisher's for other questions."""
    p_adjusted: float | None
    """Adjusted by Holm for all arms."""
    num_compared: int
    """Arms that were compared with the baseline."""
    shown: bool
    """Whether the arm may be called better or worse: the adjusted p is at most 0.05 and the interval excludes 0."""
    flips: tuple[str, ...]
    """Ids of the questions whose outcome differs."""


@dataclass(frozen=True, slots=True)
class Comparison(Jsonable):
    """A comparison without curves and attempts, which `--csv` and `rlf runs show` have."""

    arms: tuple[ComparedArm, ...]
    mode: str | None
    threshold: float
    differences: tuple[Difference, ...]
    outcomes: tuple[Outcome, ...]
    """By arm."""
    contrasts: tuple[ComparedContrast | None, ...]
    """By arm after the first; null where nothing can be compared."""
    verdicts: tuple[str, ...]
    power: Power | None
    """What differences so many questions can show."""
    markdown: str = field(repr=False, metadata={"json": None})
    """The comparison for people."""

    def _repr_markdown_(self) -> str:
        return self.markdown


def compare_runs(
    reader: Reader, names: Sequence[str], mode: str | None = None, threshold: float | None = None
) -> Comparison | SeedReport:
    """Compares runs; of one sweep whose members differ in their seeds alone, what these show."""
    seeds = read_seeds(reader, names)
    return seeds if seeds is not None else shown(compare(read_arms(reader, names), mode, threshold))


def shown(found: Found) -> Comparison:
    """A comparison without its curves and attempts."""
    arms = [
        ComparedArm(arm.letter, arm.label, tuple(member.run.record.id for member in arm.members)) for arm in found.arms
    ]
    contrasts = [None if one is None else ComparedContrast(**_fields(one)) for one in found.contrasts]
    return Comparison(
        tuple(arms),
        found.mode,
        found.threshold,
        found.differences,
        found.outcomes,
        tuple(contrasts),
        found.verdicts,
        found.power,
        markdown(found),
    )


def _fields(contrast: Contrast) -> dict[str, Any]:
    named = {field.name: getattr(contrast, field.name) for field in fields(contrast)}
    return named | {"flips": tuple(flip.task_id for flip in contrast.flips)}
