"""Scores: what reward terms say of a trajectory. Unscorable is a third thing, never 0.

Invariant: a trajectory's reward is the sum of `weight * value` over its scores that have a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from rlf.core.plain_json import Jsonable, frozen
from rlf.types.trajectory import Trajectory


class ScoreState(StrEnum):
    """State of a term's result."""

    SCORED = "scored"
    """It gave a value."""
    GATED = "gated"
    """It was not asked, since its gate was closed, or its `every` leaves the task out."""
    UNSCORABLE = "unscorable"
    """It says that it cannot score this trajectory, asked again or not: there is no gold."""
    UNANSWERED = "unanswered"
    """What it asks, a judge or a tool, did not answer."""
    FAULT = "fault"
    """It broke its promise: it raised, or its value is no number of its range."""
    GONE = "gone"
    """It imports a module that is not there: waiting is in vain."""

    @property
    def may_pass(self) -> bool:
        """Whether there is no value for a reason outside the trajectory, so that there may be one another time."""
        return self in (ScoreState.UNANSWERED, ScoreState.FAULT, ScoreState.GONE)


@dataclass(frozen=True, slots=True)
class ScoreUsage:
    """Replies, tokens and cost of a judge's verdict."""

    num_replies: int = 0
    """Replies of judges that the verdict rests on, and of sentinels tried beside it."""
    num_cached: int = 0
    """Those of them that were given before; their tokens are not counted again."""
    num_tokens: int = 0
    """Prompt and completion."""
    cost_usd: float = 0.0
    kappa: float | None = None
    """Of the judge with its sentinels, over the latest of them; None where there are none or too few."""
    num_requests: int = 0
    """Requests to judges, those that failed or were repeated included."""

    def __add__(self, other: ScoreUsage) -> ScoreUsage:
        return ScoreUsage(
            self.num_replies + other.num_replies,
            self.num_cached + other.num_cached,
            self.num_tokens + other.num_tokens,
            self.cost_usd + other.cost_usd,
            other.kappa if self.kappa is None else self.kappa,
            self.num_requests + other.num_requests,
        )


@frozen
class Score(Jsonable):
    """One term's outcome for one trajectory."""

    term: str
    value: float | None
    """As it counts, after the term's scale and clip; None when there is none: `reason` says why."""
    weight: float
    """The factor it counted with; 0 where the term adds nothing: a closed gate, a dropped term, a failed whole."""
    reason: str = ""
    elapsed_s: float = 0.0
    state: ScoreState = ScoreState.SCORED
    turn_values: tuple[float | None, ...] | None = None
    """Of a term with `stage: turn`: one value per turn as it counts, None where it says nothing of the turn."""
    usage: ScoreUsage | None = None
    """What a judge took for it; None where none was asked."""

    @property
    def is_dropped(self) -> bool:
        """Whether the term has no value, though it was asked for one, and the others are summed without it."""
        return self.value is None and not self.weight and self.state is not ScoreState.GATED

    @property
    def contribution(self) -> float:
        """The score's part of the reward: weight times value, 0 without a value."""
        return 0.0 if self.value is None else self.weight * self.value


def usage_by_name(trajectories: Iterable[Scored], *, is_played: bool = False) -> dict[tuple[str, str], Counter[str]]:
    """Costs of trajectories, by kind, `tool` or `judge`, and name. What a cache gave again has cost nothing.

    Args:
        is_played: whether all results of tools come from a recording, so that they have cost nothing either.
    """
    found: dict[tuple[str, str], Counter[str]] = {}

    def add(kind: str, name: str, usage: Mapping[str, float]) -> None:
        if spent := {unit: number for unit, number in usage.items() if number}:
            found.setdefault((kind, name), Counter()).update(spent)

    for scored in trajectories:
        for record in () if is_played else scored.trajectory.played_calls:
            if not record.result.cached:
                add("tool", record.call.name, record.result.usage)
        for score in scored.scores:
            if (used := score.usage) is not None:
                usage = {"requests": used.num_requests, "num_tokens": used.num_tokens, "cost_usd": used.cost_usd}
                add("judge", score.term, usage)
    return found


def costs_by_name(trajectories: Iterable[Scored]) -> dict[str, float]:
    """US dollars by tool and by judged term, those that cost something."""
    found: dict[str, float] = {}
    for (_, name), usage in usage_by_name(trajectories).items():
        if "cost_usd" in usage:
            found[name] = found.get(name, 0.0) + usage["cost_usd"]
    return found


@frozen
class Scored(Jsonable):
    """A trajectory with every term's score and the reward the estimator sees."""

    trajectory: Trajectory
    scores: tuple[Score, ...]
    reward: float | None
    """The weighted sum; None when the trajectory is unscorable and stays out of group and loss."""
    success: float | None
    """The success term's (the first declared) own value for reports; None when it has none."""

    @property
    def outcome_reward(self) -> float | None:
        """The part of the reward that is about the trajectory as a whole; None where there is no reward."""
        if self.reward is None:
            return None
        return sum((score.contribution for score in self.scores if score.turn_values is None), 0.0)

    @property
    def turn_rewards(self) -> tuple[float, ...]:
        """Sum of weight * value over the terms with `stage: turn`, turn by turn."""
        rewards = [0.0] * len(self.trajectory.turns)
        for score in self.scores:
            for turn, value in enumerate(score.turn_values or ()):
                rewards[turn] += score.weight * (value or 0.0)
        return tuple(rewards)
