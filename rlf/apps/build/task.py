"""A built task: a graph of calls, each with the value that it finds, and the answer made of the last ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from rlf.core.leaks import SearchedText
from rlf.core.plain_json import Jsonable
from rlf.rewards.values import Finding, Golds, Solved, count_solved, keyed_golds, text_keys, value_key, value_keys
from rlf.tools.outputs import to_text

Value = str | int | float
"""The result of a call: a name or a number."""

REFERENCE = "$step"
"""Key of a placeholder in arguments: `{"$step": 0}` stands for the value that the first call finds."""


class Scenario(StrEnum):
    """FTRL's four shapes of tasks."""

    SINGLE = "single"
    """One call."""
    PARALLEL_SINGLE = "parallel_single"
    """Several calls, none of which needs another."""
    MULTI = "multi"
    """A chain: each call needs what the one before has found."""
    PARALLEL_MULTI = "parallel_multi"
    """Several chains."""

    @property
    def is_chain(self) -> bool:
        """Whether calls need what others have found."""
        return self in (Scenario.MULTI, Scenario.PARALLEL_MULTI)

    @property
    def is_parallel(self) -> bool:
        """Whether calls or chains stand side by side."""
        return self in (Scenario.PARALLEL_SINGLE, Scenario.PARALLEL_MULTI)


class Join(StrEnum):
    """How the answer combines the values at the ends of the graph."""

    VALUE = "value"
    """The value itself."""
    LIST = "list"
    """The values, in the order of the question."""
    SUM = "sum"
    """Their sum."""
    DIFFERENCE = "difference"
    """The distance between two numbers."""
    LARGEST = "largest"
    """The greatest number."""
    SMALLEST = "smallest"
    """The least number."""

    def of(self, values: Sequence[Value]) -> str:
        """The answer as text."""
        if self in (Join.VALUE, Join.LIST):
            return ", ".join(map(str, values))
        numbers = [value for value in values if not isinstance(value, str)]
        assert len(numbers) == len(values), f"{self} of {values}"
        match self:
            case Join.SUM:
                return str(sum(numbers))
            case Join.DIFFERENCE:
                return str(abs(numbers[0] - numbers[1]))
            case Join.LARGEST:
                return str(max(numbers))
        return str(min(numbers))


@dataclass(frozen=True, slots=True)
class CallStep(Jsonable):
    """One call of the graph, which answers one sub-question."""

    question: str
    tool: str
    arguments: Mapping[str, Any]
    """With placeholders where the values of earlier steps go."""
    gold: Value
    needs: tuple[int, ...] = ()
    """Steps whose values it takes."""

    def filled(self, values: Sequence[Value]) -> Mapping[str, Any]:
        """The arguments with the values of earlier steps."""
        filled: Mapping[str, Any] = _fill_value(self.arguments, values) if self.needs else self.arguments
        return filled


def _fill_value(value: Any, values: Sequence[Value]) -> Any:
    if isinstance(value, dict):
        if REFERENCE in value:
            return values[value[REFERENCE]]
        return {key: _fill_value(child, values) for key, child in value.items()}
    return [_fill_value(child, values) for child in value] if isinstance(value, list) else value


