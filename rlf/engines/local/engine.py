"""The local engine: torch and transformers in one process, a policy host with a trainer around it."""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal

import torch

from rlf.chat.encoding import load_tokenizer
from rlf.chat.format import ChatFormat
from rlf.core.identity import derive_seed
from rlf.engines.engine import Opening, Start
from rlf.engines.local.attention import checkpoint_layers
from rlf.engines.local.checkpoint import publish_folder
from rlf.engines.local.host import Pipeline, PolicyHost, copy_for_sampling
from rlf.engines.local.model import PolicyModel, load_model, resolve_device, resolve_dtype, save_model
from rlf.engines.local.trainer import Trainer
from rlf.engines.local.update import Updater
from rlf.spec.models import ModelSpec, Schedule
from rlf.training.collection import Collector
from rlf.training.evaluation import evaluate
from rlf.training.harness import build_harness
from rlf.training.outages import OutageError, Outages
from rlf.types.events import Notice


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
        self.threads = threads
        """CPU cores that the update uses."""
        # One core per operation: many small ones run side by side instead of waiting for each other's halves.
        self._workers = ThreadPoolExecutor(self.threads, "rlf-update", initializer=torch.set_num_threads, initargs=(1,))
        self._tokenizer = load_tokenizer(inputs.model_path)

        def notify(level: str, text: str) -> None:
            emit(Notice(level, text, {}))

        self._harness = build_harness(spec, self._tokenizer, notify, opening.traffic)
        outages = Outages(outage_s, notify)
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
        )
        host, pipeline = new_host(model), None
        if spec.train.staleness:
            at_steps = spec.rollout.schedule is not Schedule.CLOCK
            pipeline = Pipeline(new_host(copy_for_sampling(model)), model, at_steps=at_steps)
        return host, pipeline

    def _new_trainer(self, opening: Opening, updater: Updater, outages: Outages) -> Trainer:
        """What collects, updates, evaluates and saves; evaluations are of the policy's host, which has every update."""
        spec, inputs, emit = opening.plan.spec, opening.inputs, opening.emit
        try_policy = partial(
            evaluate,
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
            ),
            opening.folder / "checkpoints",
            spec.checkpoint,
            evaluate=(lambda step: try_policy(step=step)) if inputs.evaluation else None,
            due_steps=spec.eval.due_steps(spec.train.steps),
            emit=emit,
            flush=opening.flush,
        )

    def _new_updater(self, opening: Opening, model: PolicyModel, *, share_prefixes: bool) -> Updater:
        """The updater of the run's policy, with its reference where the spec penalises the distance from one."""
        spec, path, reference = opening.plan.spec, opening.inputs.model_path, None
        if spec.train.kl.coef > 0:
            reference = self._load(path, spec.model, spec.seed, frozen=True)
        return Updater(
            model,
            spec.train,
            temperature=spec.rollout.temperature,
            seed=spec.seed,
            reference=reference,
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
