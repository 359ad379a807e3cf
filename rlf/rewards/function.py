"""The reward: R = sum of weight_i * value_i over the terms, or none when one of them cannot say.

    value_i = clip_i(scale_i * v_i),  v_i what the term says, within its bounds;
    weight_i = the declared weight at the step; 0 where a gate is closed or the term is dropped;
    if a required term falls short: R = sum of min(0, weight_i * value_i).

Unscorable is a third thing beside good and bad: such a trajectory is recorded and stays out of group and loss. A term
is dropped only where another one with a weight has a value: a sum of nothing is no reward, and never 0. It is dropped
for all trajectories that are compared (`settle`). The terms of one trajectory are asked side by side, each as soon as
those it reads have answered; rules at once.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from statistics import fmean
from time import perf_counter
from typing import Any, Self

from rlf.core import RlfError, RunError
from rlf.core.callables import locate
from rlf.core.redact import clean
from rlf.core.text import describe
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.normalization import golds
from rlf.rewards.term import (
    Gate,
    GroupScorer,
    RewardContext,
    Scorer,
    Scoring,
    Stage,
    StatefulScorer,
    Success,
    Term,
    Unscorable,
    Verdict,
    complaints,
    in_order,
)
from rlf.types import Score, Scored, ScoreState, ScoreUsage, Trajectory

logger = logging.getLogger(__name__)

_MAX_REASON_CHARS = 500
_MAX_KEPT_CHARS = 4096
"""Longest reason that is stored, one for each score."""


class RewardFunction:
    """The declared terms, in order. To be entered before it scores."""

    def __init__(self, terms: Sequence[Term], context: RewardContext, success: Success | None = None) -> None:
        """Prepares every term.

        Args:
            success: what counts as success; None: the value of the first term.

        Raises:
            RlfError: a term cannot be used.
        """
        assert terms, "a reward without terms"
        repeated = [name for name, count in Counter(term.name for term in terms).items() if count > 1]
        if repeated:
            raise RlfError(f"rewards: {repeated[0]!r} names two terms; give each term a name of its own")
        wrong = [f"{'.'.join((terms[at].name, *key))}: {message}" for at, key, message in complaints(terms)]
        if wrong:
            raise RlfError("\n".join(f"rewards.{line}" for line in wrong))
        for term in terms:
            term.prepare()
        self.terms = tuple(terms)
        self._order = in_order(terms)
        self._context = context
        self._success = success
        self._bounds = {term.name: term.bounds for term in terms}
        self._thresholds = {term.name: term.threshold for term in terms if term.threshold is not None}
        self._scorers: dict[str, Scorer] = {}
        self._state: dict[str, dict[str, Any]] = {}

    def state(self) -> dict[str, dict[str, Any]]:
        """The terms' counts by name, as JSON has them; after the reward is closed, those at its end."""
        stateful = {name: each for name, each in self._scorers.items() if isinstance(each, StatefulScorer)}
        return self._state | {name: each.state() for name, each in stateful.items()}

    def restore(self, state: Mapping[str, dict[str, Any]]) -> None:
        """Lets terms continue from a `state` when they are opened."""
        self._state = dict(state)

    async def __aenter__(self) -> Self:
        """Opens every term. Raises RlfError."""
        async with AsyncExitStack() as stack:
            for term in self.terms:
                logger.info("reward term %s begins: %s", term.name, type(term).__name__)
                scorer = await stack.enter_async_context(term.open(self._context))
                if isinstance(scorer, StatefulScorer) and term.name in self._state:
                    scorer.restore(self._state[term.name])
                self._scorers[term.name] = scorer
            self._stack = stack.pop_all()
        self._opened_at, self._num_scored = perf_counter(), 0
        return self

    async def __aexit__(self, *_: object) -> None:
        self._state = self.state()
        self._scorers.clear()
        await self._stack.aclose()
        names, took_s = ", ".join(term.name for term in self.terms), perf_counter() - self._opened_at
        logger.info("reward terms done: %s, %d trajectories scored, %.1f s", names, self._num_scored, took_s)

    async def score(self, trajectory: Trajectory, *, step: int, group_size: int = 1) -> Scored:
        """Every term's score and the reward; an unscorable trajectory has neither.

        Args:
            step: the step that the trajectory is for, from 1; for an evaluation the updates before it.
            group_size: rollouts of its task that are scored, all at once: a term that compares them waits for them.

        Raises:
            RunError: a term cannot continue for a reason outside the trajectory.
        """
        if not trajectory.scorable:
            for scorer in self._scorers.values():
                if isinstance(scorer, GroupScorer):
                    scorer.leave(trajectory, Scoring(step, {}, group_size))
            return Scored(trajectory, scores=(), reward=None, success=None)
        results = await self._ask_terms(trajectory, step, group_size)
        self._num_scored += 1
        is_any_left = any(results[term.name].value is not None and term.weight_at(step) for term in self.terms)
        scores = [_make_score(term, results[term.name], step, may_drop=is_any_left) for term in self.terms]
        valued = ((name, results[name].value, least) for name, least in self._thresholds.items())
        failed = next((name for name, value, least in valued if value is not None and value < least), None)
        if failed is not None:
            scores = [_without_gain(score, failed) for score in scores]
        return Scored(trajectory, tuple(scores), weighted_sum(scores), success=self._find_success(results))

    def _find_success(self, results: Mapping[str, _TermResult]) -> float | None:
        name = self.terms[0].name if self._success is None else self._success.term
        value = results[name].value
        return value if value is None or self._success is None else self._success.of(value, self._bounds[name])

    def settle(self, scored: Sequence[Scored], *, step: int) -> list[Scored]:
        """The trajectories with equal sums within each group: a term that is dropped for one is dropped for all of it.

        Otherwise those whose term works would be compared with those whose term does not, and a right answer could
        have less than a wrong one for a failure that is none of its own. Settling again changes nothing. Trajectories
        without a reward are no part of their group and decide nothing.

        Args:
            scored: of any groups; those with a reward of one task are one group.
        """
        dropped: defaultdict[str, Counter[str]] = defaultdict(Counter)
        sizes: Counter[str] = Counter()
        for item in scored:
            if item.reward is not None:
                sizes[item.trajectory.task.id] += 1
                dropped[item.trajectory.task.id].update(score.term for score in item.scores if score.is_dropped)
        return [
            self._without_terms(item, dropped[item.trajectory.task.id], sizes[item.trajectory.task.id], step)
            if dropped[item.trajectory.task.id] and item.reward is not None
            else item
            for item in scored
        ]

    def _without_terms(self, item: Scored, dropped: Mapping[str, int], size: int, step: int) -> Scored:
        """A trajectory of a group that some terms are left out of, named with how often each has no value."""
        weight_by_term = {term.name: term.weight_at(step) for term in self.terms}
        scores = tuple(
            replace(
                score,
                weight=0.0,
                reason=f"{score.reason}; left out: {dropped[score.term]} of its group's {size} have no value".lstrip(
                    "; "
                ),
            )
            if score.term in dropped and score.value is not None and score.weight
            else score
            for score in item.scores
        )
        is_any_left = any(
            score.value is not None and weight_by_term[score.term] and score.term not in dropped for score in scores
        )
        return replace(item, scores=scores, reward=weighted_sum(scores) if is_any_left else None)

    async def score_all(self, trajectories: Iterable[Trajectory], *, step: int) -> list[Scored]:
        """Scores many at once, in the order given. Raises RunError, and gives the others up."""
        all_ = list(trajectories)
        sizes = Counter(trajectory.task.id for trajectory in all_)
        try:
            async with asyncio.TaskGroup() as group:
                scoring = [
                    group.create_task(self.score(each, step=step, group_size=sizes[each.task.id])) for each in all_
                ]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        return [task.result() for task in scoring]

    async def _ask_terms(self, trajectory: Trajectory, step: int, group_size: int) -> Mapping[str, _TermResult]:
        """The result of each term. Rules answer here and now, the others in tasks of their own."""
        assert self._scorers, "score outside `async with`"
        asking = _Asking(trajectory, step, group_size, self._bounds)
        later: list[tuple[Term, Scorer]] = []
        for term in self._order:
            scorer = self._scorers[term.name]
            if isinstance(scorer, Rule) and not later:
                asking.ask_rule(term, scorer)
            else:
                later.append((term, scorer))
        if later:
            await asking.ask_later(later)
        return asking.results


