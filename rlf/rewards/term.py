"""Reward terms: one number about one trajectory, or a reason why there is none.

`Term.model_validate(mapping, context={"folder": Path})` builds the class of the mapping's `kind`; faults carry the
YAML key path as `loc`. A `Term` is the declaration; `open` gives the `Scorer` that works for a run. Weighting, gates
and summing live in `rlf.rewards.function`: neither knows of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from pydantic import (
    AfterValidator,
    Field,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from rlf.core import Registry, derive_seed, nearest
from rlf.core.kinds import Files, Kind, StrictModel, wrong_value
from rlf.core.meter import Meter
from rlf.rewards.facts import Example
from rlf.types import ScoreUsage, Task, ToolCall, ToolInvoker, Trajectory

# How much a term counts: a number, or a number that moves over the steps of a run.


class WeightCurve(StrEnum):
    """How a weight goes from one number to the other."""

    LINEAR = "linear"
    """In equal parts."""
    COSINE = "cosine"
    """Slowly at both ends: half a turn of a cosine."""


class WeightSchedule(StrictModel, populate_by_name=True):
    """A weight that starts at `from` in step 1 and is `to` after `steps` more, and from then on."""

    schedule: WeightCurve
    start: float = Field(alias="from", allow_inf_nan=False)
    """Weight in step 1, and in evaluations before it."""
    end: float = Field(alias="to", allow_inf_nan=False)
    """Weight from step `steps` + 1 on."""
    steps: int = Field(ge=1)
    """Steps that the change takes."""

    def at(self, step: int) -> float:
        """The weight in a step, which counts from 1.

        With x = (step - 1) / steps within 0 and 1: linear from + (to - from) x, cosine
        from + (to - from) (1 - cos(pi x)) / 2.
        """
        share = min(1.0, max(0, step - 1) / self.steps)
        if self.schedule is WeightCurve.COSINE:
            share = (1 - math.cos(math.pi * share)) / 2
        return self.start + (self.end - self.start) * share


_NUMBER = TypeAdapter(Annotated[float, Field(allow_inf_nan=False)])


def _of_its_form(value: Any, handler: ValidatorFunctionWrapHandler) -> float | WeightSchedule:
    """A mapping is read as a schedule and all else as a number, so that a fault is about one of them."""
    if isinstance(value, Mapping | WeightSchedule):
        return WeightSchedule.model_validate(value)
    return _NUMBER.validate_python(value)


Weight = Annotated[float | WeightSchedule, WrapValidator(_of_its_form)]


class Verdict(NamedTuple):
    """The result of a term for a trajectory."""

    value: float | None
    """Within the term's `bounds`. None: the term cannot score this trajectory, which is never the same as 0."""
    reason: str = ""
    """Why, in words for a person who reads the trace."""
    turn_values: tuple[float | None, ...] | None = None
    """Of a term with `stage: turn`, in place of `value`: one per turn, None where it says nothing of the turn."""
    usage: ScoreUsage | None = None
    """What judges took for it; None where none was asked."""
    is_unanswered: bool = False
    """Without a value: whether a judge or a tool did not answer, so that there may be one another time."""


@dataclass(frozen=True, slots=True)
class RewardContext:
    """Services of a run for its terms."""

    tools: ToolInvoker
    """Runs declared tools, those hidden from the model too. Calls count and fail like the model's own."""
    seed: int
    """The run's."""
    notify: Callable[[str, str], None]
    """Writes to the run's log: a level (`info`, `warning`, `error`, `alarm`) and the words."""
    meter: Meter | None = None
    """Counts what judges cost, as they do; None: nobody asks."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """One trajectory's scoring under way."""

    step: int
    """The step that the trajectory is for, from 1; an evaluation's counts the updates before it, from 0."""
    values: Mapping[str, float | None]
    """Values of the terms that this one `reads`, before scale and clip; None where there is none."""
    group_size: int = 1
    """Rollouts of the trajectory's task in this collection, itself among them."""


