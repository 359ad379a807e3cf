"""Gold answers that make a reward easy or unreadable: warnings about a dataset as a whole, and about `rule: math`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlf.core import Fault
from rlf.data import recall
from rlf.rewards.golds import gold_key
from rlf.rewards.normalization import golds, has_words, holds, normalize
from rlf.spec import LoadedSpec
from rlf.types import Task

_MIN_TASKS = 8
"""Of fewer questions nothing is stated."""
_MOST_SHOWN = 3
_MAX_SHOWN_CHARS = 40
_NUM_SEARCHED = 200
_NUM_OTHERS = 20
"""Golds of other questions that a question is searched for: choices stand in every question with the right one."""


def find_gold_warnings(loaded: LoadedSpec, name: str, tasks: Sequence[Task]) -> Iterator[Fault]:
    """Golds that are all equal, and golds that stand in every question."""
    if len(tasks) < _MIN_TASKS:
        return
    only, held = recall(_find_patterns, tasks)
    if only is not None:
        message = (
            f"all {len(tasks)} rows have the gold answer {_shorten_text(only)}; a policy that always writes it is "
        )
        yield loaded.fault(("data", name, "path"), f"{message}always right. Name the right column, or other rows.")
    elif held:
        message = (
            f"the gold answer stands in each of the {len(tasks)} questions (e.g. {_shorten_text(_first(tasks[0]))} "
        )
        fix = f"in row {tasks[0].id!r}); copying from the question may earn the reward. Leave it out of the prompt."
        yield loaded.fault(("data", name, "path"), f"{message}{fix}")


def about_unread(found: Sequence[str], num_tasks: int) -> str:
    """The words about golds that `rule: math` compares as text."""
    shown = ", ".join(map(_shorten_text, found[:_MOST_SHOWN]))
    message = f"got math; not all of the text is mathematics in {len(found)} golds of {num_tasks} tasks: {shown}. "
    return f"{message}They are compared as text. Write them as LaTeX, or `rule: exact_match`."


def unread_golds(tasks: Sequence[Task]) -> list[str]:
    """Golds that `rule: math` compares as text."""
    from rlf.rewards.math_text import gold_latex

    texts = dict.fromkeys(gold for task in tasks for gold in golds(task.answer))
    return [gold for gold in texts if gold_latex(gold) is None]


def _find_patterns(tasks: Sequence[Task]) -> tuple[str | None, bool]:
    """The one gold of all rows, and whether each question holds its own; nothing where a row has no gold."""
    if not all(golds(task.answer) for task in tasks):
        return None, False
    only = _only_gold(tasks)
    return only, only is None and _hold_their_golds(tasks)


def _only_gold(tasks: Sequence[Task]) -> str | None:
    keys = {tuple(sorted(map(gold_key, golds(task.answer)))) for task in tasks}
    return _first(tasks[0]) if len(keys) == 1 else None


def _hold_their_golds(tasks: Sequence[Task]) -> bool:
    """Whether every question holds its gold, and most hold no gold of others, as those with choices do."""
    if not all(_is_in_question(_first(task), task) for task in tasks):
        return False
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


def _shorten_text(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}...")
