"""An open judge: from trajectories to questions, from replies to a verdict."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any, TypeAlias

from rlf.apps.judges.drift import Watchman
from rlf.apps.judges.panel import Panel, Question, Reply, Votes
from rlf.apps.judges.prompts import (
    FencedTemplate,
    UnreadableReply,
    candidate_values,
    gold_values,
    images_of,
    json_object,
    mean_verdict,
    ranking_of,
    reply_text,
    score_of,
    system_text,
    tagged,
    task_values,
    whole_number,
)
from rlf.apps.judges.settings import Combine, Compare, Judging, Read
from rlf.core.clocks import within
from rlf.core.identity import derive_seed
from rlf.endpoints.openai import image_part, text_part
from rlf.rewards.term import Scoring, Verdict
from rlf.types import Image, ScoreUsage, Trajectory

# The rollouts of a task brought together for a verdict on all of them. Each waits for its own group only.

JudgeGroup: TypeAlias = Callable[[Sequence[Trajectory]], Awaitable[Mapping[str, Verdict]]]
"""Verdicts on the members of a group, by trajectory id."""


class Gathering:
    """Groups under way, by key. A group is judged once, when all its members have come or left, or time is up."""

    def __init__(self, judge: JudgeGroup, timeout_s: float) -> None:
        self._judge = judge
        self._timeout_s = timeout_s
        self._groups: dict[tuple[int, str], _Group] = {}

    async def join(self, key: tuple[int, str], size: int, trajectory: Trajectory) -> Verdict:
        """The verdict on a member, once its group is judged.

        One that comes after the time of its group was up is in a group with those that come later still.
        """
        group = self._groups.setdefault(key, _Group(size))
        group.members.append(trajectory)
        group.num_waiting += 1
        self._close_if_full(key, group)
        try:
            try:
                with within(self._timeout_s):
                    await group.closed.wait()
            except TimeoutError:
                self._close_group(key, group)
            assert group.verdicts is not None, "a closed group is being judged"
            return (await asyncio.shield(group.verdicts))[trajectory.id]
        finally:
            group.num_waiting -= 1
            if group.verdicts is not None and not group.num_waiting:
                group.verdicts.cancel()

    def leave(self, key: tuple[int, str], size: int) -> None:
        """Reports that a member will not come."""
        group = self._groups.setdefault(key, _Group(size))
        group.size -= 1
        self._close_if_full(key, group)

    def _close_if_full(self, key: tuple[int, str], group: _Group) -> None:
        if len(group.members) >= group.size:
            self._close_group(key, group)

    def _close_group(self, key: tuple[int, str], group: _Group) -> None:
        if group.closed.is_set():
            return
        del self._groups[key]
        group.closed.set()
        if group.num_waiting:
            group.verdicts = asyncio.ensure_future(self._judge(group.members))


class _Group:
    """Those who have come so far."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.members: list[Trajectory] = []
        self.num_waiting = 0
        """Members whose scoring was not cancelled; without any the group is not judged further."""
        self.closed = asyncio.Event()
        self.verdicts: asyncio.Future[Mapping[str, Verdict]] | None = None


_NO_ANSWER = "no answer was given; no judge is asked"
_WINNERS: Mapping[str, float] = {"a": 1.0, "b": 0.0, "tie": 0.5}
_MAX_REASON_CHARS = 500


_NO_USAGE = ScoreUsage()


def _verdict(value: float | None, reason: str, usage: ScoreUsage | None = _NO_USAGE) -> Verdict:
    """The judges' combined result; without a value they did not give one."""
    return Verdict(value, reason[:_MAX_REASON_CHARS], usage=usage, is_unanswered=value is None)


