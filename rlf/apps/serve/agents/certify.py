"""Whether an agent can be trained as it is: some trajectories are played, and each token of them is compared."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rlf.apps.serve.agents import calls
from rlf.apps.serve.dialogue import EVERY_TOKEN
from rlf.core import Fault, RlfError
from rlf.core.errors import Place, SpecError
from rlf.core.identity import derive_seed
from rlf.core.plain_json import Jsonable
from rlf.engines.engine import Engine, HostSettings
from rlf.rollout.rollout import Rollout
from rlf.runs.plans import check_spec
from rlf.spec.engines import default_engine
from rlf.training.harness import Harness, build_harness
from rlf.types.policy import Policy, Sample, SampleRequest
from rlf.types.task import Task
from rlf.types.trajectory import StopReason, Trajectory

CURES: Mapping[str, str] = {
    calls.SAME_PROMPT: "The same prompt was sampled again. Where no second sample is wanted, send the client's retry "
    "header (x-stainless-retry-count) with a repeated request.",
    calls.BRANCH: "Two prompts continue one call. That is trained as it is; keep one history where one is meant.",
    calls.OTHER_SYSTEM: "Another system message: a second agent, or one with the time in it. Keep it constant.",
    calls.OTHER_TASK: "Another first message: a second conversation, or one that was edited. Append, never rewrite.",
    calls.OTHER_TOOLS: "Another tool list under the same history. Send the same tools with every call.",
    calls.OTHER_TOKENS: "The words continue a call, and the template writes them with other tokens: send back every "
    "message of an answer as it came, `reasoning_content` and ids included.",
    calls.SHORTENED: "The history was shortened. That is trained as a context of its own; compact seldom.",
    calls.EDITED: "The history was edited. Append, never rewrite.",
}
"""What to change in an agent, by why a call began a new context."""


@dataclass(frozen=True, slots=True)
class AgentCertificate(Jsonable):
    """How an agent's calls hang together."""

    num_trajectories: int
    num_calls: int
    num_contexts: int
    """Rows that are trained."""
    new_contexts: Mapping[str, int]
    """Calls that continued none, by why; the first of each trajectory is left out."""
    notes: Mapping[str, int]
    """What was repeated, refused or overridden, and how agents failed."""
    trained_share: float
    """Of the sampled tokens, those of trajectories that count."""
    num_wrong: int
    """Samples that do not stand once, behind exactly the tokens that they were sampled behind."""
    num_without_calls: int
    """Trajectories in which nothing was sampled."""
    error: str | None = None
    """Of the first trajectory that broke."""

    JSON_PROPERTIES: ClassVar = ("continued_share",)

    @property
    def continued_share(self) -> float:
        """Of the calls after a trajectory's first, those that continue an earlier one token for token."""
        return 1.0 if not self._num_later else 1.0 - sum(self.new_contexts.values()) / self._num_later

    @property
    def _num_later(self) -> int:
        return self.num_calls - self.num_trajectories + self.num_without_calls

    @property
    def sizes(self) -> str:
        """Of what was played, and how much of it continues."""
        share = f"{self.continued_share:.1%} of later calls continue an earlier one"
        share = share if self._num_later else "no trajectory has a second call, so that none is seen to continue"
        return f"{self.num_calls} calls in {self.num_trajectories} trajectories, {self.num_contexts} rows; {share}"

    @property
    def summary(self) -> str:
        """In one line."""
        wrong = f"{self.num_wrong or 'no'} wrong samples"
        failed = "" if self.error is None else f"; {self.error}"
        return f"agent: {self.sizes}; {wrong}{failed}"

    @property
    def cures(self) -> list[str]:
        """What to change, the most frequent cause first."""
        causes = sorted(self.new_contexts.items(), key=lambda item: -item[1])
        return [f"{cause} ({count}): {CURES[cause]}" for cause, count in causes]

    def holds(self, least: float) -> bool:
        """Whether the agent can be trained. Args: least: the share of continued calls that is enough."""
        is_sound = not self.num_wrong and not self.num_without_calls and self.error is None
        return is_sound and self.continued_share >= least


