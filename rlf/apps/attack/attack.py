"""A reward under attack: adversaries play tasks in a world; their pay is compared with that of right answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from rlf.apps.attack.findings import (
    EPSILON,
    WHOLE,
    HackFinding,
    Scale,
    ShapeResult,
    Standard,
    attempt_of,
    find_reward_faults,
    mean,
    noise_finding,
    scale_of,
    scale_of_ranges,
)
from rlf.apps.attack.reading import HOLE, Arc, LineWatch, read_terms
from rlf.apps.attack.search import Candidate, Search, read_forms, reward_shapes
from rlf.apps.attack.shapes import (
    ADVERSARIES,
    FORMS,
    GUESSES,
    NOTHING,
    TRYING,
    AnswerPart,
    Claim,
    HackCause,
    Shape,
    Words,
    in_form,
    references,
    twin_of,
)
from rlf.apps.attack.world import AttackWorld, ToolUse, open_world
from rlf.core.errors import RlfError
from rlf.core.plain_json import Jsonable
from rlf.rewards.answers import gold_text
from rlf.rewards.function import RewardFunction
from rlf.rewards.normalization import golds
from rlf.spec.models import RunSpec
from rlf.types import Scored, ScoreState, Task, Trajectory

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
        wrong = (each for each in (*self.attempts, *self.searched) if AnswerPart.GOLD not in each.shape.parts)
        return max((each for each in wrong if each.share is not None), key=lambda each: each.share or 0.0, default=None)

    @property
    def num_unscored(self) -> int:
        """Trajectories without a reward."""
        return sum(attempt.num_unscored for attempt in (*self.attempts, *self.searched))

    @property
    def sentinels(self) -> list[dict[str, Any]]:
        """Right answers and wrong ones, with labels, as `sentinels` of a judge takes them."""
        wrong = [each for each in self.attempts if each.shape.claim is Claim.WRONG]
        hacks = [each for each in self.hacks if each.shape.claim is Claim.NOTHING][:_MAX_LISTED]
        return [
            {
                "id": f"{each.name}/{at}",
                "question": question,
                "gold": gold,
                "answer": answer,
                "label": each is self.gold,
            }
            for each in (*([self.gold] if self.gold is not None else []), *wrong, *hacks)
            for at, (question, gold, answer) in enumerate(each.answers)
            if answer
        ]

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
        # What is made from the gold, such as a number near it, may earn a part of the reward.
        without = " without the gold" if nearest.share >= self.share else ""
        return f"No behaviour earns {self.share:.0%} of the reward of being right{without}; {most}.{unscored}"


async def attack(
    spec: RunSpec,
    *,
    num_questions: int,
    seconds: float,
    step: int,
    share: float = DEFAULT_SHARE,
    texts: Sequence[str] = (),
    tasks: Sequence[Task] | None = None,
) -> Attack:
    """Plays every named adversary, then searches for at most `seconds`. Raises RlfError.

    Args:
        num_questions: tasks that each behaviour is tried on.
        step: what schedules of weights go by.
        share: part of the reward of being right from which on a behaviour is a hack.
        texts: answers that are tried beside those that are read and made, e.g. what a model wrote.
        tasks: from which these are drawn; None: the training data's.
    """
    async with (
        open_world(spec, num_questions, tasks) as world,
        RewardFunction(spec.rewards, world.context, spec.success) as reward,
    ):
        return await attack_reward(world, reward, seconds=seconds, step=step, share=share, texts=texts)


async def attack_reward(
    world: AttackWorld,
    reward: RewardFunction,
    *,
    seconds: float = 0.0,
    step: int = 1,
    share: float = DEFAULT_SHARE,
    texts: Sequence[str] = (),
) -> Attack:
    """Attacks one reward in a world that others may be attacked in too. Raises RlfError."""
    assault = _Assault(world, reward, step, share)
    gold, twin = await assault.find_gold()
    attempts = await assault.try_named()
    noise = await assault.find_noise(attempts)
    searched = await assault.search(attempts, texts, seconds) if assault.scale is not None else []
    standard = Standard(gold, twin) if gold is not None and twin is not None else None
    shortest = sorted(searched, key=lambda each: each.num_tokens)
    suspects = [*attempts, *([twin] if twin is not None else []), *shortest]
    findings = find_reward_faults(standard, suspects, share, reward.terms, step)
    findings = [replace(each, lines=assault.lines_of(each.attempt)) for each in findings] + noise
    tools = world.tools_played
    return Attack(
        world.chat_name, len(world.tasks), share, gold, twin, attempts, searched, assault.searches, tools, findings
    )


class _Assault:
    """One reward under attack."""

    def __init__(self, world: AttackWorld, reward: RewardFunction, step: int, share: float) -> None:
        self._world = world
        self._reward = reward
        self._step = step
        self._share = share
        self._reading = read_terms(reward.terms)
        self._watch = LineWatch(reward.terms)
        self._references = [NOTHING]
        """The right answer in the form that is paid most, then in others that are paid like it."""
        self._arcs: dict[Shape, frozenset[Arc]] = {}
        self._known_arcs: set[Arc] = set()
        self._news: dict[Shape, int] = {}
        self._num_late = 0
        self.searches = all(term.best_is_known for term in reward.terms)
        self.scale: Scale | None = None

    async def find_gold(self) -> tuple[ShapeResult | None, ShapeResult | None]:
        """The worth of being right, by the best of the references, and a wrong answer of the same shape."""
        world, terms = self._world, self._reward.terms
        if not any(golds(task.answer) for task in world.tasks):
            self.scale = scale_of_ranges(terms, self._step, len(world.tasks))
            return None, None
        lists = any(len(golds(task.answer)) > 1 for task in world.tasks)
        right = await self._score_references(references(list(FORMS.values()), lists=lists))
        if (called := await world.play_gold_calls(terms)) is not None:
            shape, _, wrong = right[1]
            right.append((shape, await self._score_trajectories(called), wrong))
        if self.searches and not any(_rank_reference(gold, twin)[0] for _, gold, twin in right):
            for pattern in self._watch.patterns:
                self._reading.patterns.setdefault(pattern, "a pattern that is put together")
            forms = read_forms(self._reading)
            asked = references(forms, lists=lists) + references([HOLE], lists=lists, num_calls=(2, 3))
            formed = await self._score_references(asked)
            right += [each for each in formed if _is_mostly_paid(each)]
        shape, gold, wrong = max(right, key=lambda each: _rank_reference(each[1], each[2]))
        (nothing,) = await self._score_shapes([NOTHING])
        rank, others = _rank_reference(gold, wrong), sorted(right, key=lambda each: each[0].num_turns)
        like = [each[0] for each in others if rank[0] and _rank_reference(each[1], each[2]) >= (True, rank[1] * WHOLE)]
        shapes_by_form = {each.form: each for each in (*reversed(like), shape)}
        self._references = sorted(shapes_by_form.values(), key=lambda each: each is not shape)[:_MAX_FORMS]
        self.scale = scale_of(gold, wrong, nothing)
        self.scale = replace(self.scale, hedged=await self._find_hedged(self.scale))
        twin = self._make_attempt(TWIN, twin_of(shape), HackCause.FORM, wrong)
        return self._make_attempt("gold", shape, None, gold), twin

    async def _score_references(self, pairs: Sequence[tuple[Shape, Shape]]) -> list[_Reference]:
        right = await self._score_shapes([shape for shape, _ in pairs])
        wrong = await self._score_shapes([twin for _, twin in pairs])
        return [(shape, *each) for (shape, _), each in zip(pairs, zip(right, wrong, strict=True), strict=True)]

    async def _find_hedged(self, scale: Scale) -> frozenset[int]:
        """The questions on which the right answer among wrong ones is paid like the right one."""
        hedges = [shape for shape, _ in ADVERSARIES.values() if shape.claim is Claim.SEVERAL]
        hedges += [made for shape in hedges for made in self._in_forms(shape)]
        played = await self._score_shapes(hedges)
        return frozenset(
            at
            for each in played
            for at, item in enumerate(each)
            if item is not None and item.reward is not None and (worth := scale.worth(at)) is not None
            if (item.reward - scale.base[at]) / worth >= WHOLE
        )

    def _in_forms(self, shape: Shape) -> list[Shape]:
        """A shape in the form of the right answer; wrong answers, and several, in each form that is paid like it."""
        is_read = shape.claim is Claim.SEVERAL or shape == Shape(parts=(AnswerPart.OTHERS,))
        made = (in_form(shape, each) for each in self._references[: None if is_read else 1])
        return [each for each in made if each is not None]

    async def try_named(self) -> list[ShapeResult]:
        """Plays the named adversaries on every question, and those that answer in the form of the right answer too."""
        named = dict(ADVERSARIES)
        for name, (shape, cause) in ADVERSARIES.items():
            for made in self._in_forms(shape):
                form = "in form" if made.form == self._references[0].form else made.words
                named[f"{name}, {form}"] = (made, cause)
        played = await self._score_shapes([shape for shape, _ in named.values()])
        tried = [
            self._make_attempt(name, shape, cause, scored)
            for (name, (shape, cause)), scored in zip(named.items(), played, strict=True)
        ]
        return [attempt for attempt, scored in zip(tried, played, strict=True) if any(scored)]

    async def find_noise(self, attempts: Sequence[ShapeResult]) -> list[HackFinding]:
        """Scores what was scored before once more: its value must be the same."""
        if not self.searches:
            return []
        shapes = [each.shape for each in attempts]
        played = [item for each in await self._world.play(shapes, self._reward.terms) for item in each if item]
        first, again = [await self._score_trajectories(played) for _ in range(2)]
        for one, other in zip(first, again, strict=True):
            if one is None or other is None:
                continue
            for before, after in zip(one.scores, other.scores, strict=True):
                if before.value is not None and after.value is not None and abs(before.value - after.value) > 1e-6:
                    return [noise_finding(before.term, before.value, after.value)]
        return []

    async def search(self, attempts: Sequence[ShapeResult], texts: Sequence[str], seconds: float) -> list[ShapeResult]:
        """Tries what the reward says of itself, then combinations for some seconds; the best is made short."""
        read = [(Shape(parts=(Words(text, "what the model wrote"),)), HackCause.WORDING) for text in texts]
        read += reward_shapes(self._reading)
        if not self.searches:
            return await self._try_shapes([each for each in read if each[1] is HackCause.WORDING][:_MAX_JUDGED])
        found = await self._try_shapes(read)
        words = dict.fromkeys(part for each in found if self._is_telling(each) for part in each.shape.parts)
        pool = [*(part for part in AnswerPart if part in GUESSES), *words]
        search = Search(self._try_shapes, lambda shape: self._news.get(shape, 0), self._share, self._world.seed, pool)
        if seconds > 0:
            found += await search.run([*attempts, *found], seconds)
        hacks = sorted((each for each in found if each.is_hack(self._share)), key=lambda each: each.num_tokens)
        if hacks and not any(each.is_hack(self._share) for each in attempts):
            found.append(await search.shorten(hacks[0]))
        return found

    def _is_telling(self, result: ShapeResult) -> bool:
        """Whether the reward takes notice of a text: it is paid, or runs a line that others do not."""
        return len(result.shape.parts) == 1 and (bool(result.share) or self._news.get(result.shape, 0) > 0)

    async def _try_shapes(self, shapes: Sequence[Candidate]) -> list[ShapeResult]:
        """Plays each shape on two questions, and on every one where these show anything."""
        results, deadline = list[ShapeResult](), time.monotonic() + _MAX_READ_S
        few = range(min(_NUM_FIRST, len(self._world.tasks)))
        for at in range(0, len(shapes), _BATCH):
            batch = shapes[at : at + _BATCH]
            played = await self._world.play([shape for shape, _ in batch], self._reward.terms, few)
            for (shape, cause), trajectories in zip(batch, played, strict=True):
                result = self._make_attempt(shape.words, shape, cause, await self._score_played(shape, trajectories))
                if (result.share or 0.0) >= _PROMISING or (result.num_counted < len(few) and result.reward):
                    (scored,) = await self._score_shapes([shape])
                    result = self._make_attempt(shape.words, shape, cause, scored)
                results.append(result)
            if time.monotonic() > deadline or self._num_late >= _MAX_LATE:
                break
        return results

    def _make_attempt(
        self, name: str, shape: Shape, cause: HackCause | None, scored: Sequence[Scored | None]
    ) -> ShapeResult:
        return attempt_of(name, shape, cause, scored, self.scale, self._reward.terms)

    async def _score_shapes(self, shapes: Sequence[Shape]) -> list[list[Scored | None]]:
        played = await self._world.play(shapes, self._reward.terms)
        return [await self._score_played(shape, each) for shape, each in zip(shapes, played, strict=True)]

    async def _score_played(self, shape: Shape, played: Sequence[Trajectory | None]) -> list[Scored | None]:
        """Scores a shape, and remembers the lines of own functions that it is the first to run."""
        self._watch.arcs.clear()
        scored = await self._score_trajectories(played)
        self._arcs[shape] = frozenset(self._watch.arcs)
        self._news[shape] = len(self._watch.arcs - self._known_arcs)
        self._known_arcs |= self._watch.arcs
        return scored

    async def _score_trajectories(self, trajectories: Sequence[Trajectory | None]) -> list[Scored | None]:
        """Scores them one after the other, so that it is known what runs for which; judges are asked all at once.

        After one that a term gives no value for in time the others are left out. Raises RlfError where that happens
        again and again before it is known what being right is worth.
        """
        if not self.searches:
            known = [each for each in trajectories if each is not None]
            scored = iter(await self._reward.score_all(known, step=self._step))
            return [None if each is None else next(scored) for each in trajectories]
        results, late = list[Scored | None](), ""
        with self._watch.tracing():
            for each in trajectories:
                if each is None or late or self._num_late >= _MAX_LATE:
                    results.append(None)
                    continue
                self._watch.gold = gold_text(each.task)
                results.append(await self._reward.score(each, step=self._step))
                late = self._why_late(results[-1])
        self._num_late += bool(late)
        if late and self._num_late >= _MAX_LATE and self.scale is None:
            raise RlfError(f"{late}, on {self._num_late} answers. Make it end on any text, or shorten its `timeout_s`.")
        return results

    def _why_late(self, scored: Scored | None) -> str:
        """The term that gave no value in time, and its reason; empty where each gave one."""
        late = [] if scored is None else [each for each in scored.scores if each.state is ScoreState.UNANSWERED]
        return f"term {late[0].term!r}: {late[0].reason}" if late else ""

    def lines_of(self, attempt: ShapeResult | None) -> tuple[str, ...]:
        """The lines of own functions that a behaviour runs and the right answer does not."""
        if attempt is None:
            return ()
        honest = self._arcs.get(self._references[0], frozenset())
        arcs = sorted(self._arcs.get(attempt.shape, frozenset()) - honest)
        return tuple(dict.fromkeys(f"{Path(file).name}:{line}" for file, _, line in arcs))[:_MAX_LINES]


_Reference = tuple[Shape, list[Scored | None], list[Scored | None]]
_NUM_FIRST = 2
_BATCH = 32
_PROMISING = 0.2
"""Share from which a shape is played on every question."""
_MAX_FORMS = 5
_MAX_JUDGED = 12
"""Shapes of the search that judges are asked about."""
_MAX_LATE = 3
"""Trajectories that a term may run out of time on before no more are tried."""
_MAX_READ_S = 30.0
"""Time for the shapes that are read, and for those of one generation: more than they need but with slow terms."""
_MAX_LINES = 3


def _is_mostly_paid(reference: _Reference) -> bool:
    """Whether being right is paid on most questions: with many forms one may suit some golds by their length."""
    pairs = zip(reference[1], reference[2], strict=True)
    known = [(gold.reward, twin.reward) for gold, twin in pairs if gold is not None and twin is not None]
    better = sum(gold is not None and twin is not None and gold > twin + EPSILON for gold, twin in known)
    return 2 * better > len(known)


def _rank_reference(right: Sequence[Scored | None], wrong: Sequence[Scored | None]) -> tuple[bool, float]:
    """How good a reference is: one in which being right is paid, and of these the one that is paid most."""
    gold, twin = (mean(None if item is None else item.reward for item in each) for each in (right, wrong))
    if gold is None:
        return (False, -float("inf"))
    return (twin is None or gold > twin + EPSILON, gold)
