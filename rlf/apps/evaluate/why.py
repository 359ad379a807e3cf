"""`rlf why`: which turn of a trajectory decided, and how its scores became its advantage.

A turn's worth is how it changed the chance of success: the share of right ones among continuations of the same
beginning, with the turn and without it. What was sampled is kept token by token, so that only the turn differs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from rlf.apps.evaluate.branches import Branches, BranchPoint, play_turns, read_trajectory
from rlf.core.errors import RlfError
from rlf.core.plain_json import Jsonable
from rlf.lineage.records import StoredTrajectory, TrajectoryFilter
from rlf.reports.sheets import Sheet, decimal, percent, points, points_range, sheet_table
from rlf.reports.statistics import Interval, wilson_interval
from rlf.rollout.rollout import Prefix
from rlf.runs.place import open_reader
from rlf.types import Trajectory

if TYPE_CHECKING:
    from rich.console import RenderableType

_CONFIDENCE = 0.95
"""That no turn is named by chance, all turns of the trajectory together."""
_LEAST = 0.2
"""Change below which a turn is not named: the last one always settles what was open."""
_SHOWN = 60
"""Characters of a turn that are shown."""


@dataclass(frozen=True, slots=True)
class TurnWorth:
    """What one turn changed."""

    turn: int
    """From 1."""
    text: str
    """Its calls, or its answer."""
    before: float
    """Share of right continuations without it."""
    after: float
    """With it; of the last turn 1 or 0, as it ended."""
    change: Interval
    """Of `after - before`, wide enough for all turns together."""
    branches: str | None
    """The evaluation with the continuations without it."""

    @property
    def decides(self) -> bool:
        """Whether the change is large, and beyond chance."""
        return abs(self.after - self.before) >= _LEAST and (self.change.low > 0 or self.change.high < 0)


@dataclass(frozen=True, slots=True)
class TermShare:
    """One term of the reward."""

    term: str
    value: float | None
    weight: float
    contribution: float


@dataclass(frozen=True, slots=True)
class Explanation(Jsonable):
    """Why a trajectory ended as it did, and what it was worth."""

    of: BranchPoint
    target: str
    """The model that played the continuations: `RUN@STEP`."""
    success: float
    reward: float | None
    terms: tuple[TermShare, ...]
    group: tuple[float | None, ...]
    """Rewards of the trajectories of the same task in its step, its own included."""
    advantage: float | None
    """Mean over its tokens; None outside of training."""
    num_samples: int
    turns: tuple[TurnWorth, ...]
    decided: int | None
    """The turn with the largest change towards the end, of those of at least 20 points and beyond chance; None where
    there is none: cannot say."""


def explain(
    point: BranchPoint, num_samples: int, *, at: str | None = None, runs_folder: Path, command: Sequence[str]
) -> Explanation:
    """Plays continuations from before each turn of a trajectory.

    Args:
        point: names it; its turn is not read.
        num_samples: continuations from each turn.
        at: the step of the checkpoint whose model plays; None: the newest.

    Raises:
        RlfError: there is no such trajectory or model, or the trajectory has no success to explain.
    """
    run_id, stored = read_trajectory(point, runs_folder)
    point, trajectory = replace(point, run=run_id), stored.scored.trajectory
    success = stored.summary.success
    if success is None or stored.summary.reward is None or not trajectory.turns:
        raise RlfError(
            f"{point.phase} {point.step}, {point.k} of {run_id}: it has no success to explain. Name another."
        )
    turns = [turn for turn in Prefix.choices(trajectory) if turn < len(trajectory.turns)]
    played = play_turns(point, turns, stored, num_samples, at=at, runs_folder=runs_folder, command=command)
    worths = find_worths(trajectory, played, is_right=success >= 1.0)
    sign = 1 if success >= 1.0 else -1
    deciding = [one for one in worths if one.decides and sign * (one.after - one.before) > 0]
    return Explanation(
        of=point,
        target=played[0].target,
        success=success,
        reward=stored.summary.reward,
        terms=tuple(
            TermShare(score.term, score.value, score.weight, score.contribution) for score in stored.scored.scores
        ),
        group=_read_group(stored, run_id, runs_folder),
        advantage=stored.summary.advantage,
        num_samples=num_samples,
        turns=tuple(worths),
        decided=max(deciding, key=lambda one: abs(one.after - one.before)).turn if deciding else None,
    )


def _read_group(stored: StoredTrajectory, run_id: str, runs_folder: Path) -> tuple[float | None, ...]:
    head = stored.summary
    with open_reader(runs_folder) as reader:
        wanted = TrajectoryFilter(phase=head.phase, step=head.step, task_id=head.task_id)
        return tuple(one.reward for one in reader.trajectories(run_id, wanted))


def find_worths(trajectory: Trajectory, played: Sequence[Branches], *, is_right: bool) -> list[TurnWorth]:
    """What each turn changed, of those with continuations from before and after them.

    Intervals of a difference of shares by Newcombe (1998), method 10, from Wilson's of either, at 1 - 0.05 / turns
    (Bonferroni); of the last turn, whose end is known, from Wilson's of the other.
    """
    turns = trajectory.turns
    confidence = 1 - (1 - _CONFIDENCE) / len(turns)
    shares = [_share(one, confidence) for one in played]
    if len(played) == len(turns):
        end = float(is_right)
        shares.append((end, Interval(end, end)))
    found = []
    for at, ((before, known), (after, then)) in enumerate(pairwise(shares)):
        low = math.hypot(after - then.low, known.high - before)
        high = math.hypot(then.high - after, before - known.low)
        change = Interval(after - before - low, after - before + high)
        found.append(TurnWorth(at + 1, _show(trajectory, at), before, after, change, played[at].run_id))
    return found


def _share(played: Branches, confidence: float) -> tuple[float, Interval]:
    num = played.num_played - played.num_unscorable
    if not num:
        raise RlfError(f"run {played.run_id}: none of {played.num_played} continuations could be scored; cannot say.")
    return played.num_right / num, wilson_interval(played.num_right, num, confidence)


def _show(trajectory: Trajectory, at: int) -> str:
    turn = trajectory.turns[at]
    text = ", ".join(f"{record.call.name}({dict(record.call.arguments)})" for record in turn.calls)
    if not text:
        is_last = at == len(trajectory.turns) - 1
        text = " ".join((trajectory.answer if is_last and trajectory.answer is not None else turn.text).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def explanation_view(found: Explanation) -> RenderableType:
    """For the terminal."""
    from rich.console import Group
    from rich.text import Text

    rows = tuple(
        (
            str(one.turn),
            one.text,
            percent(one.before),
            percent(one.after),
            f"{points(one.after - one.before, signed=True)} ({points_range(one.change.low, one.change.high)})",
        )
        for one in found.turns
    )
    note = f"shares of {found.num_samples} continuations by {found.target}; 95 %, all turns together"
    header = ("turn", "what it did", "before", "after", "change")
    return Group(
        sheet_table(Sheet("Chance of success", note, header, rows)), Text(), *(Text(line) for line in _lines(found))
    )


def _lines(found: Explanation) -> list[str]:
    end = "right" if found.success >= 1.0 else "wrong"
    if found.decided is None:
        decided = f"it ended {end}; cannot say which turn decided: no change is large and beyond chance"
    else:
        one = found.turns[found.decided - 1]
        decided = (
            f"it ended {end}; turn {one.turn} decided: {percent(one.before)} before it, {percent(one.after)} after"
        )
    terms = " + ".join(
        f"{one.weight:g} x {decimal(one.value)} ({one.term})" for one in found.terms if one.value is not None
    )
    rewards = [reward for reward in found.group if reward is not None]
    lines = [decided, f"reward {decimal(found.reward)} = {terms or 'no term has a value'}"]
    if len(rewards) > 1:
        mean = sum(rewards) / len(rewards)
        advantage = "" if found.advantage is None else f", its advantage {decimal(found.advantage)}"
        lines.append(f"its group: {len(rewards)} rewards, mean {decimal(mean)}{advantage}")
    return lines
