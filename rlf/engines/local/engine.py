"""The local engine: collect, update, evaluate, checkpoint; torch and transformers in one process.

Events go out in order on the event loop's thread; all model work happens on one thread of its own. A step is over
when its StepFinished is out: a stop in between loses the collection under way and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import torch

from rlf.chat.format import ChatFormat
from rlf.chat.tokenizer import load_tokenizer
from rlf.core.machine import usable_cores
from rlf.core.seeds import derive_seed
from rlf.engines.engine import Inputs, Start
from rlf.engines.local.checkpoint import (
    Progress,
    kept_steps,
    load_checkpoint,
    note_best,
    prune_checkpoints,
    publish_folder,
    read_progress,
    read_rewards,
    save_checkpoint,
)
from rlf.engines.local.model import (
    PolicyModel,
    load_model,
    resolve_device,
    resolve_dtype,
    save_model,
)
from rlf.engines.local.sampler import Sampler
from rlf.engines.local.update import Updater, UpdateResult
from rlf.rollout.collect import Halt, collect
from rlf.spec.engines.local import LocalEngineSpec
from rlf.spec.models import RunSpec, Schedule
from rlf.training.batch import make_batch
from rlf.training.counting import counts
from rlf.training.evaluation import evaluation_metrics
from rlf.training.groups import keep_groups
from rlf.training.harness import Harness, Traffic, build_harness
from rlf.training.metrics import step_metrics
from rlf.training.rollouts import draw_tasks, evaluation_rollout, greedy_rollouts, training_rollout
from rlf.types.events import CheckpointSaved, EvaluationFinished, EventSink, Interrupted, Notice, StepFinished
from rlf.types.policy import Sampling
from rlf.types.score import Scored
from rlf.types.trajectory import StopReason

logger = logging.getLogger(__name__)

_MAX_THREADS = 8


class LocalEngine:
    """One run, from the model's loading to its last checkpoint."""

    def __init__(
        self,
        spec: RunSpec,
        inputs: Inputs,
        folder: Path,
        *,
        emit: EventSink,
        flush: Callable[[], None],
        traffic: Traffic | None = None,
    ) -> None:
        """Loads the model and builds every part; nothing is written yet.

        Args:
            folder: where checkpoints and the final model go.
            emit: takes every event, in order.
            flush: returns when every event emitted so far is safe.
            traffic: what happens to tool calls on their way; None: nothing.
        """
        assert isinstance(spec.engine, LocalEngineSpec), f"a plan for engine {spec.engine.kind}"
        self.spec = spec
        self.inputs = inputs
        self.folder = folder
        self.emit = emit
        self._flush = flush
        self.progress = Progress()
        self.device = resolve_device(spec.engine.device)
        self.threads = spec.engine.threads or min(_MAX_THREADS, usable_cores())
        """CPU cores that the update uses."""
        # One core per operation: many small ones run side by side instead of waiting for each other's halves.
        self._thread = ThreadPoolExecutor(1, "rlf-model", initializer=torch.set_num_threads, initargs=(1,))
        self._workers = ThreadPoolExecutor(self.threads, "rlf-update", initializer=torch.set_num_threads, initargs=(1,))
        tokenizer = load_tokenizer(inputs.model_path)
        self._tokenizer = tokenizer
        traffic = traffic or Traffic()
        self._meter = traffic.meter
        self._harness: Harness = build_harness(spec, tokenizer, self._notify, traffic)
        self._model = self._load(frozen=False)
        train = spec.train
        reference = self._load(frozen=True) if train.kl.coef > 0 else None
        self._updater = Updater(
            self._model,
            train,
            temperature=spec.rollout.temperature,
            seed=spec.seed,
            reference=reference,
            workers=self._workers if self.device.type == "cpu" else None,
        )

    def _load(self, *, frozen: bool) -> PolicyModel:
        spec = self.spec.model
        torch.manual_seed(derive_seed(self.spec.seed, "weights"))  # adapters and heads start from the run's seed
        dtype = resolve_dtype(spec.dtype, self.device)
        lora = None if frozen else spec.lora
        return load_model(self.inputs.model_path, dtype=dtype, device=self.device, lora=lora, frozen=frozen)

    def _notify(self, level: str, text: str) -> None:
        self.emit(Notice(level, text, {}))

    @property
    def chat(self) -> ChatFormat:
        """The format that the run's conversations are written in."""
        return self._harness.chat

    @property
    def step(self) -> int:
        """Updates made so far."""
        return self.progress.step

    @property
    def place(self) -> str:
        """`cpu` or `cuda`."""
        return str(self.device)

    def go_back(self, start: Start, last_step: int) -> None:
        """Puts the run where a checkpoint left it."""
        if start.checkpoint is not None:
            load_checkpoint(start.checkpoint, self._updater)
            self.progress = read_progress(start.checkpoint)
            self._harness.reward.restore(read_rewards(start.checkpoint))

    async def run(self) -> None:
        """Runs to the last step. When cancelled, saves what is complete and re-raises."""
        try:
            async with self._harness.tools, self._harness.reward:
                sampler = self._new_sampler()
                try:
                    await self._run(sampler)
                finally:
                    await sampler.close()
        except asyncio.CancelledError:
            if self.progress.step > 0:
                self._checkpoint()
            raise
        finally:
            self._thread.shutdown(wait=True)
            self._workers.shutdown(wait=True)

    def _new_sampler(self) -> Sampler:
        spec = self.spec
        per_step = spec.train.prompts_per_step * spec.rollout.num_generations
        per_evaluation = len(self.inputs.evaluation) * spec.eval.num_samples
        return Sampler(
            self._model,
            num_slots=min(spec.rollout.max_concurrency, max(per_step, per_evaluation)),
            max_tokens=spec.rollout.max_total_tokens,
            logical=spec.rollout.schedule is Schedule.LOGICAL,
            executor=self._thread,
            decode=self._harness.chat.decode,
        )

    async def _run(self, sampler: Sampler) -> None:
        await self._evaluate_if_due(sampler)
        while self.progress.step < self.spec.train.steps:
            await self._step(sampler)
            await self._evaluate_if_due(sampler)
            step = self.progress.step
            if step in (self.spec.train.steps, self.progress.best_step) or step % self.spec.checkpoint.every == 0:
                self._checkpoint()
        publish_folder(self.folder / "model", lambda place: save_model(self._model, self._tokenizer, place))

    async def _step(self, sampler: Sampler) -> None:
        started, held_s = time.perf_counter(), sampler.held_s
        collected, kept, cursor = await self._collect(sampler)
        greedy = (
            await self._collect_greedy(sampler, collected, kept) if self.spec.train.algorithm.needs_greedy else None
        )
        generated, held_s = time.perf_counter(), sampler.held_s - held_s
        step = self.progress.step + 1
        used = self._choose_used(kept, greedy)
        update = asyncio.ensure_future(self._update(used, step, greedy))
        cancelled = False
        try:
            result = await asyncio.shield(update)
        except asyncio.CancelledError:  # weights are never left between two steps: the stop comes after this one
            result, cancelled = await update, True
        finished = time.perf_counter()
        own = {
            "time/step_s": finished - started,
            "time/generate_s": generated - started,
            "time/update_s": finished - generated,
            "time/schedule_s": held_s,
            "memory/peak_bytes": _peak_bytes(),
        }
        num_groups = len({item.trajectory.task.id for item in kept})
        metrics = step_metrics(collected, used, num_groups=num_groups, own=result.metrics | own)
        advantage_by_id = dict(zip((item.trajectory.id for item in used), result.advantages, strict=True))
        if greedy is not None:
            metrics |= _greedy_metrics(greedy)
            collected = [*collected, *greedy]
        self.emit(StepFinished(step, metrics, collected, [advantage_by_id.get(s.trajectory.id) for s in collected]))
        self.progress = replace(self.progress, step=step, cursor=cursor)
        if cancelled:
            raise asyncio.CancelledError

    async def _collect(self, sampler: Sampler) -> tuple[list[Scored], list[Scored], int]:
        """Trajectories of one step, those of them that dynamic filtering keeps, and the cursor after them."""
        train, num = self.spec.train, self.spec.rollout.num_generations
        setting = self._harness.setting(sampler, self._harness.training)
        filtering, cursor, step = train.dynamic_filtering, self.progress.cursor, self.progress.step + 1
        collected, kept = list[Scored](), list[Scored]()

        def cut_off(left: list[Scored]) -> None:
            self.emit(Interrupted(step, [*collected, *left]))

        for _ in range(filtering.max_rounds if filtering else 1):
            wanted = train.prompts_per_step - len({item.trajectory.task.id for item in kept})
            if wanted <= 0:
                break
            rollouts = [
                training_rollout(task, position, sample, self.spec.seed)
                for position, task in draw_tasks(self.inputs.train, self.spec.seed, cursor, wanted)
                for sample in range(num)
            ]
            scored = await collect(rollouts, setting, self._harness.reward, step=step, cut_off=cut_off)
            cursor += wanted
            collected += scored
            kept += keep_groups(scored, filtering)
        return collected, kept, cursor

    async def _collect_greedy(
        self, sampler: Sampler, collected: Sequence[Scored], kept: Sequence[Scored]
    ) -> list[Scored]:
        """One greedy trajectory of each task that is kept, with the same weights; for estimators that need them."""
        step = self.progress.step + 1
        rollouts = greedy_rollouts(kept, self.spec.seed, self.spec.rollout.num_generations)
        return await collect(
            rollouts,
            self._harness.setting(sampler, self._harness.greedy),
            self._harness.reward,
            step=step,
            cut_off=lambda left: self.emit(Interrupted(step, [*collected, *left])),
        )

    def _choose_used(self, kept: Sequence[Scored], greedy: Sequence[Scored] | None) -> list[Scored]:
        """The trajectories that the update learns from; none where all of them would be masked."""
        baselines = None if greedy is None else _rewards_by_task(greedy)
        used = [item for item in kept if counts(item)]
        if baselines is not None:
            used = [item for item in used if item.trajectory.task.id in baselines]
        if self.spec.train.mask_truncated and all(item.trajectory.stop is StopReason.LENGTH for item in used):
            return []
        return used

    async def _update(self, used: Sequence[Scored], step: int, greedy: Sequence[Scored] | None) -> UpdateResult:
        if not used:
            text = f"step {step}: no trajectory could be learnt from; the policy was not updated"
            self.emit(Notice("warning", text, {"step": step}))
            return UpdateResult({}, [])
        batch = make_batch(
            used,
            observations_in_loss=self.spec.train.observations_in_loss,
            greedy_by_task=None if greedy is None else _rewards_by_task(greedy),
        ).to(self.device)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._updater.update, batch, step)

    async def _evaluate_if_due(self, sampler: Sampler) -> None:
        """Evaluates after the steps that the spec names, the first and the last; once each, also after a resume."""
        spec, step = self.spec.eval, self.progress.step
        is_due = self.progress.evaluated < 0 or step in spec.due_steps(self.spec.train.steps)
        if not is_due or not self.inputs.evaluation or self.progress.evaluated == step:
            return
        success = await self._evaluate_mode(sampler, "sampled", self._harness.evaluation, spec.num_samples)
        if spec.greedy:
            await self._evaluate_mode(sampler, "greedy", self._harness.greedy, 1)
        self.progress = note_best(replace(self.progress, evaluated=step), success)

    async def _evaluate_mode(self, sampler: Sampler, mode: str, sampling: Sampling, num_samples: int) -> float | None:
        """Evaluates in one mode; its success, None where no trajectory could be scored."""
        started, step = time.perf_counter(), self.progress.step
        rollouts = [
            evaluation_rollout(task, mode, sample, self.spec.seed, step)
            for task in self.inputs.evaluation
            for sample in range(num_samples)
        ]
        halt, max_usd = Halt(), self.spec.limits.max_usd_per_evaluation
        with self._meter.bounded(max_usd, halt.call):
            scored = await collect(
                rollouts,
                self._harness.setting(sampler, sampling),
                self._harness.reward,
                step=step,
                cut_off=lambda left: self.emit(Interrupted(step, left)),
                halt=halt,
            )
        if halt.is_called:
            what = f"evaluation after step {step}, {mode}: limits.max_usd_per_evaluation ({max_usd:g}) is spent"
            text = f"{what}; it ends with {len(scored)} of {len(rollouts)} trajectories"
            self.emit(Notice("warning", text, {"step": step, "num_done": len(scored), "num_planned": len(rollouts)}))
        metrics = evaluation_metrics(scored, num_samples)
        metrics["time/total_s"] = time.perf_counter() - started
        self.emit(EvaluationFinished(step, mode, metrics, scored))
        return metrics.get("success")

    def leave_job(self) -> None:
        """Nothing of it outlives this process."""

    def _checkpoint(self) -> None:
        self._flush()  # fails where another process owns the run, and with it the folder
        folder = self.folder / "checkpoints"
        path, digest = save_checkpoint(folder, self._updater, self.progress, self._harness.reward.state())
        kept = kept_steps(folder, self.spec.checkpoint.keep, self.progress)
        self.emit(CheckpointSaved(self.progress.step, str(path), digest, kept))
        self._flush()
        prune_checkpoints(folder, kept)


def _rewards_by_task(greedy: Sequence[Scored]) -> dict[str, float]:
    """Rewards of the greedy trajectories that have one."""
    return {item.trajectory.task.id: item.reward for item in greedy if item.reward is not None}


def _greedy_metrics(greedy: Sequence[Scored]) -> dict[str, float]:
    rewards = list(_rewards_by_task(greedy).values())
    metrics = {"groups/without_greedy": float(len(greedy) - len(rewards))}
    return metrics | ({"reward/greedy/mean": fmean(rewards)} if rewards else {})


def _peak_bytes() -> float:
    """Largest resident size of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