def weighted_sum(scores: Sequence[Score]) -> float | None:
    """sum(weight * value); None if a value that counts is missing or the sum is not a finite number."""
    reward = 0.0
    for score in scores:
        if score.value is None and score.weight:
            return None
        reward += score.contribution
    return reward if math.isfinite(reward) else None


@dataclass(slots=True)
class _TermResult:
    """Result of a term, before scale and clip."""

    value: float | None
    state: ScoreState
    reason: str
    elapsed_s: float = 0.0
    turn_values: tuple[float | None, ...] | None = None
    usage: ScoreUsage | None = None


class _Asking:
    """The terms' answers on one trajectory."""

    def __init__(
        self, trajectory: Trajectory, step: int, group_size: int, bounds: Mapping[str, tuple[float, float]]
    ) -> None:
        self.trajectory = trajectory
        self.step = step
        self.group_size = group_size
        self.bounds = bounds
        self.results: dict[str, _TermResult] = {}

    def ask_rule(self, term: Term, rule: Rule) -> None:
        """Asks a rule whose terms have all answered."""
        started = perf_counter()
        result = self._why_unasked(term)
        if result is None:
            try:
                result = self._check_verdict(term, rule.verdict(self.trajectory, self._make_scoring(term)))
            except (Exception, SystemExit) as fault:  # noqa: BLE001 - a rule may be anybody's code
                result = _make_fault_result(fault)
        self._keep(term, result, started)

    async def ask_later(self, terms: Sequence[tuple[Term, Scorer]]) -> None:
        """Asks terms side by side, each when those it reads have answered. Raises RunError."""
        answered = {term.name: asyncio.Event() for term, _ in terms}

        async def ask(term: Term, scorer: Scorer) -> None:
            for name in sorted(term.reads.keys() & answered.keys()):
                await answered[name].wait()
            await self._ask_term(term, scorer)
            answered[term.name].set()

        try:
            async with asyncio.TaskGroup() as group:
                for term, scorer in terms:
                    group.create_task(ask(term, scorer))
        except ExceptionGroup as failures:
            run_errors = failures.subgroup(RunError)
            raise (run_errors or failures).exceptions[0] from failures

    async def _ask_term(self, term: Term, scorer: Scorer) -> None:
        started = perf_counter()
        result = self._why_unasked(term)
        if result is not None and isinstance(scorer, GroupScorer):
            scorer.leave(self.trajectory, self._make_scoring(term))
        if result is None:
            try:
                result = self._check_verdict(term, await scorer.score(self.trajectory, self._make_scoring(term)))
            except RunError:
                raise
            except (Exception, SystemExit) as fault:  # noqa: BLE001 - a term may be anybody's code
                result = _make_fault_result(fault)
        self._keep(term, result, started)

    def _keep(self, term: Term, result: _TermResult, started: float) -> None:
        """Keeps a term's result, its words valid and bounded whatever they are."""
        result.reason = clean(result.reason[:_MAX_KEPT_CHARS])
        result.elapsed_s = perf_counter() - started
        self.results[term.name] = result

    def _make_scoring(self, term: Term) -> Scoring:
        return Scoring(self.step, {name: self.results[name].value for name in term.reads}, self.group_size)

    def _why_unasked(self, term: Term) -> _TermResult | None:
        """Why the term is not to be asked; None when it is."""
        if not term.is_asked_about(self.trajectory.task.id):
            return _TermResult(None, ScoreState.GATED, f"not computed: it is asked about one task in {term.every}")
        closed = None if term.when is None else self._why_closed(term, term.when)
        if closed is None and term.needs_answer and not golds(self.trajectory.task.answer):
            return _TermResult(None, ScoreState.UNSCORABLE, f"task {self.trajectory.task.id} has no gold answer")
        return closed

    def _missing(self, term: Term) -> ScoreState:
        """The state of a term that has no value: of another's outage where it reads that one's value."""
        is_passing = any(self.results[name].state.may_pass for name in term.reads)
        return ScoreState.UNANSWERED if is_passing else ScoreState.UNSCORABLE

    def _why_closed(self, term: Term, gate: Gate) -> _TermResult | None:
        """The result of a term behind a closed gate; None when the gate is open."""
        other = self.results[gate.term]
        if other.state is ScoreState.GATED:
            return _TermResult(None, ScoreState.GATED, f"not computed: neither was {gate.term!r}")
        if other.value is None:
            why = f"its gate cannot be decided: {gate.term!r} has no value: {other.reason}"
            return _TermResult(None, self._missing(term), why)
        least = gate.at_least
        if least is None:
            least = self.bounds[gate.term][1] if gate.at_most is None else -math.inf
        if other.value < least:
            return _TermResult(
                None, ScoreState.GATED, f"not computed: {gate.term!r} is {other.value:g}, below {least:g}"
            )
        if gate.at_most is not None and other.value > gate.at_most:
            return _TermResult(
                None, ScoreState.GATED, f"not computed: {gate.term!r} is {other.value:g}, above {gate.at_most:g}"
            )
        return None

    def _check_verdict(self, term: Term, verdict: Verdict) -> _TermResult:
        """A verdict that keeps the term's promises, or its fault."""
        value, reason, turn_values, usage, is_unanswered = verdict
        low, high = self.bounds[term.name]
        if term.stage is Stage.TURN and turn_values is not None:
            if len(turn_values) != len(self.trajectory.turns):
                words = f"{len(turn_values)} values for {len(self.trajectory.turns)} turns"
                return _TermResult(None, ScoreState.FAULT, words)
            given = [each for each in turn_values if each is not None]
            outside = [each for each in given if not low <= each <= high]
            value = outside[0] if outside else fmean(given) if given else 0.0
        else:
            turn_values = None
        if value is None:
            state = ScoreState.UNANSWERED if is_unanswered else self._missing(term)
            return _TermResult(None, state, reason, usage=usage)
        if not math.isfinite(value):
            return _TermResult(None, ScoreState.FAULT, f"{value} is not a finite number")
        if not low <= value <= high:
            return _TermResult(None, ScoreState.FAULT, f"{value:g} is outside the term's range [{low:g}, {high:g}]")
        return _TermResult(value, ScoreState.SCORED, reason, turn_values=turn_values, usage=usage)


