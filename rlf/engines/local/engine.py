"""The local engine: torch and transformers in one process, a policy host with a trainer around it.

The trainer collects, updates, evaluates and writes checkpoints, step by step. Events go out in order on the event
loop's thread; all model work happens on the host's. A step is over when its StepFinished is out: a stop in between
loses the collection under way and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal

import torch

from rlf.chat.encoding import load_tokenizer
from rlf.chat.format import ChatFormat
from rlf.core.clocks import stage
from rlf.core.errors import OutageError
from rlf.core.identity import derive_seed
from rlf.engines.engine import Opening, Start
from rlf.engines.local.attention import checkpoint_layers
from rlf.engines.local.checkpoint import (
    TrainingProgress,
    kept_steps,
    note_best,
    prune_checkpoints,
    publish_folder,
    read_progress,
    read_rewards,
    save_checkpoint,
)
from rlf.engines.local.host import Pipeline, PolicyHost, copy_for_sampling, copy_weights
from rlf.engines.local.model import PolicyModel, load_model, resolve_device, resolve_dtype, save_model
from rlf.engines.local.update import Updater, UpdateResult
from rlf.spec.models import CheckpointSpec, ModelSpec, Schedule
from rlf.training.batch import make_batch
from rlf.training.collection import Collector, StepCollection
from rlf.training.evaluation import evaluate_policy, step_metrics
from rlf.training.harness import Teaching, build_harness, import_app, open_demonstrations, open_teaching
from rlf.training.outages import Outages
from rlf.types.events import CheckpointSaved, EventSink, Notice, StepFinished
from rlf.types.score import Scored

if TYPE_CHECKING:
    from rlf.processes.gpu import GpuWatch

logger = logging.getLogger(__name__)
_OF_MODEL = ("loss/", "policy/", "time/", "tokens/", "turns/", "memory/", "throughput/update", "tools/calls_per")
"""The metrics of a step that imitates: nothing of rewards and groups, which are no policy's."""


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
        teaching: Teaching | None = None,
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
            teaching: shows the teacher of an estimator what the policy does not see; None: there is nothing.
        """
        self.progress = TrainingProgress()
        self._host = host
        self._pipeline = pipeline
        self._sampler = host if pipeline is None else pipeline.host
        self._num_behind = 0
        """Updates that the sampler's weights are behind where the run begins."""
        self._ahead: asyncio.Task[tuple[StepCollection, dict[str, float]]] | None = None
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
        self._teaching = teaching
        self._reward_state = self._reward.state()
        """What terms had counted when the last step's collection was whole."""

    def go_back(self, checkpoint: Path) -> None:
        """Restores the state of a checkpoint."""
        from rlf.engines.local.restored import load_checkpoint, load_sampler_weights

        load_checkpoint(checkpoint, self._updater)
        self.progress = read_progress(checkpoint)
        self._reward_state = read_rewards(checkpoint)
        self._reward.restore(self._reward_state)
        # A pipeline's next rollouts were sampled with the weights that the sampler had then, a step behind the policy.
        # They are played again, so those weights come back too; without them the policy's own stand in.
        if self._pipeline is not None:
            copy_weights(self._host.model, self._sampler.model)
            self._num_behind = int(load_sampler_weights(checkpoint, self._sampler.model))

    async def run(self) -> None:
        """Runs to the last step."""
        if self._pipeline is not None or self._collector.has_stragglers:
            self._sampler.record_versions(self.progress.step - self._num_behind)
        try:
            if self.progress.step == 0:
                await self._collector.certify_agent()
            await self._evaluate_if_due()
            while self.progress.step < self._settings.steps:
                await self._step()
                await self._evaluate_if_due()
                # After the evaluation: the best step is known by then, and its checkpoint is the one to keep.
                step = self.progress.step
                if step in (self._settings.steps, self.progress.best_step) or step % self._checkpoint.every == 0:
                    self.save()
        finally:
            # What was collected for a step that will not be made is dropped: a resume collects it again, from the
            # cursor of the last whole step.
            if self._ahead is not None:
                self._ahead.cancel()
                await asyncio.gather(self._ahead, return_exceptions=True)
            await self._collector.close(self.progress.step + 1)

    async def _collect(
        self, step: int, before: TrainingProgress | StepCollection
    ) -> tuple[StepCollection, dict[str, float]]:
        """The collection of a step, and how long it took."""
        started, held_s = time.perf_counter(), self._sampler.held_s
        collection = await self._collector.collect(step, before.cursor, before.late, before.drawn)
        taken_s, held_s = time.perf_counter() - started, self._sampler.held_s - held_s
        return collection, {"time/generate_s": taken_s, "time/schedule_s": held_s}

    async def _begin_next(self, step: int, collection: StepCollection) -> None:
        """Begins what of the next step needs no update: in a pipeline its rollouts, else the reset of its worlds."""
        # The collection of this step is whole, and that of the next one has not begun: what terms count across steps
        # (running means, curricula) is now what a resume after this step must find.
        self._reward_state, self._ahead = self._reward.state(), None
        if step == self._settings.steps:
            return
        if self._pipeline is None:
            if step not in self._due_steps:  # an evaluation needs all the worlds that there may be
                await self._collector.prepare(step + 1, collection.cursor, collection.drawn)
            return
        # At steps, the sampler changes its weights here alone, between two collections: what a rollout was sampled with
        # follows from its step and not from how long an update took.
        if self._pipeline.at_steps:
            await self._pipeline.renew(step - 1)
        self._ahead = asyncio.ensure_future(self._collect(step + 1, collection))

    async def _step(self) -> None:
        started, step, used_s = time.perf_counter(), self.progress.step + 1, sum(os.times()[:4])
        collecting = self._ahead or self._collect(step, self.progress)
        collection, times = await collecting
        generated = time.perf_counter()
        used = collection.choose_used(mask_truncated=self._settings.mask_truncated)
        update = asyncio.ensure_future(self._update(used, step, collection))
        cancelled = False
        try:
            result = await asyncio.shield(update)
        except asyncio.CancelledError:  # weights are never left between two steps: the stop comes after this one
            result, cancelled = await update, True
        finished = time.perf_counter()
        times |= {"time/step_s": finished - started, "time/update_s": finished - generated}
        times["time/processor_s"] = sum(os.times()[:4]) - used_s
        # By the clock, as soon as there are new ones: rollouts under way go on with them.
        if self._pipeline is not None and not self._pipeline.at_steps:
            await self._pipeline.renew(step)
        self._finish_step(step, collection, used, result, times)
        if cancelled:
            raise asyncio.CancelledError

    def _finish_step(
        self,
        step: int,
        collection: StepCollection,
        used: Sequence[Scored],
        result: UpdateResult,
        times: dict[str, float],
    ) -> None:
        own = result.metrics | times | collection.metrics | _staleness(used, step)
        device = self._host.model.device
        own |= {"memory/peak_bytes": _peak_bytes(device), **_resident_bytes()}
        own |= _gpu(device).take() if device.type == "cuda" else {}
        advantages = dict(zip((item.trajectory.id for item in used), result.advantages, strict=True))
        metrics = step_metrics(
            collection.collected,
            used,
            advantages=advantages,
            num_groups=collection.num_groups,
            own=own,
            mask_truncated=self._settings.mask_truncated,
        )
        metrics |= collection.greedy_metrics()
        if self._collector.imitates(step):
            metrics = {name: value for name, value in metrics.items() if name.startswith(_OF_MODEL)}
            metrics["demonstrations"] = float(len(used))
        scored = [*collection.collected, *(collection.greedy or ())]
        # The event before the progress: a stop between the two repeats the step, and the lineage takes it in place of
        # this one; the other way around it would be missing.
        self._emit(StepFinished(step, metrics, scored, [advantages.get(item.trajectory.id) for item in scored]))
        self.progress = replace(
            self.progress, step=step, cursor=collection.cursor, late=collection.late, drawn=dict(collection.drawn)
        )

    async def _update(self, used: Sequence[Scored], step: int, collection: StepCollection) -> UpdateResult:
        """Begins the next step, and updates the policy."""
        await self._begin_next(step, collection)
        if not used:
            text = f"step {step}: no trajectory could be learnt from; the policy was not updated"
            self._emit(Notice("warning", text, {"step": step}))
            return UpdateResult({}, [])
        batch = make_batch(
            used,
            observations_in_loss=self._settings.observations_in_loss,
            marks_observations=self._settings.loss.observations > 0,
            reads_turns=self._settings.algorithm.reads_turns,
            greedy_by_task=collection.greedy_by_task,
        )
        if self._teaching is not None and not self._collector.imitates(step):
            batch = self._teaching.add_rows(batch, used)
        batch = batch.to(self._host.model.device)
        with stage(f"update {step}"):
            result = await self._host.change_weights(partial(self._updater.update, batch, step), step)
        if result.metrics.get("teacher/taught") == 0:
            text = f"step {step}: the teacher was shown nothing of any trajectory; the policy learned nothing"
            self._emit(Notice("warning", text, {"step": step}))
        if self._collector.imitates(step) and (step in self._due_steps or not self._collector.imitates(step + 1)):
            await self._measure_heldout(result.metrics)
        return result

    async def _measure_heldout(self, metrics: dict[str, float]) -> None:
        """Adds the loss of the demonstrations that no step imitates, where there are any."""
        assert self._collector.demonstrations is not None, "held out of nothing"
        if shown := await self._collector.demonstrations.heldout():
            batch = make_batch(shown).to(self._host.model.device)
            metrics["loss/heldout"] = await asyncio.to_thread(self._updater.mean_cross_entropy, batch)

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
        # A collection that is ahead has moved the terms' counts already, and a resume makes it again.
        state = self._reward.state() if self._ahead is None else self._reward_state
        behind = self._sampler.model if self._pipeline is not None and self._pipeline.at_steps else None
        started = time.perf_counter()
        with stage(f"checkpoint {self.progress.step}"):
            path, digest = save_checkpoint(self._folder, self._updater, self.progress, state, behind)
        kept = kept_steps(self._folder, self._checkpoint.keep, self.progress)
        self._emit(CheckpointSaved(self.progress.step, str(path), digest, kept, time.perf_counter() - started))
        # Older ones go only when the lineage names the new one: it never points at a folder that is gone.
        self._flush()
        prune_checkpoints(self._folder, kept)


