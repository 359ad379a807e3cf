"""Trains the policy that a host plays with: collect, update, evaluate, checkpoint, step by step.

Events go out in order on the event loop's thread; all model work happens on the host's. A step is over when its
StepFinished is out: a stop in between loses the collection under way and nothing else.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rlf.engines.local.checkpoint import (
    Progress,
    kept_steps,
    load_checkpoint,
    note_best,
    prune_checkpoints,
    read_progress,
    read_rewards,
    save_checkpoint,
)
from rlf.engines.local.host import PolicyHost
from rlf.engines.local.update import Updater, UpdateResult
from rlf.spec.models import CheckpointSpec, EvalSpec
from rlf.training.batch import make_batch
from rlf.training.collection import Collection, Collector
from rlf.training.evaluation import evaluate
from rlf.training.harness import Harness
from rlf.training.metrics import step_metrics
from rlf.types.events import CheckpointSaved, EventSink, Notice, StepFinished
from rlf.types.score import Scored
from rlf.types.task import Task


@dataclass(frozen=True, slots=True)
class Routine:
    """What happens around the updates."""

    num_generations: int
    """Rollouts of each task."""
    seed: int
    evaluation: EvalSpec
    checkpoint: CheckpointSpec
    max_usd_per_evaluation: float | None = None


class Trainer:
    """One run, from where its updater stands to its last step."""

    def __init__(
        self,
        host: PolicyHost,
        harness: Harness,
        updater: Updater,
        routine: Routine,
        folder: Path,
        *,
        train: Sequence[Task],
        evaluation: Sequence[Task],
        emit: EventSink,
        flush: Callable[[], None],
    ) -> None:
        """Takes the parts of a run; `host` and `harness` are entered by who runs it.

        Args:
            folder: where checkpoints go.
            train: the training set.
            evaluation: the evaluation set; empty: no evaluation.
            emit: takes every event, in order.
            flush: returns when every event emitted so far is safe.
        """
        self.progress = Progress()
        self._host = host
        self._harness = harness
        self._updater = updater
        self._settings = updater.train
        self._routine = routine
        self._folder = folder
        self._evaluation = evaluation
        self._emit = emit
        self._flush = flush
        self._collector = Collector(
            host,
            harness,
            train,
            updater.train,
            num_generations=routine.num_generations,
            seed=routine.seed,
            emit=emit,
        )

    def go_back(self, checkpoint: Path) -> None:
        """Puts everything where a checkpoint left it."""
        load_checkpoint(checkpoint, self._updater)
        self.progress = read_progress(checkpoint)
        self._harness.reward.restore(read_rewards(checkpoint))

    async def run(self) -> None:
        """Runs to the last step."""
        last = self._settings.steps
        await self._evaluate_if_due()
        while self.progress.step < last:
            await self._step()
            await self._evaluate_if_due()
            step = self.progress.step
            if step in (last, self.progress.best_step) or step % self._routine.checkpoint.every == 0:
                self.save()

    async def _step(self) -> None:
        started, held_s, step = time.perf_counter(), self._host.held_s, self.progress.step + 1
        collection = await self._collector.collect(step, self.progress.cursor)
        generated, held_s = time.perf_counter(), self._host.held_s - held_s
        used = collection.choose_used(mask_truncated=self._settings.mask_truncated)
        update = asyncio.ensure_future(self._update(used, step, collection))
        cancelled = False
        try:
            result = await asyncio.shield(update)
        except asyncio.CancelledError:  # weights are never left between two steps: the stop comes after this one
            result, cancelled = await update, True
        finished = time.perf_counter()
        times = {
            "time/step_s": finished - started,
            "time/generate_s": generated - started,
            "time/update_s": finished - generated,
            "time/schedule_s": held_s,
        }
        self._finish_step(step, collection, used, result, times)
        if cancelled:
            raise asyncio.CancelledError

    def _finish_step(
        self, step: int, collection: Collection, used: Sequence[Scored], result: UpdateResult, times: dict[str, float]
    ) -> None:
        own = result.metrics | times | {"memory/peak_bytes": _peak_bytes()}
        metrics = step_metrics(collection.collected, used, num_groups=collection.num_groups, own=own)
        metrics |= collection.greedy_metrics()
        advantages = dict(zip((item.trajectory.id for item in used), result.advantages, strict=True))
        scored = [*collection.collected, *(collection.greedy or ())]
        self._emit(StepFinished(step, metrics, scored, [advantages.get(item.trajectory.id) for item in scored]))
        self.progress = replace(self.progress, step=step, cursor=collection.cursor)

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
        return await self._host.run(partial(self._updater.update, batch, step))

    async def _evaluate_if_due(self) -> None:
        """Evaluates after the steps that the spec names, the first and the last; once each, also after a resume."""
        settings, step = self._routine.evaluation, self.progress.step
        is_due = self.progress.evaluated < 0 or step in settings.due_steps(self._settings.steps)
        if not is_due or not self._evaluation or self.progress.evaluated == step:
            return
        try_policy = partial(
            evaluate,
            self._host,
            self._harness,
            self._evaluation,
            seed=self._routine.seed,
            step=step,
            emit=self._emit,
            max_usd=self._routine.max_usd_per_evaluation,
        )
        sampling, greedy = self._harness.evaluation, self._harness.greedy
        success = await try_policy(mode="sampled", sampling=sampling, num_samples=settings.num_samples)
        if settings.greedy:
            await try_policy(mode="greedy", sampling=greedy, num_samples=1)
        self.progress = note_best(replace(self.progress, evaluated=step), success)

    def save(self) -> None:
        """Writes a checkpoint of what is complete; older ones go as the settings say."""
        self._flush()  # fails where another process owns the run, and with it the folder
        path, digest = save_checkpoint(self._folder, self._updater, self.progress, self._harness.reward.state())
        kept = kept_steps(self._folder, self._routine.checkpoint.keep, self.progress)
        self._emit(CheckpointSaved(self.progress.step, str(path), digest, kept))
        self._flush()
        prune_checkpoints(self._folder, kept)


def _peak_bytes() -> float:
    """Largest resident size of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
