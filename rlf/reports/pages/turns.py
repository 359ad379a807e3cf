"""A trajectory as the parts of a page: what the policy saw, what it sampled, turn beside turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from rlf.lineage.records import StoredTrajectory
from rlf.reports.quantities import decimal
from rlf.types.trajectory import Turn


@dataclass(frozen=True, slots=True)
class Part:
    """One text."""

    label: str
    """Role, tool with arguments and outcome, or class of failure."""
    text: str
    fed: bool
    """Whether the policy saw it; what ended a trajectory it did not."""


@dataclass(frozen=True, slots=True)
class TurnParts:
    """One turn."""

    number: int
    sampled: str
    after: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """One trajectory."""

    name: str
    opening: str
    """System text and declarations of tools; empty where they are not known."""
    messages: tuple[Part, ...]
    turns: tuple[TurnParts, ...]
    end: str
    scores: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TurnPair:
    """The same turn of two trajectories; None behind the end of one."""

    number: int
    left: TurnParts | None
    right: TurnParts | None

    @property
    def differs(self) -> bool:
        """Whether the two did or got different things."""
        return self.left != self.right


@dataclass(frozen=True, slots=True)
class SidePair:
    """Two trajectories of one question, turn beside turn."""

    left: Side
    right: Side
    turns: tuple[TurnPair, ...]

    @property
    def first_difference(self) -> int | None:
        """The first turn, from 1, that was sampled differently or had another result; None where none is."""
        return next((pair.number for pair in self.turns if pair.differs), None)


def side(name: str, stored: StoredTrajectory, opening: str) -> Side:
    """A trajectory as parts; with an opening the system message is in it and not repeated."""
    trajectory, reward = stored.scored.trajectory, stored.summary.reward
    messages = (m for m in trajectory.task.messages if not (opening and m.role == "system"))
    ended = f"{trajectory.stop}, {'unscorable' if reward is None else f'reward {decimal(reward)}'}"
    return Side(
        name,
        opening,
        tuple(Part(message.role, message.content, True) for message in messages),
        tuple(_make_turn_parts(number, turn) for number, turn in enumerate(trajectory.turns, start=1)),
        ended if trajectory.error is None else f"{ended}: {trajectory.error}",
        tuple(
            f"{score.term} {decimal(score.value)} × {score.weight:g}{f'  {score.reason}' if score.reason else ''}"
            for score in stored.scored.scores
        ),
    )


def _make_turn_parts(number: int, turn: Turn) -> TurnParts:
    return TurnParts(number, turn.text.removesuffix("\n") or "(no token)", tuple(_parts_after(turn)))


def _parts_after(turn: Turn) -> Iterator[Part]:
    fed = turn.observation_end > turn.end
    for record in turn.calls:
        arguments = json.dumps(dict(record.call.arguments), ensure_ascii=False, default=str)
        yield Part(f"{record.call.name}({arguments}) → {record.result.outcome}", record.result.text, fed)
    for failure in turn.failures:
        yield Part(f"parse failure: {failure.kind}", failure.message, fed)


def beside(left: Side, right: Side) -> SidePair:
    """Two trajectories turn by turn."""
    pairs = enumerate(zip_longest(left.turns, right.turns), start=1)
    return SidePair(left, right, tuple(TurnPair(number, one, other) for number, (one, other) in pairs))
