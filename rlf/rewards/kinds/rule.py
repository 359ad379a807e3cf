"""`kind: rule`: a formula over the trajectory alone, named by `rule:`. Options of the rule are keys beside it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rlf.core import Registry
from rlf.rewards.normalization import Normalization, destroyed, golds, normalize
from rlf.rewards.term import KnownSample, RewardContext, Scorer, Scoring, Stage, Term, Verdict
from rlf.types import Trajectory

if TYPE_CHECKING:
    from rlf.rewards.answers import Answer


class Rule(Term):
    """A term that needs nothing but the record: pure, quick, the same every time."""

    chosen_by: ClassVar[str] = "rule"
    sample: ClassVar[KnownSample | None] = None
    """Trajectories with known values, by which conformance is tested; None: the rule has none to show."""
    gold_advice: ClassVar[str] = "Write `rule: math`, `rule: regex` or `kind: python`."
    """What to do about golds that `read_gold` finds a fault in."""

    kind: Literal["rule"] = "rule"
    rule: str
    """The formula's name."""

    @abstractmethod
    def judge(self, trajectory: Trajectory) -> Verdict:
        """The verdict on a scorable trajectory as a whole."""

    def judge_turns(self, trajectory: Trajectory) -> Verdict:
        """The verdict turn by turn, None for a turn without what it scores; of rules that `judges_turns`."""
        raise NotImplementedError(f"{self.rule} scores whole trajectories only")

    def read_golds(self, answer: Any) -> Iterator[tuple[str, Answer]]:
        """The right answers of a task, with what the rule reads of each."""
        return ((gold, self.read_gold(gold)) for gold in golds(answer))

    def read_gold(self, gold: str) -> Answer:
        """What the rule compares with; `fault` is what `rlf check` warns of."""
        from rlf.rewards.answers import Answer

        by = getattr(self, "normalize", Normalization.TEXT)
        left = destroyed(gold, by) if hasattr(self, "normalize") else None
        return Answer("text", normalize(gold, by), fault="" if left is None else f"loses its meaning, as {left!r}")

    def verdict(self, trajectory: Trajectory, scoring: Scoring) -> Verdict:
        """The verdict by the declared stage; never waits."""
        return self.judge_turns(trajectory) if self.stage is Stage.TURN else self.judge(trajectory)

    async def score(self, trajectory: Trajectory, scoring: Scoring) -> Verdict:
        """The verdict: a rule is its own scorer."""
        return self.verdict(trajectory, scoring)

    def open(self, context: RewardContext) -> AbstractAsyncContextManager[Scorer]:
        return nullcontext(self)


def share_of(counts: tuple[int, int], words: str) -> Verdict:
    """Good calls of all calls as a share; 0 if nothing was called."""
    good, tried = counts
    return Verdict(good / tried, f"{good} of {tried} calls {words}") if tried else Verdict(0.0, "no call")


def shares_by_turn(counts: Iterable[tuple[int, int]]) -> Verdict:
    """The same turn by turn; None for a turn without a call."""
    return Verdict(None, turn_values=tuple(good / tried if tried else None for good, tried in counts))


RULES: Registry[Rule] = Registry(
    "rule",
    "rlf.rewards.rules",
    Rule,  # type: ignore[type-abstract]  # compared with, never instantiated
)
