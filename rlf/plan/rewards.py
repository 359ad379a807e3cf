"""Warnings about reward terms that misread what the data holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlf.core import Fault
from rlf.data import recall
from rlf.rewards.kinds.verify import VerifyTerm
from rlf.rewards.normalization import Normalization, destroyed, golds
from rlf.rewards.rules.json_schema import JsonSchema
from rlf.spec import LoadedSpec
from rlf.types import Task

_MOST_SHOWN = 3
_MAX_SHOWN_CHARS = 40


def find_reward_warnings(loaded: LoadedSpec, datasets: Sequence[Sequence[Task]]) -> Iterator[Fault]:
    """Golds that a normalisation destroys, golds without rows, and schemas that an empty value satisfies."""
    num_tasks = sum(map(len, datasets))
    for index, term in enumerate(loaded.spec.rewards):
        place = ("rewards", index)
        normalize = getattr(term, "normalize", None)
        if isinstance(normalize, Normalization) and (lost := _lost_golds(normalize, datasets)):
            yield loaded.fault((*place, "normalize"), _about_golds(normalize, lost, num_tasks))
        if isinstance(term, JsonSchema) and (empty := term.accepted_without_content):
            message = f"got a schema that {' and '.join(empty)} satisfies and which then earns the full reward; "
            yield loaded.fault(
                (*place, "schema"), f"{message}expected content. Write e.g. `required`, or `minItems: 1`."
            )
        if isinstance(term, VerifyTerm) and (number := _num_without_rows(term, datasets)):
            message = f"{number} of {num_tasks} tasks expect no rows, so any query without rows earns 1. "
            yield loaded.fault((*place, "expected"), f"{message}Leave these tasks out of the data.")


def _num_without_rows(term: VerifyTerm, datasets: Sequence[Sequence[Task]]) -> int:
    return sum(term.expects_no_rows(task) for tasks in datasets for task in tasks) if term.may_expect_no_rows else 0


def _lost_golds(by: Normalization, datasets: Sequence[Sequence[Task]]) -> dict[str, str]:
    """Golds with what a normalisation leaves of them, where that loses meaning."""
    lost: dict[str, str] = {}
    for tasks in datasets:
        lost |= recall(_golds_lost_in, tasks, by)
    return lost


def _golds_lost_in(tasks: Sequence[Task], by: Normalization) -> dict[str, str]:
    found = {gold: destroyed(gold, by) for task in tasks for gold in golds(task.answer)}
    return {gold: left for gold, left in found.items() if left is not None}


def _about_golds(by: Normalization, lost: dict[str, str], num_tasks: int) -> str:
    shown = ", ".join(
        f"{_shorten_text(gold)} as {_shorten_text(left)}" for gold, left in list(lost.items())[:_MOST_SHOWN]
    )
    message = f"got {by}, which destroys the meaning of gold answers ({len(lost)} in {num_tasks} tasks): {shown}. "
    other = "`normalize: text`" if by is Normalization.SQUAD else "`rule: math`, `rule: regex` or `kind: python`"
    return f"{message}Write {other}."


def _shorten_text(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}...")