class Scorer(Protocol):
    """An open term."""

    async def score(self, trajectory: Trajectory, scoring: Scoring) -> Verdict:
        """The verdict on a scorable trajectory; several are scored at once, and the terms of one side by side.

        What it raises is a fault of the term, except RunError, which ends the run.
        """


@runtime_checkable
class StatefulScorer(Scorer, Protocol):
    """A scorer whose counts outlive a process: a checkpoint holds them."""

    def state(self) -> dict[str, Any]:
        """Its counts, as JSON has them."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a `state`."""
        ...


@runtime_checkable
class GroupScorer(Scorer, Protocol):
    """An open term that compares the rollouts of a task, so that it waits for all of them."""

    def leave(self, trajectory: Trajectory, scoring: Scoring) -> None:
        """Reports that a trajectory of the group is not to be scored: nothing waits for it."""


class Stage(StrEnum):
    """The part of a trajectory that a term scores."""

    OUTCOME = "outcome"
    """The trajectory as a whole: one value."""
    TURN = "turn"
    """Each turn: one value per turn. In the reward counts their mean; 0 where it says nothing of any turn."""


class Unscorable(StrEnum):
    """The consequence where a term has no value for a trajectory."""

    DROP_TRAJECTORY = "drop_trajectory"
    """The trajectory has no reward: it stays out of its group and of the loss."""
    DROP_TERM = "drop_term"
    """The others are summed without it, for all trajectories of the group, so that equal sums are compared. Where none
    of them with a weight has a value, the trajectory has no reward."""


class Gate(StrictModel, allow_inf_nan=False):
    """Value that another term must have for this one to be scored; otherwise it adds nothing."""

    term: str
    """Name of the other term."""
    at_least: float | None = None
    """Its value, before scale and clip, must reach this; None: the top of its range, unless `at_most` is there."""
    at_most: float | None = None
    """Its value must not exceed this; None: no bound."""


class Success(StrictModel, allow_inf_nan=False):
    """What counts as success: from 0 to 1, so that shares, intervals and comparisons speak of it.

    With a bound it is 1 where the term's value holds it, else 0. Without one it is the value, scaled from the term's
    range to 0 to 1: (value - low) / (high - low).
    """

    term: str
    """Name of the term whose value decides, before scale and clip."""
    at_least: float | None = None
    """The value that is a success, or more; None: no bound."""
    at_most: float | None = None
    """The value that is a success, or less; None: no bound."""

    @property
    def is_predicate(self) -> bool:
        """Whether it is 0 or 1 alone."""
        return self.at_least is not None or self.at_most is not None

    def of(self, value: float, bounds: tuple[float, float]) -> float:
        """The success of a value within the term's bounds."""
        low, high = bounds
        if self.is_predicate:
            least, most = (
                (low if self.at_least is None else self.at_least),
                (high if self.at_most is None else self.at_most),
            )
            return float(least <= value <= most)
        return (value - low) / (high - low)


def check_order(bounds: tuple[float, float]) -> tuple[float, float]:
    """A range, whose lower bound is first."""
    if not bounds[0] < bounds[1]:
        cure = "Swap them." if bounds[0] > bounds[1] else "Write two numbers that differ."
        raise wrong_value(f"got [{bounds[0]:g}, {bounds[1]:g}]; expected the lower bound first. {cure}")
    return bounds


Range = Annotated[tuple[float, float], AfterValidator(check_order)]
"""A field with the lower and the upper bound of values."""


