"""The beginning of a trajectory: its task or the prefix of another one, and its limits."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from rlf.rollout.builder import TokenRecord
from rlf.types.task import Task
from rlf.types.trajectory import Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one trajectory."""

    max_turns: int
    max_total_tokens: int
    max_new_tokens: int | None = None
    """Sampled tokens per turn; None: what is left of the total."""
    max_tool_calls: int | None = None
    max_images: int = 0
    """Images of the prompt and of results; those of a result that are over it are not shown."""
    max_parse_failures: int = 1
    """Failed turns answered by a corrective observation; the next failed turn ends the trajectory."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first turns of a trajectory that another one continues: tokens, log-probabilities and turns are kept."""

    trajectory: Trajectory
    num_turns: int
    """Turns that are kept, each of which was answered by an observation; 0 keeps the prompt alone."""
    is_trained: bool = True
    """Whether tokens that were sampled in it stay actions; else they are masked, as observations are."""
    replays_calls: bool = True
    """Whether its calls are made again first, so that tools are in the state they were in. Without that they must keep
    no state: it is the caller who declares so. Where there is a world they always are."""

    @classmethod
    def choices(cls, trajectory: Trajectory) -> range:
        """How many turns may be kept of a trajectory."""
        answered = (turn.observation_end > turn.end for turn in trajectory.turns)
        return range(sum(itertools.takewhile(bool, answered)) + 1)

    def __post_init__(self) -> None:
        kept = self.trajectory.turns[: self.num_turns]
        if len(kept) != self.num_turns or any(turn.observation_end == turn.end for turn in kept):
            raise ValueError(
                f"trajectory {self.trajectory.id}: a prefix of {self.num_turns} turns was asked for; it has "
                f"{len(self.trajectory.turns)}, and the prefix cannot include the last one. Keep fewer turns."
            )

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Those that are kept."""
        return self.trajectory.turns[: self.num_turns]

    def record(self) -> TokenRecord:
        """Its tokens: up to the end of the last observation, or of the prompt."""
        ends = [turn.observation_end for turn in self.turns]
        prompt_end = self.trajectory.turns[0].start if self.trajectory.turns else len(self.trajectory.tokens)
        return TokenRecord.of_prefix(self.trajectory, [prompt_end, *ends][-1], is_trained=self.is_trained)


@dataclass(frozen=True, slots=True)
class Rollout:
    """One trajectory to make."""

    id: str
    """Unique among the trajectories that a policy holds open."""
    task: Task
    sample_index: int
    seed: int
    """With the seed and the policy of the trajectory that a prefix is of, that trajectory is played again."""
    prefix: Prefix | None = None
    """What it continues from; None: it begins with the task's prompt."""
    is_single_turn: bool = False
    """Whether it is over after one turn, whose calls are made."""
