"""Trains the policy that a host plays with: collect, update, evaluate, checkpoint, step by step.

Events go out in order on the event loop's thread; all model work happens on the host's. A step is over when its
StepFinished is out: a stop in between loses the collection under way and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Container, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean

from rlf.core.clocks import stage
from rlf.engines.local.checkpoint import (
    Progress,
    kept_steps,
    load_checkpoint,
    load_sampler_weights,
    note_best,
    prune_checkpoints,
    read_progress,
    read_rewards,
    save_checkpoint,
)
from rlf.engines.local.host import Pipeline, PolicyHost, copy_weights
from rlf.engines.local.update import Updater, UpdateResult
from rlf.spec.models import CheckpointSpec
from rlf.training.batch import make_batch
from rlf.training.collection import Collection, Collector
from rlf.training.evaluation import step_metrics
from rlf.types.events import CheckpointSaved, EventSink, Notice, StepFinished
from rlf.types.score import Scored

logger = logging.getLogger(__name__)


class Trainer:
    """One run, from its updater's present step to its last step."""

    def __init__(
        self,
        host: PolicyHost,
        pipeline: Pipeline | None,
        updater: Updater,
        collector: Collector,
        folder: Path,
        checkpoint: CheckpointSpec,
        *,
        evaluate: Callable[[int], Awaitable[float | None]] | None,
        due_steps: Container[int],
        emit: EventSink,
        flush: Callable[[], None],
    ) -> None:
        """Takes the parts of a run.

        Args:
            host: of the policy that is updated and evaluated.
            pipeline: of the copy that the collector samples with; None: it samples with the policy itself.
            folder: where checkpoints go.
            evaluate: tries the policy after so many updates, and returns its success; None: there is no evaluation.
            due_steps: after how many updates it is tried, beside where the run begins.
            emit: takes every event, in order.
            flush: returns when every event emitted so far is safe.
        """
        self.progress = Progress()
        self._host = host
        self._pipeline = pipeline
        self._sampler = host if pipeline is None else pipeline.host
        self._num_behind = 0
        """Updates that the sampler's weights are behind where the run begins."""
        self._ahead: asyncio.Task[tuple[Collection, dict[str, float]]] | None = None
        """The next step's collection, under way."""
        self._updater = updater
        self._settings = updater.train
        self._collector = collector
        self._reward = collector.harness.reward
        self._folder = folder
        self._checkpoint = checkpoint
        self._evaluate = evaluate
        self._due_steps = due_steps
        self._emit = emit
        self._flush = flush
        self._reward_state = self._reward.state()
        """What terms had counted when the last step's collection was whole."""

    def go_back(self, checkpoint: Path) -> None:
        """Restores the state of a checkpoint."""
        load_checkpoint(checkpoint, self._updater)
        self.progress = read_progress(checkpoint)
        self._reward_state = read_rewards(checkpoint)
        self._reward.restore(self._reward_state)
        if self._pipeline is not None:
            copy_weights(self._host.model, self._sampler.model)
            self._num_behind = int(load_sampler_weights(checkpoint, self._sampler.model))

    async def run(self) -> None:
        """Runs to the last step."""
        if self._pipeline is not None or self._collector.has_stragglers:
            self._sampler.record_versions(self.progress.step - self._num_behind)
        try:
            await self._run_steps()
        finally:
            if self._ahead is not None:
                self._ahead.cancel()
                await asyncio.gather(self._ahead, return_exceptions=True)
            await self._collector.close(self.progress.step + 1)

    async def _run_steps(self) -> None:
        last = self._settings.steps
        await self._evaluate_if_due()
        while self.progress.step < last:
            await self._step()
            await self._evaluate_if_due()
            step = self.progress.step
            if step in (last, self.progress.best_step) or step % self._checkpoint.every == 0:
                self.save()

    async def _collect(self, step: int, cursor: int, late: Sequence[int]) -> tuple[Collection, dict[str, float]]:
        """The collection of a step, and how long it took."""
        started, held_s = time.perf_counter(), self._sampler.held_s
        collection = await self._collector.collect(step, cursor, late)
        taken_s, held_s = time.perf_counter() - started, self._sampler.held_s - held_s
        return collection, {"time/generate_s": taken_s, "time/schedule_s": held_s}

    async def _begin_next(self, step: int, collection: Collection) -> None:
        """Begins what of the next step needs no update: in a pipeline its rollouts, else the reset of its worlds."""
        self._reward_state, self._ahead = self._reward.state(), None
        if step == self._settings.steps:
            return
        if self._pipeline is None:
            if step not in self._due_steps:  # an evaluation needs all the worlds that there may be
                await self._collector.prepare(collection.cursor)
            return
        if self._pipeline.at_steps:
            await self._pipeline.renew(step - 1)
        self._ahead = asyncio.ensure_future(self._collect(step + 1, collection.cursor, collection.late))

    async def _step(self) -> None:
        started, step = time.perf_counter(), self.progress.step + 1
        collecting = self._ahead or self._collect(step, self.progress.cursor, self.progress.late)
        collection, times = await collecting
        generated = time.perf_counter()
        used = collection.choose_used(mask_truncated=self._settings.mask_truncated)
        update = asyncio.ensure_future(self._continue(used, step, collection))
        cancelled = False
        try:
            result = await asyncio.shield(update)
        except asyncio.CancelledError:  # weights are never left between two steps: the stop comes after this one
            result, cancelled = await update, True
        finished = time.perf_counter()
        times |= {"time/step_s": finished - started, "time/update_s": finished - generated}
        if self._pipeline is not None and not self._pipeline.at_steps:
            await self._pipeline.renew(step)
        self._finish_step(step, collection, used, result, times)
        if cancelled:
            raise asyncio.CancelledError

    def _finish_step(
        self, step: int, collection: Collection, used: Sequence[Scored], result: UpdateResult, times: dict[str, float]
    ) -> None:
        own = result.metrics | times | collection.metrics | _staleness(used, step)
        own["memory/peak_bytes"] = _peak_bytes()
        metrics = step_metrics(collection.collected, used, num_groups=collection.num_groups, own=own)
        metrics |= collection.greedy_metrics()
        advantages = dict(zip((item.trajectory.id for item in used), result.advantages, strict=True))
        scored = [*collection.collected, *(collection.greedy or ())]
        self._emit(StepFinished(step, metrics, scored, [advantages.get(item.trajectory.id) for item in scored]))
        self.progress = replace(self.progress, step=step, cursor=collection.cursor, late=collection.late)

    async def _continue(self, used: Sequence[Scored], step: int, collection: Collection) -> UpdateResult:
        """Begins the next step, and updates the policy."""
        await self._begin_next(step, collection)
        return await self._update(used, step, collection)

    async def _update(self, used: Sequence[Scored], step: int, collection: Collection) -> UpdateResult:
        if not used:
            text = f"step {step}: no trajectory could be learnt from; the policy was not updated"
            self._emit(Notice("warning", text, {"step": step}))
            return UpdateResult({}, [])
        batch = make_batch(
            used,
            observations_in_loss=self._settings.observations_in_loss,
            greedy_by_task=collection.greedy_by_task,
        ).to(self._host.model.device)
        with stage(f"update {step}"):
            return await self._host.change_weights(partial(self._updater.update, batch, step), step)

    async def _evaluate_if_due(self) -> None:
        """Evaluates at the first state and when it is due; once each, also after a resume."""
        step, evaluated = self.progress.step, self.progress.evaluated
        is_due = evaluated < 0 or step in self._due_steps
        if self._evaluate is not None and is_due and evaluated != step:
            self.progress = note_best(replace(self.progress, evaluated=step), await self._evaluate(step))

    def save(self) -> None:
        """Writes a checkpoint of what is complete; older ones go as the settings say."""
        logger.info("checkpoint of step %d begins", self.progress.step)
        self._flush()  # fails where another process owns the run, and with it the folder
        state = self._reward.state() if self._ahead is None else self._reward_state
        behind = self._sampler.model if self._pipeline is not None and self._pipeline.at_steps else None
        started = time.perf_counter()
        with stage(f"checkpoint {self.progress.step}"):
            path, digest = save_checkpoint(self._folder, self._updater, self.progress, state, behind)
        kept = kept_steps(self._folder, self._checkpoint.keep, self.progress)
        self._emit(CheckpointSaved(self.progress.step, str(path), digest, kept, time.perf_counter() - started))
        self._flush()
        prune_checkpoints(self._folder, kept)


def _staleness(used: Sequence[Scored], step: int) -> dict[str, float]:
    """Updates that the sampled tokens are behind a step's policy; empty where they are not recorded."""
    behind = [step - 1 - version for item in used for version in item.trajectory.versions]
    return {"policy/staleness/mean": fmean(behind), "policy/staleness/max": float(max(behind))} if behind else {}


def _peak_bytes() -> float:
    """Largest resident size of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