def _staleness(used: Sequence[Scored], step: int) -> dict[str, float]:
    """Updates that the sampled tokens are behind a step's policy; empty where they are not recorded."""
    behind = [step - 1 - version for item in used for version in item.trajectory.versions]
    return {"policy/staleness/mean": fmean(behind), "policy/staleness/max": float(max(behind))} if behind else {}


def _gpu(device: torch.device) -> GpuWatch:
    from rlf.processes.gpu import watch_gpu

    return watch_gpu(f"GPU-{torch.cuda.get_device_properties(device).uuid}")


def _peak_bytes(device: torch.device) -> float:
    """Largest resident size of this process so far; on a GPU, the most that its tensors held there."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def _resident_bytes() -> dict[str, float]:
    """Resident size of this process now; empty where the system does not say."""
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return {"memory/resident_bytes": float(pages * os.sysconf("SC_PAGE_SIZE"))}
    return {}


class LocalEngine:
    """One run, from the model's loading to its last checkpoint."""

    def __init__(
        self,
        opening: Opening,
        *,
        device: Literal["auto", "cpu", "cuda"],
        threads: int,
        share_prefixes: bool,
        gradient_checkpointing: bool,
        outage_s: float,
    ) -> None:
        """Loads the model and builds every part; nothing is written yet.

        Args:
            device: `auto` takes a GPU when there is one.
            threads: CPU cores that the update uses.
            share_prefixes: whether the update computes what trajectories begin with in common once.
            gradient_checkpointing: whether the backward pass computes layers again, to hold less of them.
            outage_s: how long the run waits for tools and reward terms that are down.
        """
        spec, inputs, emit = opening.plan.spec, opening.inputs, opening.emit
        self._folder = opening.folder
        self._device = resolve_device(device)
        if self._device.type == "cuda":
            _gpu(self._device)
        self.threads = threads
        """CPU cores that the update uses."""
        # One core per operation: many small ones run side by side instead of waiting for each other's halves.
        self._workers = ThreadPoolExecutor(self.threads, "rlf-update", initializer=torch.set_num_threads, initargs=(1,))
        self._tokenizer = load_tokenizer(inputs.model_path)

        def notify(level: str, text: str) -> None:
            emit(Notice(level, text, {}))

        self._harness = build_harness(spec, self._tokenizer, notify, opening.traffic)
        outages = Outages(outage_s, notify, spec.rewards)
        model = self._load(inputs.model_path, spec.model, spec.seed, frozen=False)
        if gradient_checkpointing:
            checkpoint_layers(model.full)
        updater = self._new_updater(opening, model, share_prefixes=share_prefixes)
        self._host, self._pipeline = self._new_hosts(opening, model)
        self._sampler = self._host if self._pipeline is None else self._pipeline.host
        self._trainer = self._new_trainer(opening, updater, outages)

    def _new_hosts(self, opening: Opening, model: PolicyModel) -> tuple[PolicyHost, Pipeline | None]:
        """The host of the policy, and a pipeline that samples from a copy where rollouts may be stale."""
        spec, inputs = opening.plan.spec, opening.inputs
        per_step = math.ceil(spec.train.prompts_per_step * spec.rollout.oversample) * spec.rollout.num_generations
        per_evaluation = len(inputs.evaluation) * spec.eval.num_samples
        new_host = partial(
            PolicyHost,
            decode=self._harness.chat.decode,
            num_slots=min(spec.most_at_once, max(per_step, per_evaluation)),
            max_tokens=spec.rollout.max_total_tokens,
            schedule=spec.rollout.schedule,
            may_wait=spec.rollout.may_wait,
        )
        host, pipeline = new_host(model), None
        if host.schedule is not spec.rollout.schedule:
            text = f"rollout.schedule: no invariant one on {self._device}; batches wait for the slowest tool"
            opening.emit(Notice("info", text, {"schedule": host.schedule}))
        if spec.train.staleness:
            at_steps = spec.rollout.schedule is not Schedule.CLOCK
            pipeline = Pipeline(new_host(copy_for_sampling(model)), model, at_steps=at_steps)
        return host, pipeline

    def _new_trainer(self, opening: Opening, updater: Updater, outages: Outages) -> Trainer:
        """What collects, updates, evaluates and saves; evaluations are of the policy's host, which has every update."""
        spec, inputs, emit = opening.plan.spec, opening.inputs, opening.emit
        try_policy = partial(
            evaluate_policy,
            self._host,
            self._harness,
            inputs.evaluation,
            spec.eval,
            seed=spec.seed,
            emit=emit,
            outages=outages,
            max_usd=spec.limits.max_usd_per_evaluation,
        )
        return Trainer(
            self._host,
            self._pipeline,
            updater,
            Collector(
                self._sampler,
                self._harness,
                inputs.train,
                spec.train,
                spec.rollout,
                seed=spec.seed,
                emit=emit,
                outages=outages,
                demonstrations=open_demonstrations(spec, self._harness),
            ),
            opening.folder / "checkpoints",
            spec.checkpoint,
            evaluate=(lambda step: try_policy(step=step)) if inputs.evaluation else None,
            due_steps=spec.eval.due_steps(spec.train.steps),
            emit=emit,
            flush=opening.flush,
            teaching=open_teaching(spec, self._harness),
        )

    def _new_updater(self, opening: Opening, model: PolicyModel, *, share_prefixes: bool) -> Updater:
        """The updater of the run's policy, with its reference where the spec penalises the distance from one."""
        spec, path, reference, teacher = opening.plan.spec, opening.inputs.model_path, None, None
        if spec.train.has_reference:
            reference = self._load(path, spec.model, spec.seed, frozen=True)
        if (name := getattr(spec.train.algorithm, "teacher", None)) is not None and spec.train.algorithm.needs_teacher:
            module = import_app("train.algorithm.teacher", "demos", "teaching")
            named = module.find_teacher(name, self._tokenizer)
            teacher = self._load(named, spec.model, spec.seed, frozen=True)
        return Updater(
            model,
            spec.train,
            temperature=spec.rollout.temperature,
            seed=spec.seed,
            demonstrations=spec.data.demonstrations,
            reference=reference,
            teacher=teacher,
            workers=self._workers if self._device.type == "cpu" else None,
            share_prefixes=share_prefixes,
        )

    def _load(self, path: str, settings: ModelSpec, seed: int, *, frozen: bool) -> PolicyModel:
        torch.manual_seed(derive_seed(seed, "weights"))  # adapters and heads start from the run's seed
        dtype = resolve_dtype(settings.dtype, self._device)
        lora = None if frozen else settings.lora
        return load_model(path, dtype=dtype, device=self._device, lora=lora, frozen=frozen)

    @property
    def chat(self) -> ChatFormat:
        """The format that the run's conversations are written in."""
        return self._harness.chat

    @property
    def step(self) -> int:
        """Updates made so far."""
        return self._trainer.progress.step

    @property
    def place(self) -> str:
        """`cpu` or `cuda`."""
        return str(self._device)

    def go_back(self, start: Start, last_step: int) -> None:
        """Restores the state of a checkpoint."""
        if start.checkpoint is not None:
            self._trainer.go_back(start.checkpoint)

    async def run(self) -> None:
        """Runs to the last step. When cancelled, or stopped by an outage, saves what is complete and re-raises."""
        try:
            async with self._harness.opened(), self._host, self._sampler:
                await self._trainer.run()
                publish_folder(
                    self._folder / "model", lambda place: save_model(self._host.model, self._tokenizer, place)
                )
        except (asyncio.CancelledError, OutageError):
            if self.step > 0:
                self._trainer.save()
            raise
        finally:
            self._workers.shutdown(wait=True)

    def leave_job(self) -> None:
        """Does nothing: no part of the run outlives this process."""
