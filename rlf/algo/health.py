"""Guards against collapse: what is watched, when it is an alarm, and what follows. No torch: a spec holds the settings.

A guard looks at one number of each step. It raises an alarm when the number has been out of bounds for `steps` steps in
a row, once, and again only after the number has been back within them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from rlf.core.kinds import StrictModel
from rlf.types.events import StepFinished
from rlf.types.score import Scored
from rlf.types.trajectory import StopReason

_SHOWN = 5
"""Trajectories that an alarm names."""


class Action(StrEnum):
    """Consequence of an alarm."""

    WARN = "warn"
    """The run continues; the alarm is an event in the lineage."""
    STOP = "stop"
    """The run ends as failed; `rlf resume` continues it."""
    ROLLBACK = "rollback"
    """The same, and the checkpoints made since the number left its bounds are dropped: `rlf resume` starts before."""


class OnNoSignal(StrEnum):
    """Consequence of steps that hold nothing to learn from."""

    WARN = "warn"
    """A diagnosis after each such step."""
    STOP = "stop"
    """The run also ends as failed after three such steps in a row; `rlf resume` continues it."""


class Guard(StrictModel):
    """Bounds on one number."""

    above: float | None = Field(None, allow_inf_nan=False)
    """Out of bounds above this; null: no upper bound."""
    below: float | None = Field(None, allow_inf_nan=False)
    """Out of bounds below this; null: no lower bound."""
    steps: int = Field(3, ge=1)
    """Steps in a row before it is an alarm."""
    action: Action = Action.WARN
    """What follows when the guard's bound is crossed."""

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        if self.above is None and self.below is None:
            raise PydanticCustomError("guard", "sets no bound; write `above` or `below`, or null for no guard")
        if self.above is not None and self.below is not None and self.above <= self.below:
            raise PydanticCustomError(
                "guard", "`above` must be greater than `below`; as written, every number is out of bounds"
            )
        return self

    def holds(self, value: float) -> bool:
        """Whether a number is within bounds; one that is not finite never is."""
        over = self.above is not None and value > self.above
        under = self.below is not None and value < self.below
        return math.isfinite(value) and not over and not under


class HealthConfig(StrictModel):
    """Guards against collapse, each with its bounds and what follows. null turns one off."""

    kl_old: Guard | None = Guard(above=0.5)
    """`policy/kl_old`, in nats: one step's updates went far from the policy that sampled."""
    kl_ref: Guard | None = Guard(above=20.0)
    """`policy/kl_ref`, in nats: the policy is far from where it started."""
    mismatch_kl: Guard | None = Guard(above=0.1)
    """`policy/mismatch_kl`, in nats: sampler and trainer disagree on the same weights."""
    entropy: Guard | None = Guard(below=1e-4, steps=5)
    """`policy/entropy`, in nats: the policy says the same always."""
    reward_std: Guard | None = None
    """`reward/std`: rewards do not differ; off, for a task that is solved looks so too."""
    dead_groups: Guard | None = Guard(above=0.95, steps=5)
    """`groups/dead_share`, while success is below 0.9: nothing is left to learn from, yet much to learn. Read only with
    an algorithm that compares the rewards of a group. A step whose groups are all equal has no gradient from
    its rewards, and the optimizer is stepped all the same, as in TRL, verl and OpenRLHF: for some ten steps its
    momentum still moves the policy, which can lose much of its entropy so."""
    parse_failures: Guard | None = Guard(above=0.5)
    """Parse failures per trajectory."""
    length: Guard | None = Guard(above=0.5)
    """Share of the trajectories that the token budget cut."""
    left_out: Guard | None = Guard(above=0.1)
    """`left_out/length`: long trajectories are not learned from, so that the policy learns from quick tasks alone."""
    tool_use: Guard | None = Guard(below=0.1, steps=5)
    """Tool calls per trajectory as a share of the most that any step had: the policy gives its tools up. 0 where there
    are tools and no step had a call."""
    loss: Guard | None = Guard(below=-1e6, above=1e6, steps=1, action=Action.STOP)
    """`loss/policy`: its default stops a run whose loss is no number any more."""
    hidden: Guard | None = Guard(above=0.05, steps=1)
    """The gap to a hidden reward term: the share of what a trained term pays that the hidden one refuses. Out of bounds
    once it is shown (95 %, over all steps together) to have risen by more than this since it was lowest, or over a
    tenth."""
    on_no_signal: OnNoSignal = OnNoSignal.WARN
    """What follows where no rewards that are compared differ, or none is there, so that nothing can be learned."""

    @field_validator("hidden")
    @classmethod
    def _gaps_are_bounded_above(cls, guard: Guard | None) -> Guard | None:
        if guard is not None and (guard.below is not None or guard.above is None or not 0 <= guard.above < 1):
            raise PydanticCustomError("guard", "bounds a rise of a share; write `above`, from 0 to below 1, alone")
        return guard


