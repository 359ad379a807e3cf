"""The two stages that make the shipped policy: skills first, then carelessness.

Stage A teaches the skills (form a query, copy a name, chain two look-ups) on a fresh world every batch, to a criterion
on the validation world. Stage B teaches the model to use them in a minority of cases. Both are counted in steps and
seeded, so a machine's speed changes nothing.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from benchmarks.embedded.encyclopedia.questions import Kind
from benchmarks.embedded.tiny.demonstrations import (
    Careless,
    Demonstration,
    Scene,
    careless_demonstration,
    clean_demonstration,
    copy_drill,
    disabled_demonstration,
    sample_scene,
)

logger = logging.getLogger(__name__)

_CONTEXT_WEIGHT = 0.1
_MAX_GRADIENT_NORM = 1.0
_NUM_BY_KIND = {Kind.SINGLE: 18, Kind.TWO_HOP: 10, Kind.PARALLEL: 9, Kind.CALCULATION: 9}
_NUM_COPY_DRILLS = 12
_NUM_DISABLED = 1
_MINIMUM_RATE = 0.02
_LOG_EVERY = 100


BatchOfStep = Callable[[int], Sequence[Demonstration]]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Rates and steps of stage A."""

    muon_rate: float = 0.02
    adamw_rate: float = 3e-3
    warmup_steps: int = 30
    constant_steps: int = 350
    """Steps at the full rate."""
    decay_steps: int = 550
    """Steps of the cosine that follows."""


@dataclass(frozen=True, slots=True)
class SkillsPlan(Schedule):
    """Stage A."""

    criterion: float = 0.98
    """Greedy success that each kind must reach in the end."""


@dataclass(frozen=True, slots=True)
class HabitsPlan:
    """Rates and steps of stage B."""

    muon_rate: float = 0.002
    adamw_rate: float = 5e-4
    steps: int = 125
    batch_size: int = 48


@dataclass(frozen=True, slots=True)
class PolicyPlan(HabitsPlan):
    """Stage B."""

    share_by_fault: tuple[tuple[Careless, float], ...] = (
        (Careless.GUESS, 0.29),
        (Careless.GIVE_UP, 0.38),
        (Careless.STOP_EARLY, 0.03),
        (Careless.WRONG_QUERY, 0.02),
        (Careless.WRONG_ATTRIBUTE, 0.015),
        (Careless.MALFORMED, 0.015),
    )
    """The share of demonstrations with each fault; the rest are clean."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What a trainer is given: the plan, each step's rows, and how it weighs and pads them."""

    plan: Schedule | HabitsPlan
    batch_of_step: BatchOfStep
    scale: float = 1.0
    """Share of the plan's rates at which habits begin."""
    num_chunks: int = 1
    """A step's rows are padded apart in so many chunks, by length."""
    context_weight: float = _CONTEXT_WEIGHT
    """Of a token that the model reads; one that it writes has 1."""

    @property
    def num_steps(self) -> int:
        """How many there are."""
        return (
            self.plan.steps if isinstance(self.plan, HabitsPlan) else self.plan.constant_steps + self.plan.decay_steps
        )


class Trainer:
    """Muon (Jordan 2024) on the matrices of the layers, AdamW on embeddings and gains, one schedule for both.

    Copying is learned by Muon within a few hundred steps; AdamW alone was far behind after as many.
    """

    def __init__(
        self,
        model: Qwen3ForCausalLM,
        tokenizer: PreTrainedTokenizerFast,
        stage: Stage,
    ) -> None:
        """Takes the model and the peak rates of a stage."""
        named = list(model.named_parameters())
        matrices = [parameter for name, parameter in named if parameter.ndim == 2 and "embed" not in name]
        others = [parameter for name, parameter in named if parameter.ndim != 2 or "embed" in name]
        self._model = model
        self._pad_id = int(tokenizer.pad_token_id)
        self._num_chunks = stage.num_chunks
        self._context_weight = stage.context_weight
        self._optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(matrices, lr=stage.plan.muon_rate, weight_decay=0.0),
            torch.optim.AdamW(others, lr=stage.plan.adamw_rate, betas=(0.9, 0.95), weight_decay=0.0),
        ]
        self._peak_rates = [stage.plan.muon_rate, stage.plan.adamw_rate]

    def step(self, rows: Sequence[Demonstration], rate_scale: float) -> float:
        """One update on `rows`; returns the loss."""
        self._model.train()
        total_weight = sum(sum(self._weights(row)) for row in rows)
        loss = 0.0
        for chunk in _chunks(rows, self._num_chunks):
            part = self._weighted_loss(chunk) / total_weight
            part.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
            loss += float(part.detach())
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), _MAX_GRADIENT_NORM)
        for optimizer, peak_rate in zip(self._optimizers, self._peak_rates, strict=True):
            optimizer.param_groups[0]["lr"] = peak_rate * rate_scale
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss

    def _weights(self, row: Demonstration) -> list[float]:
        """Of each token but the first, which nothing precedes."""
        return [1.0 if action else self._context_weight for action in row.is_action[1:]]

    def _weighted_loss(self, rows: Sequence[Demonstration]) -> torch.Tensor:
        """Sum of the weighted cross-entropies; logits are computed only where there is a weight."""
        paddings = [max(len(row.token_ids) for row in rows) - len(row.token_ids) for row in rows]
        pairs = list(zip(rows, paddings, strict=True))
        tokens_BT = torch.tensor([row.token_ids + [self._pad_id] * pad for row, pad in pairs])
        weights_BT = torch.tensor([self._weights(row) + [0.0] * pad for row, pad in pairs])
        hidden_BTD = self._model.model(input_ids=tokens_BT, use_cache=False).last_hidden_state[:, :-1]
        logits_NV = self._model.lm_head(hidden_BTD[weights_BT > 0])
        targets_N = tokens_BT[:, 1:][weights_BT > 0]
        losses_N = torch.nn.functional.cross_entropy(logits_NV, targets_N, reduction="none")
        return (losses_N * weights_BT[weights_BT > 0]).sum()