def _make_fault_result(error: BaseException) -> _TermResult:
    where, missing = locate(error)
    state = ScoreState.GONE if missing else ScoreState.FAULT
    return _TermResult(None, state, describe(error)[:_MAX_REASON_CHARS] + where + missing)


def _make_score(term: Term, result: _TermResult, step: int, *, may_drop: bool) -> Score:
    """A term's result as it counts.

    Args:
        may_drop: whether the reward is a sum also without the term.
    """
    weight = term.weight_at(step)
    if result.value is None:
        dropped = result.state is ScoreState.GATED or (may_drop and term.unscorable is Unscorable.DROP_TERM)
        return Score(
            term.name,
            None,
            0.0 if dropped else weight,
            result.reason,
            result.elapsed_s,
            result.state,
            usage=result.usage,
        )
    value, turn_values = term.counted(result.value), None
    if result.turn_values is not None:
        turn_values = tuple(None if each is None else term.counted(each) for each in result.turn_values)
        given = [each for each in turn_values if each is not None]
        value = fmean(given) if given else 0.0
    return Score(term.name, value, weight, result.reason, result.elapsed_s, result.state, turn_values, result.usage)


def _without_gain(score: Score, failed: str) -> Score:
    """A score where a required term fell short: what it would add is lost, what it takes away stays."""
    if score.contribution <= 0:
        return score
    reason = f"{score.reason}; set to 0, since {failed!r} is required".removeprefix("; ")
    return replace(score, weight=0.0, reason=reason)