@dataclass(frozen=True, slots=True)
class Alarm:
    """A guard that tripped."""

    guard: str
    text: str
    action: Action
    step: int
    since: int
    """The first step of those in a row that were out of bounds."""
    value: float
    trajectories: tuple[int, ...]
    """Positions within the step of trajectories that show it."""


Reading = Callable[[Mapping[str, float]], float | None]


class Watch:
    """The guards of one run under way: a fold over its steps."""

    def __init__(self, config: HealthConfig, *, has_tools: bool, by_group: bool) -> None:
        """Watches by a spec's settings.

        Args:
            has_tools: Whether the policy may call any tool.
            by_group: Whether the rewards of a group are compared, so that a group of equal ones teaches nothing.
        """
        self._guards = {name: guard for name, guard in config if isinstance(guard, Guard) and name in READINGS}
        self._has_tools = has_tools
        self._by_group = by_group
        self._since: dict[str, int] = {}
        self._raised: set[str] = set()
        self._most_calls = 0.0

    def after(self, event: StepFinished) -> list[Alarm]:
        """The alarms that a step raises."""
        metrics = dict(event.metrics)
        calls = metrics.get("tools/calls_per_trajectory", 0.0)
        self._most_calls = max(self._most_calls, calls)
        if self._has_tools:
            metrics["tool_use"] = calls / self._most_calls if self._most_calls else 0.0
        if not self._by_group:
            metrics.pop("groups/dead_share", None)
        metrics["parse_failures"] = sum(len(item.trajectory.failures) for item in event.trajectories) / max(
            1, len(event.trajectories)
        )
        return [alarm for name in self._guards if (alarm := self._check_guard(name, metrics, event)) is not None]

    def _check_guard(self, name: str, metrics: Mapping[str, float], event: StepFinished) -> Alarm | None:
        guard: Guard = self._guards[name]
        value = READINGS[name](metrics)
        if value is None or guard.holds(value):
            self._since.pop(name, None)
            self._raised.discard(name)
            return None
        since = self._since.setdefault(name, event.step)
        if name in self._raised or event.step - since + 1 < guard.steps:
            return None
        self._raised.add(name)
        text = f"{name} is {value:.4g}, {_show_bound(guard, value)} since step {since}"
        return Alarm(name, text, guard.action, event.step, since, value, _find_examples(name, event.trajectories))


def _read_metric(name: str) -> Reading:
    return lambda metrics: metrics.get(name)


READINGS: dict[str, Reading] = {
    "kl_old": _read_metric("policy/kl_old"),
    "kl_ref": _read_metric("policy/kl_ref"),
    "mismatch_kl": _read_metric("policy/mismatch_kl"),
    "entropy": _read_metric("policy/entropy"),
    "reward_std": _read_metric("reward/std"),
    "dead_groups": lambda metrics: metrics.get("groups/dead_share") if metrics.get("success", 1.0) < 0.9 else None,
    "parse_failures": _read_metric("parse_failures"),
    "length": lambda metrics: metrics.get("stop/length", 0.0),
    "left_out": lambda metrics: metrics.get("left_out/length", 0.0),
    "tool_use": _read_metric("tool_use"),
    "loss": _read_metric("loss/policy"),
}
"""What each guard reads of a step's metrics; None where the run has no such number. `hidden` reads scores."""


def _show_bound(guard: Guard, value: float) -> str:
    if not math.isfinite(value):
        return "no number"
    return f"above {guard.above:g}" if guard.above is not None and value > guard.above else f"below {guard.below:g}"


_SHOWS: dict[str, Callable[[Scored], bool]] = {
    "parse_failures": lambda item: bool(item.trajectory.failures),
    "length": lambda item: item.trajectory.stop is StopReason.LENGTH,
    "left_out": lambda item: item.trajectory.stop in (StopReason.LENGTH, StopReason.MAX_TURNS),
    "tool_use": lambda item: not item.trajectory.calls,
}


def _find_examples(name: str, trajectories: Sequence[Scored]) -> tuple[int, ...]:
    """The first trajectories that show an alarm; where none does more than others, those of lowest reward."""
    if name in _SHOWS:
        return tuple(k for k, item in enumerate(trajectories) if _SHOWS[name](item))[:_SHOWN]
    scored = [(item.reward, k) for k, item in enumerate(trajectories) if item.reward is not None]
    return tuple(k for _, k in sorted(scored)[:_SHOWN])