def ends_of(needs: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The steps whose values no other step needs, from those that each step needs."""
    needed = {need for each in needs for need in each}
    return tuple(number for number in range(len(needs)) if number not in needed)


@dataclass(frozen=True, slots=True)
class BuildTask:
    """One task."""

    id: str
    split: str
    world: str
    scenario: Scenario
    question: str
    answer: str
    join: Join
    steps: tuple[CallStep, ...]
    tools: tuple[str, ...]
    """Those that the model is shown."""
    names: tuple[str, ...]
    """The names in the question, which policies that solve nothing try."""
    guess: float = 0.0
    """Chance that the best constant guess is right."""

    @property
    def ends(self) -> tuple[int, ...]:
        """The steps whose values make the answer: those that no other needs."""
        return ends_of([step.needs for step in self.steps])

    @property
    def unsolved_set(self) -> dict[str, list[Value]]:
        """The golds of the sub-questions by tool, as FTRL has them."""
        golds: dict[str, list[Value]] = {}
        for step in self.steps:
            golds.setdefault(step.tool, []).append(step.gold)
        return golds

    def row(self) -> dict[str, Any]:
        """The row of a data file."""
        return {
            "id": self.id,
            "question": self.question,
            "answer": self.answer,
            "scenario": self.scenario.value,
            "tools": list(self.tools),
            "unsolved_set": self.unsolved_set,
            "steps": [step.to_json() for step in self.steps],
            "join": self.join.value,
            "names": list(self.names),
            "guess": self.guess,
            "world": self.world,
            "split": self.split,
        }


def read_task(row: Mapping[str, Any]) -> BuildTask:
    """The task of a row, as `Task.row` writes it."""
    steps = tuple(CallStep(**{**step, "needs": tuple(step["needs"])}) for step in row["steps"])
    typed = {"scenario": Scenario(row["scenario"]), "join": Join(row["join"]), "steps": steps}
    listed = {name: tuple(row[name]) for name in ("tools", "names")}
    return BuildTask(**{each.name: row[each.name] for each in fields(BuildTask)} | typed | listed)


# The proof of a task before it is written: gold calls complete it, each is needed, and nothing else is enough.
#
# Calls are made of the deployed functions, once for each set of arguments. A call ticks a sub-question of its tool when
# its result holds the gold as one whole value of its type, and its arguments do not: as the reward counts it.

Invoke = Callable[[str, Mapping[str, Any]], Any]
"""Calls a deployed function; what it raises is the call's failure."""
Attempts = Callable[[str, str], Sequence[Finding]]
"""The results of a tool for everything that a policy may try with a name."""

POLICIES = ("gold", "null", "random", "spam")


class ProofFailure(Exception):
    """Why a task is not written, in words that do not depend on the task, so that they can be counted."""

    def __init__(self, reason: str, detail: str = "") -> None:
        """Takes the reason, and what it was of this task."""
        super().__init__(reason)
        self.detail = detail


@dataclass(slots=True)
class ProofBench:
    """Deployed functions, each call of which is made once and kept."""

    invoke: Invoke
    _made: dict[tuple[str, str], Finding] = field(default_factory=dict)

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Finding:
        """The values that a call finds; none where it fails."""
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


def score_calls(findings: Sequence[Finding], golds: Golds, total: int) -> Solved:
    """Scores of calls."""
    return Solved(count_solved(findings, golds), len(findings), total)


def play_gold(task: BuildTask, bench: ProofBench) -> list[Finding]:
    """Plays the gold calls in order, each with the values found before it.

    Raises:
        Unproven: a call does not find its gold.
    """
    findings: list[Finding] = []
    values: list[Value] = []
    for step in task.steps:
        findings.append(bench.call(step.tool, step.filled(values)))
        if value_key(step.gold) not in findings[-1].found:
            shown = f"{step.tool}({dict(step.filled(values))!r}) does not return {step.gold!r}"
            raise ProofFailure("gold: a call does not find its value", shown)
        values.append(step.gold)
    return findings


def answer_of(task: BuildTask, values: Sequence[Value]) -> str:
    """The answer that the values of the steps make."""
    return task.join.of([values[end] for end in task.ends])


def prove_task(task: BuildTask, bench: ProofBench, documents: SearchedText) -> Solved:
    """Checks a task by every test but the twin; returns the score of its gold calls.

    Args:
        documents: those of the tools.

    Raises:
        Unproven: the first that it does not.
    """
    total = len(task.steps)
    findings = play_gold(task, bench)
    found = score_calls(findings, keyed_golds(task.unsolved_set), total)
    if found != Solved(total, total, total):
        raise ProofFailure("gold: its calls do not solve all sub-questions")
    values = [step.gold for step in task.steps]
    if answer_of(task, values) != task.answer:
        made = f"they make {answer_of(task, values)!r}, and the answer is {task.answer!r}"
        raise ProofFailure("gold: the values found do not make the answer", made)
    check_calls(task)
    _check_ends(task, values)
    question = SearchedText(task.question)
    answers = [] if task.join in (Join.VALUE, Join.LIST) else [task.answer]
    for value in (*(step.gold for step in task.steps), *answers):
        refuse_leak("the question", value, question)
        refuse_leak("a tool's document", value, documents)
    return found


def check_calls(task: BuildTask) -> None:
    """No gold call is another one in other letters, and the answer needs each. Raises ProofFailure."""
    values = [step.gold for step in task.steps]
    plain = {f"{step.tool} {step.filled(values)!r}".casefold().replace(" ", "") for step in task.steps}
    if len(plain) < len(task.steps) or not _are_all_needed(task):
        raise ProofFailure("minimal: a gold call can be left out")


def _are_all_needed(task: BuildTask) -> bool:
    """Whether the answer needs every call: leaving one out leaves a value of the answer, or of a call for it, open."""
    needed = set(task.ends)
    for number in range(len(task.steps) - 1, -1, -1):
        if number in needed:
            needed.update(task.steps[number].needs)
    return len(needed) == len(task.steps)


def check_twin(task: BuildTask, answer: str) -> None:
    """Raises Unproven where a world with other values has the same answer."""
    if answer == task.answer:
        raise ProofFailure("swap: the answer is the same in a world with other values")


def _check_ends(task: BuildTask, values: Sequence[Value]) -> None:
    """Another value at the end of each chain must make another answer."""
    ends = [values[end] for end in task.ends]
    for place, value in enumerate(ends):
        others = [value + "?"] if isinstance(value, str) else [value + 1, value - 1, 10 * value + 1]
        changed = ([*ends[:place], other, *ends[place + 1 :]] for other in others)
        if task.join is Join.SMALLEST and not isinstance(value, str):
            changed = ([*ends[:place], min(map(float, ends)) - 1, *ends[place + 1 :]] for _ in others)
        if all(task.join.of(each) == task.answer for each in changed):
            raise ProofFailure("minimal: a value does not change the answer")


def refuse_leak(where: str, value: Value, text: SearchedText) -> None:
    """Raises ProofFailure where a text has a value that a call finds, or one that is made of such."""
    if form := text.find(value):
        raise ProofFailure(f"leak: {where} names a value that a call finds, {form}", f"it names {value!r}")


def policy_scores(task: BuildTask, gold: Solved, attempts: Attempts, rng: random.Random) -> list[Solved]:
    """Scores of the gold calls and of each policy without skill, in the order of POLICIES."""
    everything = [found for name in task.names for tool in task.tools for found in attempts(tool, name)]
    golds, total = keyed_golds(task.unsolved_set), len(task.steps)
    drawn = rng.choices(everything, k=total) if everything else []
    return [gold, *(score_calls(findings, golds, total) for findings in ((), drawn, everything))]


class Figures:
    """Sums over tasks: what each policy solved, called and scored, and the chance of a guess."""

    def __init__(self) -> None:
        self.by_scenario: dict[str, dict[str, float]] = {}

    def add(self, task: BuildTask, scores: Sequence[Solved]) -> None:
        """Counts one task."""
        own = {"tasks": 1.0, "calls": float(len(task.steps)), "no_tool": task.guess}
        for policy, found in zip(POLICIES, scores, strict=True):
            own |= {f"{policy}/p": found.precision, f"{policy}/r": found.recall, f"{policy}/f1": found.f1}
        sums = self.by_scenario.setdefault(task.scenario.value, dict.fromkeys(own, 0.0))
        for name, value in own.items():
            sums[name] += value
