"""Which questions of the data are attacked: drawn by the run's seed over distinct golds of every form."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rlf.core.identity import derive_seed
from rlf.rewards.answers import golds
from rlf.rewards.attack.texts import gold_form, gold_key, gold_text
from rlf.types import Task


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