class Term(Kind, ABC, allow_inf_nan=False):
    """One term of the reward. Fields are its YAML keys; validating a mapping gives the class of its `kind`."""

    chosen_by: ClassVar[str] = "kind"
    needs_answer: ClassVar[bool] = False
    """Whether a task without a gold answer is unscorable."""
    judges_turns: ClassVar[bool] = False
    """Whether the term can give one value per turn."""
    best_is_known: ClassVar[bool] = True
    """Whether a trajectory that is written by hand can show the best value; nobody knows a model's verdict before."""
    reads_all_rows: ClassVar[bool] = False
    """Whether each row must have the columns, and not the first alone."""
    CONDITIONS: ClassVar[str] = ""
    """Module with `CHECKS` and `WARNINGS` of a loaded spec that has such a term; empty: there are none."""

    kind: str
    """What decides the term's value."""
    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")
    """What the term is called in scores and metrics; unique within a spec."""
    weight: Weight = 1.0
    """Factor of the term's value in the reward: a number, or a schedule. 0 reports the term and lets others read it."""
    scale: float = 1.0
    """Factor before `clip`."""
    clip: Range | None = None
    """Bounds of scale x value; None: no bounds."""
    when: Gate | None = None
    """The gate; None: the term is always asked."""
    required: bool | float = False
    """The value to reach, `true` for the top of the range. Short of it only what is negative stays of the reward."""
    hidden: bool = False
    """Scores what is trained on and is never trained on itself: its weight is 0, and no other term reads it. What the
    others pay and it refuses is the gap, which `health.hidden` watches."""
    every: int = Field(1, ge=1)
    """Of a hidden term: it is asked about the rollouts of one task in so many."""
    stage: Stage = Stage.OUTCOME
    unscorable: Unscorable = Unscorable.DROP_TRAJECTORY
    files: Files = ()
    """Files whose content is a part of what the reward is, e.g. `[../data/units.csv]`, relative to the file that says
    so. They count in the plan's hash; a run records them with theirs, and `rlf resume` reports an edit."""
    tests: tuple[Example, ...] = ()
    """Trajectories with the value they must have; `rlf rewards test` scores them."""

    @model_validator(mode="before")
    @classmethod
    def _hidden_weighs_nothing(cls, value: Any) -> Any:
        is_hidden = isinstance(value, Mapping) and value.get("hidden", False) is not False
        return {"weight": 0.0, **value} if is_hidden else value

    @field_validator("stage")
    @classmethod
    def _stage_is_known(cls, stage: Stage) -> Stage:
        if stage is Stage.TURN and not cls.judges_turns:
            raise wrong_value(
                "got turn; this term looks at whole trajectories only. Write `stage: outcome`, or remove it."
            )
        return stage

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and greatest value the term gives; a value outside is its fault."""
        return (0.0, 1.0)

    def best_facts(self, best: float) -> Mapping[str, Any] | None:
        """What `TrajectoryFacts` takes of a trajectory that must have the value `best`; None where none is known."""
        return None

    @property
    def reads(self) -> Mapping[str, str]:
        """Names of the terms whose values it needs first, with the key that names each."""
        return {} if self.when is None else {self.when.term: "when.term"}

    @property
    def threshold(self) -> float | None:
        """The value that must be reached for the whole to hold; None where the term is not required."""
        if self.required is False:
            return None
        return self.bounds[1] if self.required is True else self.required

    @property
    def pays_for_form(self) -> bool:
        """Whether the term looks at the form of a trajectory, whatever its answer is."""
        return self.kind == "rule" and not self.needs_answer and self.when is None

    @property
    def counted_bounds(self) -> tuple[float, float]:
        """Least and greatest value as it counts."""
        low, high = sorted(map(self.counted, self.bounds))
        return low, high

    def is_asked_about(self, task_id: str) -> bool:
        """Whether the term is asked about the rollouts of a task: all of them or none, whichever process asks."""
        return self.every == 1 or derive_seed(0, "every", self.name, task_id) % self.every == 0

    @property
    def compares_groups(self) -> bool:
        """Whether the rollouts of a task are compared with each other, so that each waits for all."""
        return False

    @property
    def peak_weight(self) -> float:
        """The largest size that the weight has in a run."""
        weight = self.weight
        return max(abs(weight.start), abs(weight.end)) if isinstance(weight, WeightSchedule) else abs(weight)

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """Columns of the task's row that it cannot score without, with the key that names each."""
        return {}

    @property
    def is_droppable(self) -> bool:
        """Whether rewards are summed without it where it has no value."""
        return self.peak_weight > 0 and self.unscorable is Unscorable.DROP_TERM

    def weight_at(self, step: int) -> float:
        """The weight in a step, which counts from 1."""
        return self.weight.at(step) if isinstance(self.weight, WeightSchedule) else self.weight

    def counted(self, value: float) -> float:
        """A value as it counts: scaled, then clipped."""
        value *= self.scale
        return value if self.clip is None else min(max(value, self.clip[0]), self.clip[1])

    @property
    def data_files(self) -> Sequence[str]:
        """Files beside `files` that it reads."""
        return ()

    def gold_call(self, task: Task, tools: Collection[str]) -> ToolCall | None:
        """The call of one of the tools that finds a task's gold; None where the term makes none of them."""
        return None

    def misread_keys(self, datasets: Sequence[Sequence[Task]]) -> Iterator[tuple[str, str]]:
        """Keys that pay for nothing in these tasks, each with what is wrong and what to write."""
        yield from ()

    def prepare(self) -> None:
        """Looks at what the term names, without opening it. Raises RlfError when it cannot be used."""

    def prepare_unrun(self) -> None:
        """The part of `prepare` that runs no code of others: all of it, for a kind that runs none. Raises RlfError."""
        self.prepare()

    @abstractmethod
    def open(self, context: RewardContext) -> AbstractAsyncContextManager[Scorer]:
        """The term's scorer for a run; leaving the context gives back all that it holds. Raises RlfError."""