class JudgeScorer:
    """Scores with a panel."""

    def __init__(
        self, judging: Judging, panel: Panel, watchman: Watchman | None, seed: int, tokens: frozenset[str] = frozenset()
    ) -> None:
        """Takes what is asked of whom, who watches the judges, and their special tokens, where they are known."""
        self._judging, self._panel, self._watchman, self._seed = judging, panel, watchman, seed
        self._template = FencedTemplate(judging.template, tokens)
        self._gathering = Gathering(self._judge_group, judging.group_timeout_s)

    def state(self) -> dict[str, Any]:
        """The counts of the sentinels; empty without any."""
        return {} if self._watchman is None else self._watchman.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a `state`; without sentinels now, it is left."""
        if self._watchman is not None and state:
            self._watchman.restore(state)

    async def score(self, trajectory: Trajectory, scoring: Scoring) -> Verdict:
        """The verdict, with a sentinel judged beside it now and then."""
        watchman = self._watchman
        if watchman is None:
            return await self._judge_trajectory(trajectory, scoring)
        sentinel = watchman.sentinel(trajectory.id, scoring.step)
        kappa, tried = watchman.kappa, _NO_USAGE
        if watchman.frozen is not None:
            return Verdict(None, watchman.frozen)
        if sentinel is None:
            verdict = await self._judge_trajectory(trajectory, scoring)
        else:
            verdict, result = await asyncio.gather(
                self._judge_trajectory(trajectory, scoring), self.judge_alone(sentinel.trajectory, fresh=True)
            )
            tried = result.usage or _NO_USAGE
            if result.value is not None:
                watchman.observe(result.value, sentinel)
        usage = replace((verdict.usage or _NO_USAGE) + tried, kappa=kappa)
        if watchman.frozen is not None:  # meanwhile
            return Verdict(None, watchman.frozen, usage=usage)
        return verdict._replace(usage=usage)

    def leave(self, trajectory: Trajectory, scoring: Scoring) -> None:
        """Reports to its group, where rollouts are compared, that a trajectory will not come."""
        if self._judging.compares_groups:
            self._gathering.leave((scoring.step, trajectory.task.id), scoring.group_size)

    async def judge_alone(self, trajectory: Trajectory, *, fresh: bool = False) -> Verdict:
        """The judges' result for a trajectory by itself, or beside its gold."""
        if not (trajectory.answer or "").strip():
            return _verdict(0.0, _NO_ANSWER)
        if self._judging.compare is Compare.POINTWISE:
            return await self._score_pointwise(trajectory, fresh=fresh)
        compared = await self.compare_with_gold(trajectory, fresh=fresh)
        return compared.judgement if isinstance(compared, PairComparison) else compared

    async def compare_with_gold(self, trajectory: Trajectory, *, fresh: bool = False) -> PairComparison | Verdict:
        """Both orders of a trajectory's answer and its gold; why not, where there is none."""
        task = task_values(trajectory.task, self._judging.criteria)
        if task["gold"] is None:
            missing = f"task {trajectory.task.id} has no gold answer to compare with"
            return Verdict(None, missing, usage=_NO_USAGE)
        gold = gold_values(task["gold"])
        return await self._compare_pair(task, candidate_values(trajectory), gold, fresh=fresh)

    async def _judge_trajectory(self, trajectory: Trajectory, scoring: Scoring) -> Verdict:
        if self._judging.compares_groups:
            return await self._gathering.join((scoring.step, trajectory.task.id), scoring.group_size, trajectory)
        return await self.judge_alone(trajectory)

    async def _score_pointwise(self, trajectory: Trajectory, *, fresh: bool) -> Verdict:
        judging = self._judging
        low, high = judging.range
        task = task_values(trajectory.task, judging.criteria)
        values = {**task, **candidate_values(trajectory), "low": low, "high": high}
        names = [criterion.name for criterion in judging.criteria] or ["score"]
        images = images_of(trajectory) if judging.images else []
        if judging.read is not Read.EXPECTED:
            question = self._make_question(values, names=names, images=images)
            votes = await self._panel.vote(lambda _: question, lambda reply, _: self._read_scores(reply), fresh=fresh)
            return self._combine_votes(votes)
        parts = await asyncio.gather(
            *(
                self._panel.vote(
                    lambda _, name=name: self._make_question(values, names=[name], images=images),  # type: ignore[misc]
                    lambda reply, _: self._read_expected(reply),
                    fresh=fresh,
                )
                for name in names
            )
        )
        return self._weigh_criteria([self._combine_votes(votes) for votes in parts])

    def _weigh_criteria(self, parts: Sequence[Verdict]) -> Verdict:
        """The criteria's values as one."""
        usage = sum((part.usage or _NO_USAGE for part in parts), _NO_USAGE)
        missing = next((part for part in parts if part.value is None), None)
        if missing is not None:
            return _verdict(None, missing.reason, usage)
        weights = [criterion.weight for criterion in self._judging.criteria] or [1.0]
        value = sum(w * (part.value or 0.0) for w, part in zip(weights, parts, strict=True)) / sum(weights)
        return _verdict(value, "; ".join(part.reason for part in parts), usage)

    def _combine_votes(self, votes: Votes[tuple[float, str]]) -> Verdict:
        """The votes as one value within 0 and 1."""
        if not votes.are_enough:
            num = len(votes.values) + len(votes.failures)
            return _verdict(None, f"{len(votes.failures)} of {num} verdicts failed: {votes.failures[0]}", votes.usage)
        values = [value for value, _ in votes.values]
        value = median(values) if self._judging.combine is Combine.MEDIAN else fmean(values)
        reasons = " | ".join(reason for _, reason in votes.values if reason)
        return _verdict(min(max(value, 0.0), 1.0), reasons, votes.usage)

    def _read_scores(self, reply: Reply) -> tuple[float, str]:
        """The value, weighted over criteria, and the judge's reason."""
        criteria = self._judging.criteria
        names = [criterion.name for criterion in criteria] or ["score"]
        raw, reason = self._read_values(reply, names)
        scores = [score_of(each, *self._judging.range) for each in raw]
        weights = [criterion.weight for criterion in criteria] or [1.0]
        value = sum(w * score for w, score in zip(weights, scores, strict=True)) / sum(weights)
        shown = ", ".join(f"{name} {each}" for name, each in zip(names, raw, strict=True))
        return value, f"{shown}; {reason}".removesuffix("; ")

    def _read_expected(self, reply: Reply) -> tuple[float, str]:
        low, high = self._judging.range
        value, mass = mean_verdict(reply.logprobs, whole_number(low, high), self._judging.coverage)
        return (value - low) / (high - low), f"expected {value:.3g}, with {mass:.0%} of the probability on scores"

    def _read_values(self, reply: Reply, names: Sequence[str]) -> tuple[list[Any], str]:
        """The value under each name, and the reason."""
        if self._judging.read is Read.TAG:
            return [tagged(reply.text, name) for name in names], ""
        values = json_object(reply.text)
        missing = [name for name in names if name not in values]
        if missing:
            raise UnreadableReply(f"no {missing[0]!r} among {', '.join(values) or 'nothing'}")
        return [values[name] for name in names], str(values.get("reason", ""))

    async def _compare_pair(
        self, task: Mapping[str, Any], one: Mapping[str, Any], other: Mapping[str, Any], *, fresh: bool = False
    ) -> PairComparison:
        """Which of two candidates is better, asked in both orders."""

        async def ask(first: Mapping[str, Any], second: Mapping[str, Any]) -> Verdict:
            question = self._make_question({**task, "first": first, "second": second}, names=["winner"])
            votes = await self._panel.vote(lambda _: question, lambda reply, _: self._read_winner(reply), fresh=fresh)
            return self._combine_votes(votes)

        straight, swapped = await asyncio.gather(ask(one, other), ask(other, one))
        return PairComparison(straight, swapped)

    def _read_winner(self, reply: Reply) -> tuple[float, str]:
        """1 where the first is better."""
        if self._judging.read is Read.EXPECTED:
            letters = {"A": 1.0, "B": 0.0}
            value, _ = mean_verdict(reply.logprobs, lambda token: letters.get(token.strip()), self._judging.coverage)
            return value, ""
        (winner,), reason = self._read_values(reply, ["winner"])
        won = _WINNERS.get(str(winner).strip().lower())
        if won is None:
            raise UnreadableReply(f"the winner {str(winner)[:40]!r} is none of A, B and tie")
        return won, reason

    async def _judge_group(self, members: Sequence[Trajectory]) -> Mapping[str, Verdict]:
        """Verdicts on the rollouts of a task. Those without an answer come last and are not shown."""
        if len(members) < 2:
            return {each.id: Verdict(None, "there is no other rollout of the task to compare with") for each in members}
        members = sorted(members, key=lambda each: each.sample_index)  # order of arrival is chance
        answered = [each for each in members if (each.answer or "").strip()]
        results = {each.id: _verdict(0.0, _NO_ANSWER) for each in members}
        if len(answered) == 1:
            results[answered[0].id] = _verdict(1.0, "the only one of its group with an answer")
        elif answered and self._judging.compare is Compare.GROUP:
            results |= await self._rank_group(answered, len(members))
        elif answered:
            results |= await self._play_tournament(answered, len(members))
        return results

    async def _play_tournament(self, answered: Sequence[Trajectory], num: int) -> Mapping[str, Verdict]:
        """Each against each; those without an answer are beaten without a question."""
        task = task_values(answered[0].task, self._judging.criteria)
        views = [candidate_values(each) for each in answered]
        pairs = [(i, j) for i in range(len(answered)) for j in range(i)]
        results = await asyncio.gather(*(self._compare_pair(task, views[i], views[j]) for i, j in pairs))
        won: list[list[float]] = [[1.0] * (num - len(answered)) for _ in answered]
        usages = [_NO_USAGE] * len(answered)
        failures: list[str] = [""] * len(answered)
        for (i, j), result in zip(pairs, results, strict=True):
            pair_result = result.judgement
            usages[i] += pair_result.usage or _NO_USAGE  # a pair's cost is counted once
            if pair_result.value is None:
                failures[i] = failures[j] = pair_result.reason
            else:
                won[i].append(pair_result.value)
                won[j].append(1 - pair_result.value)
        return {
            each.id: _verdict(
                fmean(won[at]) if won[at] and not failures[at] else None,
                failures[at] or f"{sum(won[at]):g} of {num - 1} comparisons won",
                usages[at],
            )
            for at, each in enumerate(answered)
        }

    async def _rank_group(self, answered: Sequence[Trajectory], num: int) -> Mapping[str, Verdict]:
        """All at once, shown in another order for each vote."""
        task, count = task_values(answered[0].task, self._judging.criteria), len(answered)
        views = [candidate_values(each) for each in answered]
        orders: dict[int, list[int]] = {}

        def ask(number: int) -> Question:
            seed = derive_seed(self._seed, "order", json.dumps(views, default=str), number)
            order = random.Random(seed).sample(range(count), count)
            orders[number] = order
            return self._make_question({**task, "candidates": [views[at] for at in order]}, names=["ranking"])

        votes = await self._panel.vote(ask, lambda reply, number: self._read_places(reply, orders[number]))
        if not votes.are_enough:
            results = [_verdict(None, f"the ranking failed: {votes.failures[0]}")] * count
        else:
            combine = median if self._judging.combine is Combine.MEDIAN else fmean
            places = [combine([vote[at] for vote in votes.values]) for at in range(count)]
            results = [_verdict((num - 1 - p) / (num - 1), f"place {p + 1:g} of {num}") for p in places]
        results[0] = results[0]._replace(usage=votes.usage)  # what a group took is counted once
        return {each.id: one for each, one in zip(answered, results, strict=True)}

    def _read_places(self, reply: Reply, order: Sequence[int]) -> list[float]:
        """The place of each candidate, the best at 0, in the order that they have without being shuffled."""
        (raw,), _ = self._read_values(reply, ["ranking"])
        places = [0.0] * len(order)
        for place, shown_at in enumerate(ranking_of(raw, len(order))):
            places[order[shown_at]] = float(place)
        return places

    def _make_question(
        self, values: Mapping[str, Any], *, names: Sequence[str], images: Sequence[Image] = ()
    ) -> Question:
        """The request. Raises TemplateFault where the prompt cannot be filled in."""
        judging = self._judging
        asked, mark = self._template.render(values)
        num = len(values.get("candidates", ()))
        ending = reply_text(judging.compare, judging.read, names, judging.range, num)
        text = f"{asked.rstrip()}\n\n{ending}"
        content: Any = [text_part(text), *map(image_part, images)] if images else text
        messages = [
            {"role": "system", "content": system_text(judging.system, mark)},
            {"role": "user", "content": content},
        ]
        held = judging.read is Read.JSON and judging.constrained
        schema = _reply_schema(judging.compare, names, judging.range) if held else None
        return Question(messages, schema, with_logprobs=judging.read is Read.EXPECTED)


