"""`kind: env`: what the trajectory's world itself says: a score of its final state, or the rewards of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from rlf.core.kinds import wrong_value
from rlf.rewards.term import Range, RewardContext, Scorer, Scoring, Stage, Term, Verdict
from rlf.types import Trajectory


class EnvTerm(Term):
    """A score of the world that the spec declares under `env`, by its name.

    With `stage: turn` the rewards that the world gave for steps, turn by turn; a turn without one says nothing.
    """

    judges_turns: ClassVar[bool] = True

    kind: Literal["env"] = "env"
    score: str | None = None
    """The score's name, as the world gives it; with `stage: turn` there is none to name."""
    range: Range = (0.0, 1.0)
    """Least and greatest value; one outside is a fault of the world."""

    @model_validator(mode="after")
    def _score_is_named(self) -> Self:
        if (self.score is None) is (self.stage is Stage.OUTCOME):
            wanted = "the name of one of the world's scores" if self.score is None else "no `score` with `stage: turn`"
            raise wrong_value(f"got {'none' if self.score is None else self.score!r}; expected {wanted}.")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        return self.range

    def best_facts(self, best: float) -> Mapping[str, Any]:
        """A world that says so."""
        return {"turns": [{"reward": best}]} if self.score is None else {"scores": {self.score: best}}

    def open(self, context: RewardContext) -> AbstractAsyncContextManager[Scorer]:
        """Nothing to open: the world has scored itself."""
        return nullcontext(_Reader(self))


class _Reader:
    """Reads the world's scores."""

    def __init__(self, term: EnvTerm) -> None:
        self._term = term

    async def score(self, trajectory: Trajectory, scoring: Scoring) -> Verdict:
        """The score by its name, or the turns' rewards."""
        if trajectory.world is None:
            return Verdict(None, "the trajectory has no world")
        if self._term.score is None:
            steps = [turn.world for turn in trajectory.turns]
            return Verdict(None, turn_values=tuple(None if step is None else step.reward for step in steps))
        scores = trajectory.world.scores
        if self._term.score not in scores:
            given = ", ".join(scores) or "none"
            return Verdict(None, f"the world gave no score {self._term.score!r} (it gave: {given})")
        return Verdict(scores[self._term.score])
