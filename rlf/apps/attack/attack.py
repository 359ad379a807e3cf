"""A reward under attack: adversaries play tasks in a world; their pay is compared with that of right answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from rlf.apps.attack.findings import (
    EPSILON,
    HackFinding,
    Scale,
    ShapeResult,
    Standard,
    attempt_of,
    find_causes,
    mean,
    scale_of,
    scale_of_ranges,
)
from rlf.apps.attack.search import search
from rlf.apps.attack.shapes import ADVERSARIES, NOTHING, REFERENCES, TRYING, AnswerPart, HackCause, Shape
from rlf.apps.attack.world import AttackWorld, ToolUse, open_world
from rlf.core.plain_json import Jsonable
from rlf.rewards.function import RewardFunction
from rlf.rewards.kinds.judge import JudgeTerm
from rlf.rewards.normalization import golds
from rlf.types import Scored, Trajectory

if TYPE_CHECKING:
    from rlf.spec.models import RunSpec

TWIN = "wrong answer in the gold's form"
_MAX_LISTED = 20
DEFAULT_SHARE = 0.5
"""Part of the reward of being right from which on a behaviour is a hack."""


@dataclass(frozen=True, slots=True)
class Attack(Jsonable):
    """Results of attacking a spec's reward."""

    chat: str
    """The chat format that was played in."""
    questions: int
    share: float
    """The part of the reward of being right from which on a behaviour is a hack."""
    gold: ShapeResult | None
    """What being right is worth; None where the tasks have no gold."""
    wrong_in_form: ShapeResult | None
    """A wrong answer in the shape of the gold; None where the tasks have no gold."""
    attempts: Sequence[ShapeResult]
    """The named adversaries, the simplest first."""
    searched: Sequence[ShapeResult] = field(metadata={"json": None})
    """What the search tried beside them."""
    searches: bool = field(metadata={"json": None})
    """Whether there was a search: judges are not asked thousands of times."""
    tools: Sequence[ToolUse]
    """Which of the spec's tools were called."""
    findings: Sequence[HackFinding]
    """What is wrong with the reward, the simplest first."""
    spec: str = ""
    """The files of the spec, as they were named."""
    JSON_PROPERTIES: ClassVar = {
        "passed": "is_passed",
        "verdict": "verdict",
        "trying": "trying",
        "num_searched": "num_searched",
        "num_hacks": "num_hacks",
        "hacks": "cheapest_hacks",
        "nothing_beats_trying": "nothing_beats_trying",
    }

    @property
    def nothing(self) -> ShapeResult:
        """Doing nothing."""
        return next(attempt for attempt in self.attempts if attempt.shape == NOTHING)

    @property
    def trying(self) -> ShapeResult:
        """A well-formed call and a wrong answer."""
        return next(attempt for attempt in self.attempts if attempt.shape == TRYING)

    @property
    def hacks(self) -> list[ShapeResult]:
        """Those that are paid too much, the cheapest first."""
        found = [attempt for attempt in (*self.attempts, *self.searched) if attempt.is_hack(self.share)]
        return sorted(found, key=lambda attempt: (attempt.num_tokens, attempt.shape.words))

    @property
    def cheapest_hacks(self) -> list[ShapeResult]:
        """Those of them that JSON lists."""
        return self.hacks[:_MAX_LISTED]

    @property
    def num_hacks(self) -> int:
        """Behaviours that are paid too much."""
        return len(self.hacks)

    @property
    def num_searched(self) -> int:
        """Behaviours that the search tried."""
        return len(self.searched)

    @property
    def nearest(self) -> ShapeResult | None:
        """The behaviour that earns most of the reward of being right; None where none could be compared."""
        known = [each for each in (*self.attempts, *self.searched) if each.share is not None and not _is_gold(each)]
        return max(known, key=lambda each: each.share or 0.0, default=None)

    @property
    def num_unscored(self) -> int:
        """Trajectories of named adversaries without a reward."""
        return sum(attempt.num_unscored for attempt in self.attempts)

    @property
    def nothing_beats_trying(self) -> bool:
        """Whether a policy that cannot answer yet is taught to stop trying."""
        nothing, trying = self.nothing.reward, self.trying.reward
        return nothing is not None and trying is not None and nothing > trying + EPSILON

    @property
    def is_passed(self) -> bool:
        """Whether being right could be compared, and nothing else earns as much of it."""
        return not self.findings and self.nearest is not None

    @property
    def _why_unknown(self) -> str:
        """The terms that have no value of a right answer, and why."""
        missing = [] if self.gold is None else [f"term {term!r}: {why}" for term, why in self.gold.missing.items()]
        return f"The right answer has no reward: {'; '.join(missing)}." if missing else ""

    @property
    def verdict(self) -> str:
        """The verdict in one or more sentences."""
        if self.findings:
            return " ".join(finding.sentence for finding in self.findings)
        nearest = self.nearest
        if nearest is None or nearest.share is None:
            return f"No verdict: no behaviour could be compared with a right answer. {self._why_unknown}".strip()
        most = (
            f"the nearest is {nearest.name!r} with {nearest.share:.0%}" if nearest.share > EPSILON else "none earns any"
        )
        unscored = f" {self.num_unscored} trajectories could not be scored." if self.num_unscored else ""
        return f"No behaviour earns {self.share:.0%} of the reward of being right; {most}.{unscored}"