TERM_KINDS: Registry[Term] = Registry(
    "reward kind",
    "rlf.rewards.kinds",
    Term,  # type: ignore[type-abstract]  # compared with, never instantiated
)

# Samples of rules: options and trajectories with known values, for conformance and `rlf rewards test`.


@dataclass(frozen=True, slots=True)
class KnownSample:
    """Trajectories whose values are known; `gold` is what `TrajectoryFacts` takes."""

    gold: Mapping[str, Any]
    """A trajectory that could not be better."""
    best: float = 1.0
    """Its value."""
    malformed: float = 0.0
    """Value for the same task of a trajectory whose only turn could not be parsed."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options that the rule must have for it."""


# How terms hang together: the order in which they are asked, and what is wrong with them as a whole.


class Complaint(NamedTuple):
    """One thing wrong with a term beside the others."""

    position: int
    """The term's."""
    key: tuple[str, ...]
    """Of the term."""
    message: str
    """What was there; what is allowed. What to write."""


def in_order(terms: Sequence[Term]) -> list[Term]:
    """The terms, each after those it reads, otherwise as declared. There must be no complaint about them."""
    placed: dict[str, Term] = {}
    while len(placed) < len(terms):
        ready = [term for term in terms if term.name not in placed and term.reads.keys() <= placed.keys()]
        assert ready, f"terms depend on each other in a circle: {_find_cycle(terms)}"
        placed |= {term.name: term for term in ready}
    return list(placed.values())


def complaints(terms: Sequence[Term]) -> Iterator[Complaint]:
    """Everything that makes the terms no reward: names, cycles, thresholds that are never or always met."""
    by_name = {term.name: term for term in terms}
    for position, term in enumerate(terms):
        about = (_about_names(term, by_name), _about_gate(term, by_name), _about_required(term))
        for key, message in chain(*about, _about_hidden(term, by_name)):
            yield Complaint(position, key, message)
        if term.scale == 0:
            yield Complaint(
                position, ("scale",), "got 0, which makes every value 0. Write weight: 0 to only report it."
            )
    cycle = _find_cycle(terms)
    if cycle and all(name in by_name for name in cycle):
        first = by_name[cycle[0]]
        message = f"the terms depend on each other in a circle: {' -> '.join(cycle)}. Remove one of these links."
        yield Complaint(list(by_name).index(first.name), tuple(first.reads[cycle[1]].split(".")), message)


