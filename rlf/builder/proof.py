"""The proof of a task before it is written: gold calls complete it, each is needed, and nothing else is enough.

Calls are made of the deployed functions, once for each set of arguments. A call ticks a sub-question of its tool when
its result holds the gold as one whole value of its type, and its arguments do not: as the reward counts it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlf.builder.task import Join, Task, Value
from rlf.rewards.values import Finding, Golds, Solved, count_solved, keyed_golds, text_keys, value_key, value_keys
from rlf.tools.results import to_text

Invoke = Callable[[str, Mapping[str, Any]], Any]
"""Calls a deployed function; what it raises is the call's failure."""
Attempts = Callable[[str, str], Sequence[Finding]]
"""What a tool finds by everything that a policy may try with a name."""

POLICIES = ("gold", "null", "random", "spam")


class Unproven(Exception):
    """Why a task is not written, in words that say nothing of the task, so that they can be counted."""


@dataclass(slots=True)
class Bench:
    """Deployed functions, each call of which is made once and kept."""

    invoke: Invoke
    _made: dict[tuple[str, str], Finding] = field(default_factory=dict)

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Finding:
        """What a call finds; nothing where it fails."""
        key = tool, repr(arguments)
        found = self._made.get(key)
        if found is None:
            try:
                text = to_text(self.invoke(tool, arguments))
            except Exception:  # noqa: BLE001 - a tool may raise anything: it then finds nothing
                found = Finding(tool, frozenset(), frozenset())
            else:
                found = Finding(tool, text_keys(text), value_keys(arguments))
            self._made[key] = found
        return found


def score(findings: Sequence[Finding], golds: Golds, total: int) -> Solved:
    """What calls come to."""
    return Solved(count_solved(findings, golds), len(findings), total)


def play_gold(task: Task, bench: Bench) -> list[Finding]:
    """What the gold calls find, in order, each with the values found before it.

    Raises:
        Unproven: a call does not find its gold.
    """
    findings: list[Finding] = []
    values: list[Value | None] = []
    for step in task.steps:
        arguments = step.filled(values)
        assert arguments is not None, f"a step of {task.id} needs a later one"
        findings.append(bench.call(step.tool, arguments))
        if value_key(step.gold) not in findings[-1].found:
            raise Unproven("gold: a call does not find its value")
        values.append(step.gold)
    return findings


def answer_of(task: Task, values: Sequence[Value | None]) -> str | None:
    """The answer that values make; None where one is missing."""
    ends = [values[end] for end in task.ends]
    present = [value for value in ends if value is not None]
    return task.join.of(present) if len(present) == len(ends) else None


def prove(task: Task, bench: Bench, documents: frozenset[str]) -> Solved:
    """Holds a task against what every task must withstand, but for the twin; returns what its gold calls come to.

    Args:
        documents: words of the tools' documents, in lower case.

    Raises:
        Unproven: the first that it does not.
    """
    total = len(task.steps)
    found = score(play_gold(task, bench), keyed_golds(task.unsolved_set), total)
    if found != Solved(total, total, total):
        raise Unproven("gold: its calls do not solve all sub-questions")
    values = [step.gold for step in task.steps]
    if answer_of(task, values) != task.answer:
        raise Unproven("gold: the values found do not make the answer")
    ends = task.ends
    for number in range(total):
        left = _values_without(task, number)
        if all(left[end] is not None for end in ends):
            raise Unproven("minimal: a gold call can be left out")
    _check_ends(task, values)
    _check_leaks(task, documents)
    return found


def _values_without(task: Task, left_out: int) -> list[Value | None]:
    """The values that are found where one call is not made, nor those that need it."""
    values: list[Value | None] = []
    for number, step in enumerate(task.steps):
        missing = number == left_out or any(values[need] is None for need in step.needs)
        values.append(None if missing else step.gold)
    return values


def check_twin(task: Task, answer: str | None) -> None:
    """Raises Unproven where a world with other values has the same answer, or none."""
    if answer is None:
        raise Unproven("swap: the gold calls fail in a world with other values")
    if answer == task.answer:
        raise Unproven("swap: the answer is the same in a world with other values")


def _check_ends(task: Task, values: Sequence[Value]) -> None:
    """Another value at the end of each chain must make another answer."""
    ends = [values[end] for end in task.ends]
    for place, value in enumerate(ends):
        others = [value + "?"] if isinstance(value, str) else [value + 1, value - 1, 10 * value + 1]
        changed = ([*ends[:place], other, *ends[place + 1 :]] for other in others)
        if task.join is Join.SMALLEST and not isinstance(value, str):
            changed = ([*ends[:place], min(map(float, ends)) - 1, *ends[place + 1 :]] for _ in others)
        if all(task.join.of(each) == task.answer for each in changed):
            raise Unproven("minimal: a value does not change the answer")


def _check_leaks(task: Task, documents: frozenset[str]) -> None:
    asked = f" {task.question.casefold()} "
    for step in task.steps:
        gold = str(step.gold).casefold()
        if _holds(asked, gold):
            raise Unproven("leak: the question names a value that a call finds")
        if gold in documents:
            raise Unproven("leak: a tool's document names a value")
    if task.join not in (Join.VALUE, Join.LIST) and _holds(asked, task.answer.casefold()):
        raise Unproven("leak: the question names the answer")


def _holds(text: str, word: str) -> bool:
    """Whether a text holds a word that is no part of another one."""
    start = text.find(word)
    while start >= 0:
        before, after = text[start - 1 : start], text[start + len(word) : start + len(word) + 1]
        if not (before.isalnum() or after.isalnum()):
            return True
        start = text.find(word, start + 1)
    return False


def policy_scores(task: Task, gold: Solved, attempts: Attempts, rng: random.Random) -> list[Solved]:
    """What the gold calls and each policy that solves nothing come to, in the order of POLICIES."""
    everything = [found for name in task.names for tool in task.tools for found in attempts(tool, name)]
    golds, total = keyed_golds(task.unsolved_set), len(task.steps)
    drawn = rng.choices(everything, k=total) if everything else []
    return [gold, *(score(findings, golds, total) for findings in ((), drawn, everything))]


_NAMES = tuple((f"{policy}/p", f"{policy}/r", f"{policy}/f1") for policy in POLICIES)


@dataclass(slots=True)
class Figures:
    """Sums over tasks, by scenario: what each policy solved, called and scored, and the chance of a guess."""

    by_scenario: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, task: Task, scores: Sequence[Solved]) -> None:
        """Counts one task."""
        sums = self.by_scenario.setdefault(task.scenario.value, {})
        own = {"tasks": 1.0, "calls": float(len(task.steps)), "no_tool": task.guess}
        for (p, r, f1), found in zip(_NAMES, scores, strict=True):
            own[p], own[r], own[f1] = found.precision, found.recall, found.f1
        for name, value in own.items():
            sums[name] = sums.get(name, 0.0) + value
