"""Gold answers that make a reward easy or that a rule cannot read: warnings about datasets as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlf.core import Fault
from rlf.core.text import show_value
from rlf.data import recall
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.normalization import Normalization, golds, has_words, holds, normalize
from rlf.rewards.term import Term
from rlf.spec import LoadedSpec
from rlf.types import Task

_MIN_TASKS = 8
"""Of fewer questions nothing is stated."""
_MOST_SHOWN = 3
_NUM_SEARCHED = 200
_NUM_OTHERS = 20
"""Golds of other questions that a question is searched for: choices stand in every question with the right one."""


def find_gold_warnings(loaded: LoadedSpec, name: str, tasks: Sequence[Task]) -> Iterator[Fault]:
    """Golds that are all equal, and golds that stand in every question."""
    only, held = recall(_find_patterns, tasks) if len(tasks) >= _MIN_TASKS else (None, False)
    if only is not None:
        message = f"all {len(tasks)} rows have the gold answer {show_value(only)}; a policy that always writes it"
        yield loaded.fault(("data", name, "path"), f"{message} is always right. Name the right column, or other rows.")
    elif held:
        example = f"{show_value(_first(tasks[0]))} in row {tasks[0].id!r}"
        message = f"the gold answer stands in each of the {len(tasks)} questions (e.g. {example}"
        fix = "); copying from the question may earn the reward. Leave it out of the prompt."
        yield loaded.fault(("data", name, "path"), f"{message}{fix}")


def find_misread_golds(loaded: LoadedSpec, datasets: Sequence[Sequence[Task]]) -> Iterator[Fault]:
    """A warning at each rule that cannot read some of the golds as what it compares, with their rows."""
    num_tasks = sum(map(len, datasets))
    for index, term in enumerate(loaded.spec.rewards):
        if not isinstance(term, Rule) or not term.needs_answer:
            continue
        own = type(term).model_fields.keys() - Term.model_fields.keys()
        options = term.model_dump(mode="json", include={"kind", "name", *own})
        found = [row for tasks in datasets for row in recall(read_faults, tasks, options)]
        if found:
            first, number = found[:_MOST_SHOWN], f"{len(found)} gold answer{'s' * (len(found) > 1)}"
            shown = "; ".join(f"{show_value(gold)} (row {row!r}) {fault}" for row, gold, fault in first)
            squad = options.get("normalize") == Normalization.SQUAD
            advice = "Write `normalize: text`." if squad else term.gold_advice
            message = f"got {options['rule']}, which misreads {number} of {num_tasks} tasks: {shown}."
            yield loaded.fault(("rewards", index, "normalize" if squad else "rule"), f"{message} {advice}")


def read_faults(tasks: Sequence[Task], options: Mapping[str, Any]) -> list[list[str]]:
    """Row, gold and fault of each gold that a rule cannot read as what it compares."""
    term = Term.model_validate(options)
    assert isinstance(term, Rule), f"no rule: {options}"
    read = ((task.id, gold, answer) for task in tasks for gold, answer in term.read_golds(task.answer))
    return [[row, gold, answer.fault] for row, gold, answer in read if answer.fault]


def _find_patterns(tasks: Sequence[Task]) -> tuple[str | None, bool]:
    """The one gold of all rows, and whether each question holds its own; nothing where a row has no gold."""
    if not all(golds(task.answer) for task in tasks):
        return None, False
    from rlf.rewards.answers import gold_key

    keys = (sorted(map(gold_key, golds(task.answer))) for task in tasks)
    first = next(keys)
    only = _first(tasks[0]) if all(key == first for key in keys) else None
    return only, only is None and _hold_their_golds(tasks)


def _hold_their_golds(tasks: Sequence[Task]) -> bool:
    """Whether every question holds its gold, and most hold no gold of others, as those with choices do."""
    if not all(_is_in_question(_first(task), task) for task in tasks):
        return False
    from rlf.rewards.answers import gold_key

    others = list(dict.fromkeys(_first(task) for task in tasks))[:_NUM_OTHERS]
    offering = sum(
        any(gold_key(other) != gold_key(_first(task)) and _is_in_question(other, task) for other in others)
        for task in tasks[:_NUM_SEARCHED]
    )
    return 2 * offering < len(tasks[:_NUM_SEARCHED])


def _is_in_question(gold: str, task: Task) -> bool:
    normal = normalize(gold)
    return has_words(normal) and len(normal) > 1 and holds(task.question, gold)


def _first(task: Task) -> str:
    return golds(task.answer)[0]