@dataclass(frozen=True, slots=True)
class PairComparison:
    """Two candidates, in both orders."""

    straight: Verdict
    """Value of the candidate at first place: the one asked about."""
    swapped: Verdict
    """Value of the candidate at first place: the other one."""

    @property
    def judgement(self) -> Verdict:
        """The one asked about: mean over both orders, so that a liking for a place cancels out."""
        usage = (self.straight.usage or _NO_USAGE) + (self.swapped.usage or _NO_USAGE)
        if self.straight.value is None or self.swapped.value is None:
            return _verdict(None, self.straight.reason if self.straight.value is None else self.swapped.reason, usage)
        value = (self.straight.value + 1 - self.swapped.value) / 2
        return _verdict(value, f"{value:g} of 1 against the other; {self.straight.reason}".removesuffix("; "), usage)


def _reply_schema(compare: Compare, names: Sequence[str], bounds: tuple[float, float]) -> dict[str, Any]:
    """The JSON Schema of a reply."""
    kinds: dict[Compare, dict[str, Any]] = {
        Compare.POINTWISE: {"type": "number", "minimum": bounds[0], "maximum": bounds[1]},
        Compare.PAIRWISE: {"type": "string", "enum": ["A", "B", "tie"]},
        Compare.GROUP: {"type": "array", "items": {"type": "integer"}},
    }
    properties = {"reason": {"type": "string"}, **dict.fromkeys(names, kinds[compare])}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