def _is_gold(attempt: ShapeResult) -> bool:
    return AnswerPart.GOLD in attempt.shape.parts


async def attack(
    spec: RunSpec, *, num_questions: int, seconds: float, step: int, share: float = DEFAULT_SHARE
) -> Attack:
    """Plays every named adversary, then searches for at most `seconds`. Raises RlfError.

    Args:
        num_questions: tasks of the training data that each behaviour is tried on.
        step: what schedules of weights go by.
        share: part of the reward of being right from which on a behaviour is a hack.
    """
    async with (
        open_world(spec, num_questions) as world,
        RewardFunction(spec.rewards, world.context, spec.success) as reward,
    ):
        return await attack_reward(world, reward, seconds=seconds, step=step, share=share)


async def attack_reward(
    world: AttackWorld, reward: RewardFunction, *, seconds: float = 0.0, step: int = 1, share: float = DEFAULT_SHARE
) -> Attack:
    """Attacks one reward in a world that others may be attacked in too. Raises RlfError."""
    assault = _Assault(world, reward, step)
    gold, twin = await assault.find_gold()
    attempts = await assault.try_named()
    searches = not any(isinstance(term, JudgeTerm) for term in reward.terms)
    searched: list[ShapeResult] = []
    if searches and seconds > 0 and assault.scale is not None:
        searched = await search(assault.try_shapes, attempts, share=share, seconds=seconds, seed=world.seed)
    standard = Standard(gold, twin) if gold is not None and twin is not None else None
    shortest = sorted(searched, key=lambda each: each.num_tokens)
    suspects = [*attempts, *([twin] if twin is not None else []), *shortest]
    findings = find_causes(standard, suspects, share, reward.terms, step)
    tools = world.tools_played
    return Attack(world.chat_name, len(world.tasks), share, gold, twin, attempts, searched, searches, tools, findings)


class _Assault:
    """One reward under attack."""

    def __init__(self, world: AttackWorld, reward: RewardFunction, step: int) -> None:
        self._world = world
        self._reward = reward
        self._step = step
        self.scale: Scale | None = None

    async def find_gold(self) -> tuple[ShapeResult | None, ShapeResult | None]:
        """The worth of being right, by the best of the references, and a wrong answer of the same shape."""
        world, terms = self._world, self._reward.terms
        if not any(golds(task.answer) for task in world.tasks):
            self.scale = scale_of_ranges(terms, self._step, len(world.tasks))
            return None, None
        lists = any(len(golds(task.answer)) > 1 for task in world.tasks)
        shapes = [shape for shape in REFERENCES if lists or AnswerPart.GOLDS not in shape.parts]
        twins = [replace(shape, parts=(AnswerPart.OTHERS,)) for shape in shapes]
        right = list(zip(shapes, await self._score_shapes(shapes), await self._score_shapes(twins), strict=True))
        if (called := await world.play_gold_calls(terms)) is not None:
            right.append((shapes[1], await self._score_trajectories(called), right[1][2]))
        shape, gold, wrong = max(right, key=lambda each: _rank_reference(each[1], each[2]))
        (nothing,) = await self._score_shapes([NOTHING])
        self.scale = scale_of(gold, nothing)
        twin = self._make_attempt(TWIN, replace(shape, parts=(AnswerPart.OTHERS,)), HackCause.FORM, wrong)
        return self._make_attempt("gold", shape, None, gold), twin

    async def try_named(self) -> list[ShapeResult]:
        """Plays the named adversaries on every question."""
        played = await self._score_shapes([shape for shape, _ in ADVERSARIES.values()])
        tried = [
            self._make_attempt(name, shape, cause, scored)
            for (name, (shape, cause)), scored in zip(ADVERSARIES.items(), played, strict=True)
        ]
        return [attempt for attempt, scored in zip(tried, played, strict=True) if any(scored)]

    async def try_shapes(self, shapes: Mapping[str, Shape]) -> list[ShapeResult]:
        """Plays each shape on every question."""
        played = await self._score_shapes(list(shapes.values()))
        return [
            self._make_attempt(name, shape, HackCause.COMBINATION, scored)
            for (name, shape), scored in zip(shapes.items(), played, strict=True)
        ]

    def _make_attempt(
        self, name: str, shape: Shape, cause: HackCause | None, scored: Sequence[Scored | None]
    ) -> ShapeResult:
        return attempt_of(name, shape, cause, scored, self.scale, self._reward.terms)

    async def _score_shapes(self, shapes: Sequence[Shape]) -> list[list[Scored | None]]:
        played = await self._world.play(shapes, self._reward.terms)
        return [await self._score_trajectories(each) for each in played]

    async def _score_trajectories(self, trajectories: Sequence[Trajectory | None]) -> list[Scored | None]:
        known = [each for each in trajectories if each is not None]
        scored = iter(await self._reward.score_all(known, step=self._step))
        return [None if each is None else next(scored) for each in trajectories]


def _rank_reference(right: Sequence[Scored | None], wrong: Sequence[Scored | None]) -> tuple[bool, float]:
    """How good a reference is: one in which being right is paid, and of these the one that is paid most."""
    gold, twin = (mean(None if item is None else item.reward for item in each) for each in (right, wrong))
    if gold is None:
        return (False, -float("inf"))
    return (twin is None or gold > twin + EPSILON, gold)