class _Recording:
    """A policy whose samples are kept with what they were sampled behind."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.drawn: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {}

    def open(self, trajectory_ids: Sequence[str]) -> None:
        self._policy.open(trajectory_ids)

    async def sample(self, request: SampleRequest) -> Sample:
        sample = await self._policy.sample(request)
        if request.sampling.num_top != EVERY_TOKEN:
            drawn = tuple(request.tokens), tuple(sample.tokens)
            self.drawn.setdefault(request.trajectory_id, []).append(drawn)
        return sample

    def release(self, trajectory_id: str) -> None:
        self._policy.release(trajectory_id)


def certify_agent(files: Sequence[Path], overrides: Sequence[str], num: int) -> AgentCertificate:
    """Plays rows of the training set by the spec's agent, once each. Raises RlfError. Args: num: how many rows."""
    checked = check_spec(files, overrides, trains=False)
    spec = checked.plan.spec
    if spec.rollout.agent is None:
        raise SpecError([Fault(Place(str(files[0])), "rollout.agent", "there is no agent to certify. Write one.")])
    inputs = checked.inputs.read()
    tasks = [inputs.train[at] for at in range(min(num, len(inputs.train)))]

    async def play() -> AgentCertificate:
        engine = default_engine()
        assert isinstance(engine, Engine), f"{engine} serves no model"
        settings = HostSettings(num_slots=len(tasks), dtype=spec.model.dtype)
        host, tokenizer = await asyncio.to_thread(engine.load_host, inputs.model_path, settings)
        harness = build_harness(spec, tokenizer, lambda level, text: None)
        async with harness.opened(), host:
            return await play_certificate(harness, host, tasks, spec.seed)

    return asyncio.run(play())


async def play_certificate(harness: Harness, policy: Policy, tasks: Sequence[Task], seed: int) -> AgentCertificate:
    """Plays each task once as in training."""
    recording = _Recording(policy)
    rollouts = [Rollout(f"certify/{at}", task, 0, derive_seed(seed, "certify", at)) for at, task in enumerate(tasks)]
    player = harness.player(recording, harness.training)
    player.open([rollout.id for rollout in rollouts])
    played = await asyncio.gather(*(player.play(rollout) for rollout in rollouts))
    return _certificate(played, recording)


def _certificate(played: Sequence[Trajectory], policy: _Recording) -> AgentCertificate:
    states: list[dict[str, Any]] = [dict(each.world.final_state) for each in played if each.world is not None]
    notes = Counter[str]()
    for state in states:
        counted = {key: value for key, value in state.items() if isinstance(value, int)}
        notes.update({key: value for key, value in counted.items() if key not in ("calls", "contexts")})
    sampled = sum(each.num_sampled for each in played)
    broken = [each for each in played if each.stop is StopReason.INFRA_FAILURE]
    causes = Counter(turn.link for each in played for turn in each.turns if turn.link not in ("", calls.FIRST))
    return AgentCertificate(
        len(played),
        sum(len(each.turns) for each in played),
        sum(state["contexts"] for state in states),
        dict(causes.most_common()),
        dict(notes.most_common()),
        sum(each.num_sampled for each in played if each.scorable) / sampled if sampled else 0.0,
        sum(_count_wrong(each, policy.drawn.get(each.id, ())) for each in played),
        sum(not each.turns for each in played),
        broken[0].error if broken else None,
    )


def _count_wrong(trajectory: Trajectory, drawn: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> int:
    """Samples that the rows lack or have otherwise."""
    found = Counter(_iterate_samples(trajectory))
    return sum((Counter(drawn) - found).values()) + sum((found - Counter(drawn)).values())


def _iterate_samples(trajectory: Trajectory) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    starts = [start for start, _ in trajectory.stretches]
    for turn in trajectory.turns:
        start = max(at for at in starts if at <= turn.start)
        if not all(trajectory.action_mask[turn.start : turn.end]):
            raise RlfError(f"{trajectory.id}: turn {turn.start} to {turn.end} is not trained. This is a defect of rlf.")
        yield tuple(trajectory.tokens[start : turn.start]), tuple(trajectory.tokens[turn.start : turn.end])
