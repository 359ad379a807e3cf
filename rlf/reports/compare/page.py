"""A comparison as one self-contained page: verdicts, results, curves, questions, and what the arms are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlf.reports.compare.arms import Arm
from rlf.reports.compare.comparison import Comparison, title_of
from rlf.reports.compare.examples import Example, first_of_each, pair_of
from rlf.reports.compare.flips import flip_matrix, question_of, turn_words
from rlf.reports.compare.sheets import sheets
from rlf.reports.opening import ReadOpening
from rlf.reports.pages.curves import Course, further_charts, main_charts
from rlf.reports.pages.render import render
from rlf.reports.pages.turns import SidePair
from rlf.reports.power import power_words

_MAX_FLIPS = 100
"""Questions of each arm that the page holds turn by turn."""


@dataclass(frozen=True, slots=True)
class _Flip:
    """A question that came out differently, both sides whole."""

    letter: str
    task_id: str
    kind: str
    question: str
    gained: bool
    pair: SidePair


def page(found: Comparison, examples: Sequence[Example], openings: Mapping[str, ReadOpening] | None = None) -> str:
    """The page as HTML; it loads nothing, and what models and tools wrote stays text in it."""
    courses = courses_of(found.arms)
    charts = {"charts": main_charts(courses), "more_charts": further_charts(courses)}
    return render("compare.html", **page_values(found, examples, openings), **charts)


def courses_of(arms: Sequence[Arm]) -> list[Course]:
    """The runs of each arm."""
    return [Course(arm.letter, [m.steps for m in arm.members], [m.evaluations for m in arm.members]) for arm in arms]


def page_values(
    found: Comparison, examples: Sequence[Example], openings: Mapping[str, ReadOpening] | None = None
) -> dict[str, Any]:
    """Values of the template beside the curves.

    Args:
        examples: Questions that came out differently, whole; those that an arm lost first.
        openings: Reads what an arm's policy saw before the question, by the arm's letter.
    """
    tables = sheets(found)
    flips = [_make_flip(example, openings or {}) for example in first_of_each(examples, _MAX_FLIPS)]
    num_flips = sum(len(contrast.flips) for contrast in found.contrasts if contrast is not None)
    return {
        "title": title_of(found),
        "verdicts": found.verdicts,
        "power": None if found.power is None else power_words(found.power),
        "arms": found.arms,
        "results": tables.results,
        "origins": tables.origins,
        "kinds": flip_matrix(found, examples),
        "turn_words": turn_words,
        "shown": {(flip.letter, flip.task_id) for flip in flips},
        "flips": flips,
        "questions_note": "a mark for each question, by the first runs of the arms at their last evaluation",
        "flips_note": f"{len(flips)} of {num_flips}, those that an arm lost first",
    }


def _make_flip(example: Example, openings: Mapping[str, ReadOpening]) -> _Flip:
    return _Flip(
        example.right_letter,
        example.task_id,
        example.right.summary.kind or "",
        question_of(example),
        (example.right.summary.success or 0.0) > (example.left.summary.success or 0.0),
        pair_of(example, openings),
    )
