"""Gold answers of a dataset: the kinds of text that they are, and questions drawn over all of them."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rlf.core.identity import derive_seed
from rlf.core.redact import fold
from rlf.rewards.normalization import Normalization, destroyed, golds, normalize
from rlf.types import Task

WHOLE_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*)?\.?\d+")
"""A text that is one number: -5, 1,000, .5."""
WITH_UNIT = re.compile(r"([-+]?[\d.,]+)(\s?)([^\W\d_][^\s]{0,11}|%)")
"""A number and a unit of at most 12 characters; longer words are prose."""


def gold_text(task: Task) -> str:
    """The right answer as a policy writes it; of a list of alternatives the first."""
    return next(iter(golds(task.answer)), "")


def gold_form(gold: str) -> str:
    """The kind of text that a gold is: questions are drawn from all kinds."""
    number = fold(gold).strip()
    if WITH_UNIT.fullmatch(number):
        return "measure"
    if destroyed(gold, Normalization.SQUAD):
        return "marks"
    return "number" if WHOLE_NUMBER.fullmatch(number) else "words"


def gold_key(gold: str) -> str:
    """A key that golds of one answer share."""
    return normalize(gold) or gold


def draw_questions(tasks: Sequence[Task], number: int, seed: int) -> list[Task]:
    """Questions with different golds as long as there are any, and with golds of different forms in turn.

    Tasks without a gold answer are drawn only where no task has one.
    """
    usable = [task for task in tasks if golds(task.answer)] or list(tasks)
    random.Random(derive_seed(seed, "attack", "questions")).shuffle(usable)
    drawn: list[Task] = []
    rounds = _draw_rounds(usable)
    while len(drawn) < min(number, len(usable)):
        drawn.append(next(rounds))
    return drawn


def _draw_rounds(tasks: Sequence[Task]) -> Iterator[Task]:
    """First tasks whose golds were not drawn before, then those that repeat one; of each one of each form in turn."""
    by_rank: dict[int, dict[str, list[Task]]] = {}
    seen = Counter[str]()
    for task in tasks:
        gold = gold_text(task)
        by_rank.setdefault(seen[gold_key(gold)], {}).setdefault(gold_form(gold), []).append(task)
        seen[gold_key(gold)] += 1
    for rank in sorted(by_rank):
        queues = [by_rank[rank][form] for form in sorted(by_rank[rank])]
        for row in zip_longest(*queues):
            yield from (task for task in row if task is not None)
