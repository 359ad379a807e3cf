"""The agent: OpenRLHF's rows played by rlf's own rollout loop, one trajectory per call of `execute`.

Lives in each rollout actor, on the event loop that it shares with vLLM: tools that block run on threads. Whatever a
trajectory meets stays with it: one that a failure outside the policy broke is played again, waits while what broke it
is down, and is left out of the loss when nothing helps (`outages`, `response`). Four things end the job, since
training on would be worthless: records that cannot be written, a sampler that fails again and again, an outage that
leaves too little of a step, and a reward term that says that the run cannot continue.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf.apps.openrlhf.dataset import JobRow, Purpose, read_label
from rlf.apps.openrlhf.job import Job, read_attempt
from rlf.apps.openrlhf.policy import (
    EnginePolicy,
    LeftOutTokens,
    SamplesTokens,
    evaluation_response,
    stand_in_response,
    training_response,
)
from rlf.apps.openrlhf.rehearsal_model import OpeningCalls
from rlf.apps.openrlhf.settings import Layout, Mode, openrlhf_settings
from rlf.apps.openrlhf.shared import EvaluationAhead, Group, StepCount, Tally, find_shared_tools
from rlf.apps.openrlhf.spool import SpoolWriter
from rlf.apps.openrlhf.spool_pool import FilesOpened, Record
from rlf.apps.openrlhf.transfer import Sender
from rlf.chat.vision import Vision
from rlf.core.callables import opened_files
from rlf.core.errors import RunError
from rlf.core.redact import Redactor
from rlf.core.text import describe
from rlf.plan import plan_from_json
from rlf.rollout.rollout import Rollout
from rlf.spec.reader import mentioned
from rlf.training.counting import broken_trajectory, counts, evaluation_rollout, is_kept, training_rollout
from rlf.training.harness import Harness, Traffic, build_harness
from rlf.training.outages import Broken, Outages, Tries
from rlf.types.events import Notice
from rlf.types.policy import Policy, SampleRequest, Sampling
from rlf.types.score import Scored
from rlf.types.task import Task
from rlf.types.world import shown_tools

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


logger = logging.getLogger(__name__)

_MAX_BROKEN_IN_A_ROW = 64
"""Trajectories of one actor that may break outside tools and rewards, one after the other."""


FILTER_SCORES = {False: 0.0, True: 0.5}
"""`scores`, which OpenRLHF reads for its filter alone and keeps within (0, 1): what it gets of a group by `is_kept`."""


class Agent:
    """The agent behind a job's `AgentExecutor`; one per actor."""

    def __init__(self, folder: Path, tally: Tally | None = None) -> None:
        """Reads the job's plan and builds nothing yet: tokenizer and sampler come with the first call.

        Args:
            folder: the job folder, or the copy of it that was shipped to this node.
            tally: what it counts with other agents; None: with those of its Ray job.

        Raises:
            RlfError: the plan needs a variable that is not set here.
        """
        job = Job(folder, folder)
        self._folder = folder
        self._plan_text = job.plan.read_text()
        self._spec = (plan := plan_from_json(self._plan_text)).spec
        self._secrets = mentioned(item.text for item in plan.interpolated)
        self._evaluation = job.evaluation
        self._attempt = read_attempt(job)
        self._tally = tally
        self._waits = any(term.is_droppable for term in self._spec.rewards)
        """Whether what a trajectory counts is known only with its group, whose records are then written at its end."""
        self._groups: dict[int, Group] = {}
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._parts: _Parts | None = None
        self._num_broken_in_a_row = 0
        self._num_opened = 0

    async def execute(
        self, prompt: str, label: str, sampling_params: Any, tokenizer: PreTrainedTokenizerBase, engine: SamplesTokens
    ) -> dict[str, Any]:
        """Plays one trajectory of a row and returns what OpenRLHF trains on.

        Args:
            prompt: the row's name.
            label: the row's task, as `dataset` writes it.
            sampling_params: vLLM's, shared by all samples of the row; it is read and never changed.
            tokenizer: the model's; of a model that sees its processor, which holds the tokenizer.
            engine: the actor that samples.

        Raises:
            RunError: nothing can be recorded, the sampler is broken, or a reward term ends the run.
        """
        row, policy = read_label(label, self._folder), self._policy(engine, sampling_params)
        parts = await self._open(tokenizer, policy)
        head = {"prompt": prompt, "label": label, "images": None, "mm_train_inputs": None}
        if row.purpose is not Purpose.TRAIN:
            scored = await self._ahead_of(parts, engine, sampling_params).take(label)
            return head | evaluation_response(scored, parts.harness.reward, sampling_params)
        scored, group = await self._play_of_group(parts, policy, row)
        # OpenRLHF cannot leave a trajectory out: it gets tokens with one action, and as reward the mean of the group,
        # which moves nothing where advantages are measured from that mean.
        stand_in = None if counts(scored) else await self._stand_in(parts, policy, scored)
        # Nothing of the first batch is returned before the first evaluation is over, so no update can come between.
        # Shielded: one trajectory that is cancelled must not end an evaluation that all of them wait for.
        if parts.first_evaluation is not None:
            await asyncio.shield(parts.first_evaluation)
        if policy.vision is not None:
            await policy.vision.prepare(scored.trajectory.images if stand_in is None else stand_in.images)
        reward = parts.harness.reward
        filtering = self._spec.train.dynamic_filtering
        tail = {} if filtering is None else {"scores": FILTER_SCORES[is_kept(group.rewards, filtering)]}
        if stand_in is None:
            return head | training_response(scored, reward, sampling_params, policy.vision) | tail
        return head | stand_in_response(scored, stand_in, group, reward, sampling_params, policy.vision) | tail

    def _policy(self, engine: SamplesTokens, sampling_params: Any) -> EnginePolicy:
        settings = openrlhf_settings(self._spec)
        return EnginePolicy(
            engine, sampling_params, seeded=settings.deterministic, record_logprobs=settings.record_logprobs
        )

    def _ahead_of(self, parts: _Parts, engine: SamplesTokens, sampling_params: Any) -> EvaluationAhead:
        """The player of evaluations. Ahead only where one actor has all rows, and weights stay until it is over."""

        async def play_row(label: str) -> Scored:
            row, policy = read_label(label, self._folder), self._policy(engine, sampling_params)
            policy.vision = parts.harness.chat.vision
            return await self._evaluate_row(parts, policy, row, step=None)

        if parts.ahead is None:
            # With several actors none knows which rows the others get, and beside an asynchronous trainer weights may
            # change in the middle: both would make a row's result depend on who asked first.
            alone = openrlhf_settings(self._spec).mode is Mode.SYNC and Layout.of(self._spec).num_engines == 1
            lines = self._evaluation.read_text().splitlines() if alone and self._evaluation.is_file() else []
            parts.ahead = EvaluationAhead([json.loads(line)["label"] for line in lines], play_row)
        return parts.ahead

    async def close(self) -> None:
        """Closes tools, rewards and spool. OpenRLHF kills its actors instead: whatever is open must bear that."""
        await self._stack.aclose()

    async def _play_of_group(self, parts: _Parts, policy: EnginePolicy, row: JobRow) -> tuple[Scored, Group]:
        """Plays one sample of a row; one that does not count waits for the rest of its group, whose mean it gets."""
        # On disk before the trajectory is returned: what a step was made from is known wherever the job stops.
        # No await before `join`: the samples of a row start in one tick of the loop, and their order there is what
        # numbers them, as OpenRLHF gives them none.
        if (group := self._groups.get(row.index)) is None:
            group = self._groups[row.index] = Group(self._spec.rollout.num_generations, parts.harness.reward)
        sample, record = group.join(), None
        try:
            step = await group.step(parts.steps)
            record = await self._play_until_it_counts(parts, policy, row, sample, step)
            if not self._waits:
                await parts.spool.append(record)
        finally:
            # Also where it fails: a group that never becomes whole would hold back the count of steps for all actors.
            if group.leave(None if record is None else record.scored):
                del self._groups[row.index]
                await parts.steps.add(group)
        if self._waits or not counts(record.scored) or self._spec.train.dynamic_filtering is not None:
            record = replace(record, scored=await group.settled(record.scored.trajectory.id))
        if self._waits:
            await parts.spool.append(record)
        return record.scored, group

    async def _play_until_it_counts(
        self, parts: _Parts, policy: EnginePolicy, row: JobRow, sample: int, step: int | None
    ) -> Record:
        """Plays one trajectory, again where something outside the policy broke it and is up again.

        Each try of training that is not the last is written to the spool; the last one is the caller's to write.
        """
        tries, again = Tries(), True
        while again:
            began = time.monotonic()
            scored = await self._play(parts, policy, row, sample, step=step, num_tries=tries.num)
            parts.outages.note(scored, began)
            record = Record(row.purpose, row.index, sample, step, time.time(), scored, again=False)
            try:
                again = not self._attempt.opening_calls and await parts.outages.may_play_again(
                    scored, tries, partial(self._may_leave_out, parts, row.purpose, step)
                )
            except RunError:  # the job ends: what it ends for is on disk before
                await parts.spool.append(record)
                raise
            if row.purpose is Purpose.TRAIN and again:
                await parts.spool.append(replace(record, scored=parts.outages.as_broken(scored), again=True))
        if opened := opened_files(self._num_opened):
            self._num_opened += len(opened)
            parts.spool.tell(FilesOpened(tuple(opened)))
        return record

    async def _evaluate_row(self, parts: _Parts, policy: EnginePolicy, row: JobRow, step: int | None) -> Scored:
        """Plays one row of an evaluation and writes its last try to the spool."""
        record = await self._play_until_it_counts(parts, policy, row, row.index, step)
        await parts.spool.append(record)
        return record.scored

    async def _may_leave_out(
        self, parts: _Parts, purpose: Purpose, step: int | None, broken: Broken, down: Collection[str]
    ) -> bool:
        """Whether the step or evaluation can be made without one more trajectory."""
        train, rollout = self._spec.train, self._spec.rollout
        if purpose is Purpose.TRAIN:
            return await parts.steps.leave_out(
                f"step {step}", train.prompts_per_step * rollout.num_generations, broken, down
            )
        num_rows = len(self._evaluation.read_text().splitlines())
        return await parts.steps.leave_out(f"evaluation {await parts.steps.step()}", num_rows, broken, down)

    async def _play(
        self, parts: _Parts, policy: EnginePolicy, row: JobRow, sample: int, *, step: int | None, num_tries: int
    ) -> Scored:
        """Plays and scores one trajectory."""
        if row.purpose is Purpose.TRAIN:
            rollout = training_rollout(row.task, row.index, sample, self._spec.seed, num_tries)
        else:
            rollout = evaluation_rollout(row.task, str(row.purpose), sample, self._spec.seed, step)
        sampler = self._sampler(policy, parts, row, sample)
        player = parts.harness.player(sampler, parts.sampling(row.purpose))
        scored_at = await parts.steps.step() - 1 if step is None else step
        parts.spool.num_played += 1
        try:
            scored = await parts.harness.reward.score(await player.play(rollout), step=scored_at)
            # In a row, and not in all: a sampler that is gone breaks every trajectory, an odd row only its own.
            self._num_broken_in_a_row = 0
        except RunError:
            raise
        except Exception as fault:  # noqa: BLE001 - no trajectory may end the others of its group
            scored = self._broken(parts, rollout, fault)
        finally:
            parts.spool.num_played -= 1
        parts.stand_in = parts.stand_in or LeftOutTokens.of(scored.trajectory)
        return scored

    async def _stand_in(self, parts: _Parts, policy: EnginePolicy, scored: Scored) -> LeftOutTokens:
        """The tokens for a trajectory that is left out: its own, or others where it sampled none."""
        stand_in = LeftOutTokens.of(scored.trajectory) or parts.stand_in
        if stand_in is not None:
            return stand_in
        # Nothing was sampled here yet: one real token, since a made-up one has no probability.
        context, sampling = parts.harness.chat.stop_token_ids[:1], parts.harness.training
        request = SampleRequest(scored.trajectory.id, context, max_tokens=1, sampling=sampling, seed=self._spec.seed)
        sample = await policy.sample(request)
        return LeftOutTokens([*context, *sample.tokens[:1]], [0.0, *sample.logprobs[:1]], 1)

    def _sampler(self, policy: EnginePolicy, parts: _Parts, row: JobRow, sample: int) -> Policy:
        """vLLM, and in a rehearsal a written call before it."""
        if not self._attempt.opening_calls or row.purpose is not Purpose.TRAIN:
            return policy
        worlds = parts.harness.worlds
        declared = (*self._spec.tools, *(() if worlds is None else worlds.declarations))
        tools = [tool for tool in declared if row.task.may_use(tool.name)]
        number = row.index * self._spec.rollout.num_generations + sample
        return OpeningCalls(policy, parts.harness.chat, tools, number)

    def _broken(self, parts: _Parts, rollout: Rollout, fault: Exception) -> Scored:
        """The unscorable trajectory that stands for one that could not be played."""
        self._num_broken_in_a_row += 1
        error = describe(fault)
        first = fault if self._num_broken_in_a_row == 1 else None  # a dead engine gives the same trace each time
        logger.warning("trajectory %s broke: %s", rollout.id, error, exc_info=first)
        if self._num_broken_in_a_row >= _MAX_BROKEN_IN_A_ROW:
            raise RunError(f"{self._num_broken_in_a_row} trajectories failed in a row; the last: {error}")
        return broken_trajectory(rollout, parts.prompt_tokens(rollout.task), error)

    async def _open(self, tokenizer: PreTrainedTokenizerBase, policy: EnginePolicy) -> _Parts:
        """The parts that all trajectories of this actor share, built by the first of them."""
        if self._parts is None:
            # The lock is held while parts are built: trajectories start side by side, and tools are opened once.
            async with self._opening:
                if self._parts is None:
                    parts = await self._build(tokenizer)
                    policy.vision = parts.harness.chat.vision
                    await self._start_first_evaluation(parts, policy)
                    self._parts = parts
        policy.vision = self._parts.harness.chat.vision
        return self._parts

    async def _build(self, tokenizer: PreTrainedTokenizerBase) -> _Parts:
        # The spec with tools and a world that cannot end the actor, and with it the job.
        tools = [tool.model_copy(update={"target": tool.target.contained()}) for tool in self._spec.tools]
        env = None if self._spec.env is None else self._spec.env.contained()
        spec, sender = self._spec.model_copy(update={"tools": tools, "env": env}), None
        if (ingest := openrlhf_settings(spec).ingest) is not None:
            certificate = Job(self._folder, self._folder).certificate
            sender = partial(Sender, ingest=ingest, attempt=self._attempt, certificate=certificate)
        spool = SpoolWriter(Path(self._attempt.spool), self._secrets, sender)
        # First on the stack, so that it closes last: tools that close still report to it.
        self._stack.push_async_callback(spool.close)

        def notify(level: str, text: str) -> None:
            spool.tell(Notice(level, text, {}))

        elsewhere = find_shared_tools(spec, self._plan_text, self._secrets)
        traffic = Traffic(Redactor(os.environ, self._secrets).text, elsewhere=elsewhere)
        harness = build_harness(spec, getattr(tokenizer, "tokenizer", tokenizer), notify, traffic)
        if self._attempt.opening_calls:  # they are written before a prompt with other names is known
            harness = replace(harness, training_faults=None)
        if spec.rollout.max_images > 0:
            harness.chat.see(Vision(tokenizer))
        steps = StepCount(
            first_step=self._attempt.first_step,
            groups_per_step=spec.train.prompts_per_step,
            filtering=spec.train.dynamic_filtering,
            tally=self._tally,
        )
        await self._stack.enter_async_context(harness.opened())
        return _Parts(harness, spool, steps, Outages(openrlhf_settings(spec).outage_s, notify, spec.rewards))

    async def _start_first_evaluation(self, parts: _Parts, policy: EnginePolicy) -> None:
        """Evaluates the untrained policy, in whichever actor comes first.

        OpenRLHF evaluates only after steps. No weights change before the first batch is complete, and that waits for
        this: its trajectories are not returned before.
        """
        if not self._attempt.evaluate_first or not self._evaluation.is_file():
            return
        if not await parts.steps.claim():
            return
        labels = (json.loads(line)["label"] for line in self._evaluation.read_text().splitlines())
        playing = (self._evaluate_row(parts, policy, read_label(label, self._folder), step=0) for label in labels)
        parts.first_evaluation = asyncio.gather(*playing)