def make_stages(
    tokenizer: PreTrainedTokenizerFast, seed: int, skills: SkillsPlan, policy: PolicyPlan
) -> tuple[Stage, Stage]:
    """Stage A, clean demonstrations and copy drills, and stage B, mostly careless demonstrations."""
    return (
        Stage(skills, lambda step: _skills_batch(tokenizer, f"skills:{seed}:{step}")),
        Stage(policy, lambda step: _policy_batch(tokenizer, policy, f"policy:{seed}:{step}")),
    )


def teach_skills(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    stage: Stage,
    criterion: float,
    measure: Callable[[], dict[str, float]],
) -> None:
    """Stage A, then a look at the criterion by `measure` (success by kind).

    Raises:
        RuntimeError: the criterion is not met.
    """
    train_skills(model, tokenizer, stage)
    success = measure()
    if min(success.values()) < criterion:
        raise RuntimeError(f"skills end at {success}; each kind must reach {criterion}. Try another seed.")


def train_skills(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, stage: Stage, trains: type[Trainer] = Trainer
) -> None:
    """Warm-up, steps at the full rate, then a cosine."""
    trainer, plan = trains(model, tokenizer, stage), stage.plan
    if not isinstance(plan, Schedule):
        raise TypeError(f"skills need a Schedule, and this is {plan}")
    for step in range(stage.num_steps):
        rate_scale = min(1.0, (step + 1) / plan.warmup_steps)
        if step >= plan.constant_steps:
            rate_scale = _cosine_scale(step - plan.constant_steps, plan.decay_steps)
        loss = trainer.step(stage.batch_of_step(step), rate_scale)
        if (step + 1) % _LOG_EVERY == 0:
            logger.info("skills step %d: loss %.4f", step + 1, loss)


def train_habits(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, stage: Stage) -> None:
    """Steps with a decaying rate, which begins at the stage's share of the plan's."""
    trainer = Trainer(model, tokenizer, stage)
    for step in range(stage.num_steps):
        loss = trainer.step(stage.batch_of_step(step), stage.scale * _cosine_scale(step, stage.num_steps))
    logger.info("habits: loss %.4f after %d steps", loss, stage.num_steps)


def _cosine_scale(step: int, num_steps: int) -> float:
    """The rate of `step` as a share of its peak: half a cosine from 1 down to a fiftieth."""
    return _MINIMUM_RATE + (1 - _MINIMUM_RATE) * 0.5 * (1 + math.cos(math.pi * step / num_steps))


def _skills_batch(tokenizer: PreTrainedTokenizerFast, seed: str) -> list[Demonstration]:
    scene = sample_scene(seed)
    rows = [copy_drill(tokenizer, scene.rng) for _ in range(_NUM_COPY_DRILLS)]
    rows += [disabled_demonstration(tokenizer, scene, scene.question()) for _ in range(_NUM_DISABLED)]
    for kind, count in _NUM_BY_KIND.items():
        rows += [clean_demonstration(tokenizer, scene, scene.question(kind)) for _ in range(count)]
    return rows


def _policy_batch(tokenizer: PreTrainedTokenizerFast, plan: PolicyPlan, seed: str) -> list[Demonstration]:
    scene = sample_scene(seed)
    return [_policy_row(tokenizer, scene, plan) for _ in range(plan.batch_size)]


def _policy_row(tokenizer: PreTrainedTokenizerFast, scene: Scene, plan: PolicyPlan) -> Demonstration:
    question = scene.question()
    fault = _draw_fault(scene.rng, plan)
    if fault is Careless.STOP_EARLY and question.kind is Kind.SINGLE:
        fault = Careless.WRONG_QUERY
    if fault is None:
        return clean_demonstration(tokenizer, scene, question)
    return careless_demonstration(tokenizer, scene, question, fault)


def _draw_fault(rng: random.Random, plan: PolicyPlan) -> Careless | None:
    draw = rng.random()
    for fault, share in plan.share_by_fault:
        draw -= share
        if draw < 0:
            return fault
    return None


def _chunks(rows: Sequence[Demonstration], number: int) -> list[Sequence[Demonstration]]:
    if number == 1:
        return [rows]
    ordered = sorted(rows, key=lambda row: len(row.token_ids))
    size = -(-len(ordered) // number)
    return [ordered[first : first + size] for first in range(0, len(ordered), size)]