def _find_cycle(terms: Sequence[Term]) -> list[str]:
    """Names of terms each of which reads the next, the first again at the end; empty when there are none."""
    try:
        TopologicalSorter({term.name: list(term.reads) for term in terms}).prepare()
    except CycleError as error:
        names: list[str] = error.args[1][::-1]
        return names
    return []


def _about_names(term: Term, by_name: Mapping[str, Term]) -> Iterator[tuple[tuple[str, ...], str]]:
    known = [name for name in by_name if name != term.name]
    for name, key in term.reads.items():
        if name not in by_name:
            there = f"(known: {', '.join(known)})" if known else "(there is no other)"
            yield tuple(key.split(".")), f"unknown term {name!r}{nearest(name, known)} {there}. Name another term."


def _about_gate(term: Term, by_name: Mapping[str, Term]) -> Iterator[tuple[tuple[str, ...], str]]:
    gate = term.when
    if gate is None or gate.term not in by_name:
        return
    low, high = by_name[gate.term].bounds
    between = f"the values of {gate.term!r} lie between {low:g} and {high:g}"
    if gate.at_least is gate.at_most is None and math.isinf(high):
        yield ("when",), f"the range of {gate.term!r} has no upper bound to reach. Write e.g. `at_least: 1.0`."
    if gate.at_least is not None and gate.at_least > high:
        yield (
            ("when", "at_least"),
            f"got {gate.at_least:g}, but {between}: the gate never opens. Write at most {high:g}.",
        )
    if gate.at_most is not None and gate.at_most < low:
        yield ("when", "at_most"), f"got {gate.at_most:g}, but {between}: the gate never opens. Write at least {low:g}."


def _about_required(term: Term) -> Iterator[tuple[tuple[str, ...], str]]:
    threshold, (low, high) = term.threshold, term.bounds
    if threshold is None:
        return
    key = ("required",)
    if math.isinf(threshold):
        yield key, "got true, but the term's range has no upper bound to reach. Write the value, e.g. `required: 1.0`."
    elif not low < threshold <= high:
        never = "never" if threshold > high else "always"
        words = f"got {threshold:g}, which is {never} met: values lie between {low:g} and {high:g}. "
        yield key, f"{words}Write one of these."
    if term.peak_weight == 0:
        fix = "Remove this." if term.hidden else "Give it a weight other than 0, or remove this."
        yield key, f"a term of weight 0 is only reported. {fix}"
    if term.unscorable is Unscorable.DROP_TERM:
        words = "got drop_term for a required term: without a value rlf cannot know whether it is met. "
        yield ("unscorable",), f"{words}Write drop_trajectory, or remove `required`."


def _about_hidden(term: Term, by_name: Mapping[str, Term]) -> Iterator[tuple[tuple[str, ...], str]]:
    if not term.hidden:
        if term.every != 1:
            yield ("every",), f"got {term.every}; what is trained on scores every rollout. Write `hidden: true`, or 1."
        for name, key in term.reads.items():
            if name in by_name and by_name[name].hidden:
                words = f"{name!r} is hidden, and what a trained term reads is trained on. Name another term, or write "
                yield tuple(key.split(".")), f"{words}`hidden: true` here too."
        return
    if term.peak_weight:
        words = "a hidden term is never trained on. Remove its weight, or `hidden`."
        yield ("weight",), f"got {term.peak_weight:g}; {words}"
    if math.isinf(term.counted_bounds[1] - term.counted_bounds[0]):
        yield ("hidden",), "the term gives any number, of which none is a refusal. Write e.g. `clip: [0, 1]`."