@dataclass(slots=True)
class _Parts:
    """The parts that all trajectories of an actor share."""

    harness: Harness
    spool: SpoolWriter
    steps: StepCount
    outages: Outages
    stand_in: LeftOutTokens | None = None
    """Tokens of the first trajectory in which something was sampled, for those in which nothing was."""
    ahead: EvaluationAhead | None = None
    """Plays OpenRLHF's evaluations; None before the first."""
    first_evaluation: asyncio.Future[list[Scored]] | None = None
    """Under way in this actor, or done; None when another one has it."""

    def sampling(self, purpose: Purpose) -> Sampling:
        """How trajectories of a purpose are sampled."""
        by_purpose = {
            Purpose.TRAIN: self.harness.training,
            Purpose.SAMPLED: self.harness.evaluation,
            Purpose.GREEDY: self.harness.greedy,
        }
        return by_purpose[purpose]

    def prompt_tokens(self, task: Task) -> list[int]:
        """A task's prompt; one token when not even that can be made, or when it would lack its images."""
        if task.images:
            return list(self.harness.chat.stop_token_ids[:1])
        tools = shown_tools(self.harness.worlds, self.harness.tools.descriptions, task)
        try:
            return list(self.harness.chat.prompt(task.messages, tools))
        except Exception:  # noqa: BLE001 - the task itself is what broke
            return list(self.harness.chat.stop_token_ids[:1])
