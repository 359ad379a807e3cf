"""Which questions of the data are attacked: drawn by the run's seed over distinct golds of every form."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

from rlf.core.seeds import derive_seed
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
    rounds = _rounds(usable)
    while len(drawn) < min(number, len(usable)):
        drawn.append(next(rounds))
    return drawn


def _rounds(tasks: Sequence[Task]) -> Iterator[Task]:
    """One task of each form in turn; within a form first those whose gold was not drawn before."""
    by_form: dict[str, list[Task]] = {}
    for each in tasks:
        by_form.setdefault(gold_form(gold_text(each)), []).append(each)
    queues = [iter(_new_golds_first(by_form[form])) for form in sorted(by_form)]
    while queues:
        for queue in list(queues):
            if (task := next(queue, None)) is not None:
                yield task
            else:
                queues.remove(queue)


def _new_golds_first(tasks: Sequence[Task]) -> list[Task]:
    seen = Counter[str]()
    ranks = []
    for task in tasks:
        key = gold_key(gold_text(task))
        ranks.append(seen[key])
        seen[key] += 1
    return [task for _, task in sorted(zip(ranks, tasks, strict=True), key=lambda pair: pair[0])]
