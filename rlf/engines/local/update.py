"""The update: advantages, losses and optimiser steps on one collection of trajectories.

The maths is rlf.algo's; this file decides what is computed when, and computes nothing twice: with a single optimiser
step and no penalty inside the reward, the old log-probabilities are the current ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, advantages_by_world
from rlf.algo.loss_config import Aggregation, CorrectionLevel, PolicyLossConfig, PolicyLossKind, approx_kl, lr_factor
from rlf.algo.losses import PolicyLossOutput, aggregate_loss, loss_denominator, policy_loss, value_loss
from rlf.core.identity import derive_seed
from rlf.engines.local.attention import ATTENTION
from rlf.engines.local.cache import sort_by_tokens, split_rows
from rlf.engines.local.model import Critic, PolicyModel
from rlf.engines.local.parts import MicroBatch, critic_values_of, entropies_of, logprobs_of
from rlf.spec.models import DemonstrationsSpec, KlPlace, KlSpec, TrainSpec
from rlf.training.batch import Batch, micro_batches, teacher_metrics
from rlf.training.evaluation import mean_advantages

T = TypeVar("T")
_NOT_DECAYED = ("bias", "layer_norm.weight", "layernorm.weight", "norm.weight", "ln_f.weight")
"""Parts of the names of biases and norms, as OpenRLHF's `get_optimizer_grouped_parameters` has them."""


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """Results of an update."""

    metrics: dict[str, float]
    advantages: list[float]
    """Mean advantage over the sampled tokens of each trajectory of the batch."""


class _Phase(NamedTuple):
    """Steps of a run that are made alike."""

    train: TrainSpec
    """Their settings, whose `steps` are their number."""
    last: int
    """The last of them."""
    updates_before: int
    samples: bool
    """Whether the policy plays them; else they imitate demonstrations."""


def phases_of(train: TrainSpec, shown: DemonstrationsSpec | None) -> tuple[_Phase, ...]:
    """First the steps that imitate, one update each on the mean cross-entropy of turns, then those that sample."""
    if shown is None:
        return (_Phase(train, train.steps, 0, samples=True),)
    from rlf.algo.advantages.supervised import Supervised

    once = {"epochs": 1, "mini_batches": 1, "entropy_coef": 0.0, "mask_truncated": False, "observations_in_loss": False}
    kinds = {"algorithm": Supervised(), "loss": PolicyLossConfig(kind=PolicyLossKind.GPG), "kl": KlSpec()}
    steps, rate = min(shown.steps or train.steps, train.steps), shown.learning_rate or train.learning_rate
    imitating = train.model_copy(update={**once, **kinds, "learning_rate": rate, "steps": steps})
    first = _Phase(imitating, imitating.steps, 0, samples=False)
    rest = train.model_copy(update={"steps": train.steps - first.last})
    return (first, _Phase(rest, train.steps, first.last, samples=True))


@dataclass(slots=True)
class _Fixed:
    """Values of a batch that its optimiser steps do not change; all [B, T] or None when not needed."""

    old_logprobs_BT: torch.Tensor | None = None
    ref_logprobs_BT: torch.Tensor | None = None
    values_BT: torch.Tensor | None = None
    high_entropy_BT: torch.Tensor | None = None
    """bool: the tokens of highest entropy, over the whole batch."""

    def joined(self, whole: Batch) -> _Fixed:
        """The same for whole trajectories, whose advantages have no segments."""
        stretches, shape = whole.stretches, whole.tokens_BT.shape
        if stretches is None:
            return self
        parts = (self.old_logprobs_BT, self.ref_logprobs_BT, self.values_BT)
        return _Fixed(*(None if part is None else stretches.join(part, shape) for part in parts))


class Updater:
    """Policy, optional reference and critic, and their optimisers."""

    def __init__(
        self,
        model: PolicyModel,
        train: TrainSpec,
        *,
        temperature: float,
        seed: int,
        demonstrations: DemonstrationsSpec | None = None,
        reference: PolicyModel | None = None,
        teacher: PolicyModel | None = None,
        workers: Executor | None = None,
        share_prefixes: bool = True,
    ) -> None:
        """Makes the optimisers.

        Args:
            demonstrations: what the first steps imitate; None: nothing.
            teacher: what an estimator that needs one learns from; None: the reference.
            workers: threads that share the micro-batches, each running on one core; the result is the same bit for
                bit for any number of them. None: one micro-batch after the other, gradients summed in place.
            share_prefixes: whether what rows of a micro-batch begin with in common is computed once.

        Raises:
            ValueError: prefixes are to be shared, and the model has another attention than this engine's, which would
                not see whose prefix a token is.
        """
        if share_prefixes and model.config._attn_implementation != ATTENTION:
            raise ValueError(f"only the attention {ATTENTION!r} shares prefixes; load the model with it")
        self.model = model
        self.train = train
        self.temperature = temperature
        self._phases = phases_of(train, demonstrations)
        self.seed = seed
        self.reference, self._teacher = reference, teacher or reference
        self.critic = Critic(model) if train.algorithm.needs_critic else None
        self.optimizer = self._new_optimizer(model.full, train.learning_rate)
        self.critic_optimizer = (
            self._new_optimizer(self.critic, train.critic.learning_rate) if self.critic is not None else None
        )
        self.num_updates = 0
        """Optimiser steps taken so far, over the whole run."""
        self._workers = workers
        self._share_prefixes = share_prefixes
        self._begin(self._phases[-1])

    @property
    def moves_reference(self) -> bool:
        """Whether the reference becomes another model than the run began with."""
        return self.train.kl.sync_every is not None or len(self._phases) > 1

    def _new_optimizer(self, module: torch.nn.Module, learning_rate: float) -> torch.optim.AdamW:
        train = self.train
        groups = decay_groups(module, train.weight_decay)
        return torch.optim.AdamW(groups, lr=learning_rate, betas=train.adam_betas)

    def update(self, batch: Batch, step: int) -> UpdateResult:
        """Takes every optimiser step that one collection of trajectories gives."""
        phase = self._phases[min(step > self._phases[0].last, len(self._phases) - 1)]
        self._begin(phase)
        train, whole = self._now, batch
        batch = whole.by_stretch()
        # Advantages come before truncation: the reward of a truncated trajectory belongs to its group's baseline, and
        # only its tokens are left out of the loss.
        fixed = self._fixed(batch)
        asked = self._asked(whole, fixed.joined(whole))
        output = advantages_by_world(train.algorithm, asked)
        advantages = mean_advantages(output.advantages_BT, whole.loss_mask_BT)
        if train.mask_truncated:
            whole = whole.without_truncated()
            batch = whole.by_stretch()
        # The share of high entropy is of the tokens in the loss, so it comes after truncation.
        if train.loss.top_entropy < 1:
            from rlf.algo.corrections import high_entropy

            entropy_BT = self._whole(batch, partial(entropies_of, self.model, self._temperature))
            fixed.high_entropy_BT = high_entropy(entropy_BT, batch.loss_mask_BT, train.loss.top_entropy)
        # An estimator sees whole trajectories, the model their segments: back to the rows that the model reads.
        if whole.stretches is not None:
            parts = [whole.stretches.split(part) for part in (output.advantages_BT, output.returns_BT)]
            output = replace(output, advantages_BT=parts[0], returns_BT=parts[1])
        sums: defaultdict[str, float] = defaultdict(float)
        num_updates = 0
        for epoch in range(train.epochs):
            for rows in self._mini_batches(len(batch.rewards_B), step, epoch):
                self._optimiser_step(batch, rows, fixed, output, sums)
                num_updates += 1
        metrics = {name: value / num_updates for name, value in sums.items()}
        metrics |= teacher_metrics(asked)
        metrics["policy/learning_rate"] = self.optimizer.param_groups[0]["lr"]
        # Last, so that every part of this update was penalised by one reference.
        if self.reference is not None and not phase.samples and step == phase.last:
            self._sync_reference(1.0)  # the policy starts here: the base that has learned to call
        if train.kl.sync_every is not None and step % train.kl.sync_every == 0:
            self._sync_reference(train.kl.sync_mix)
        return UpdateResult(metrics, advantages)

    def _begin(self, phase: _Phase) -> None:
        """Takes the settings of a step: demonstrations are imitated as they are, near to no reference."""
        self._now, self._before = phase.train, phase.updates_before
        self._temperature = self.temperature if phase.samples else 1.0
        self._reference = self.reference if phase.samples and self.train.kl.coef > 0 else None
        self._has_sampler = phase.samples and not phase.train.observations_in_loss

    def mean_cross_entropy(self, batch: Batch) -> float:
        """The loss of trajectories as those that are imitated have it, without an update."""
        batch = batch.by_stretch()
        logprobs_BT = self._whole(batch, partial(logprobs_of, self.model, 1.0))
        return -float(logprobs_BT[batch.loss_mask_BT].mean())

    @torch.no_grad()
    def _sync_reference(self, mix: float) -> None:
        """theta_ref <- mix theta + (1 - mix) theta_ref: the soft update of TR-DPO (arXiv:2404.09656)."""
        assert self.reference is not None, "a reference to sync"
        pairs = zip(self.reference.full.parameters(), self.model.full.parameters(), strict=True)
        for reference, policy in pairs:
            reference.lerp_(policy.to(reference.dtype), mix)

    def _mini_batches(self, num_rows: int, step: int, epoch: int) -> Iterator[torch.Tensor]:
        if self._now.mini_batches == 1:  # in order: no number is drawn where none is needed
            yield torch.arange(num_rows)
            return
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "mini-batches", step, epoch))
        order = torch.randperm(num_rows, generator=generator)
        yield from (part for part in order.tensor_split(self._now.mini_batches) if len(part))

    def _fixed(self, batch: Batch) -> _Fixed:
        """Old and reference log-probabilities and values, where something reads them."""
        train, fixed = self._now, _Fixed()
        # With one optimiser step the old policy is the current one, whose log-probabilities the loss computes anyway.
        compared = train.algorithm.needs_teacher or (self._reference is not None and train.kl.place is KlPlace.REWARD)
        if compared or train.epochs * train.mini_batches > 1:
            fixed.old_logprobs_BT = self._whole(batch, partial(logprobs_of, self.model, self._temperature))
        if self._reference is not None:
            fixed.ref_logprobs_BT = self._whole(batch, partial(logprobs_of, self._reference, self._temperature))
        if self.critic is not None and train.algorithm.needs_critic:
            fixed.values_BT = self._whole(batch, partial(critic_values_of, self.critic))
        return fixed

    def _whole(self, batch: Batch, compute: Callable[[MicroBatch], torch.Tensor]) -> torch.Tensor:
        """What `compute` gives for the loss mask's tokens of every row, without gradients: [B, T]."""
        out_BT = torch.zeros_like(batch.rollout_logprobs_BT)

        # Threads write into rows of their own, so that nothing is to be put together in an order.
        def fill(rows: torch.Tensor) -> None:
            part = self._part(batch, rows)
            with torch.no_grad():
                # `no_grad` holds for one thread, so it stands here and not around the map.
                out_BT[rows, : part.width] = part.shift.to_tokens(compute(part))

        for _ in self._map(fill, self._parts(batch, torch.arange(len(out_BT)))):
            pass
        return out_BT

    def _parts(self, batch: Batch, rows: torch.Tensor) -> Iterator[torch.Tensor]:
        """The row numbers of each micro-batch."""
        lengths_B, budget = batch.lengths_B, self._now.micro_batch_tokens
        if not self._share_prefixes:
            return micro_batches(rows, lengths_B, budget)
        return split_rows(sort_by_tokens(rows, batch.tokens_BT, lengths_B), batch.tokens_BT, lengths_B, budget)

    def _part(self, batch: Batch, rows: torch.Tensor) -> MicroBatch:
        return MicroBatch.of(batch, rows, share_prefixes=self._share_prefixes)

    def _map(self, function: Callable[[torch.Tensor], T], parts: Iterable[torch.Tensor]) -> Iterable[T]:
        # Both give results in the order of the parts, whichever thread is first: sums of floats keep their order.
        return map(function, parts) if self._workers is None else self._workers.map(function, parts)

    def _asked(self, batch: Batch, fixed: _Fixed) -> AdvantageInput:
        """What the estimator reads of whole trajectories."""
        train = self._now
        kl_BT = None
        if fixed.ref_logprobs_BT is not None and train.kl.place is KlPlace.REWARD:
            assert fixed.old_logprobs_BT is not None, "a penalty in the reward needs the old log-probabilities"
            kl_BT = approx_kl(fixed.old_logprobs_BT, fixed.ref_logprobs_BT, train.kl.kind)
        asked = batch.advantage_input(train.reward_clip, kl_BT=kl_BT, kl_coef=train.kl.coef, values_BT=fixed.values_BT)
        if not train.algorithm.needs_teacher:
            return asked
        rows, model = batch.teacher_rows, self._teacher
        assert model is not None, "an estimator that needs a teacher"
        read = batch.by_stretch() if rows is None else rows.batch
        teacher_BT = self._whole(read, partial(logprobs_of, model, self._temperature))
        if rows is not None:
            teacher_BT = rows.align(teacher_BT, batch.loss_mask_BT.shape[1])
        elif batch.stretches is not None:
            teacher_BT = batch.stretches.join(teacher_BT, batch.tokens_BT.shape)
        return replace(asked, old_logprobs_BT=fixed.old_logprobs_BT, teacher_logprobs_BT=teacher_BT)

    def _optimiser_step(
        self, batch: Batch, rows: torch.Tensor, fixed: _Fixed, output: AdvantageOutput, sums: defaultdict[str, float]
    ) -> None:
        """Gradients over the micro-batches of one mini-batch, then one step of each optimiser."""
        train = self._now
        mask_BT = batch.loss_mask_BT[rows]
        # Denominators are of the whole mini-batch, so that how it is cut into micro-batches changes no weight of a
        # token.
        denominator = loss_denominator(mask_BT, train.loss.aggregation, train.loss.length)
        # At least 1: a mini-batch whose rows are all masked has a loss of 0, not of 0 / 0.
        num_sequences = float(mask_BT.any(dim=1).sum().clamp(min=1))
        seen_BT = batch.observation_mask_BT
        num_seen = 1.0 if seen_BT is None else float(seen_BT[rows].sum().clamp(min=1))
        num_tokens = float(mask_BT.sum().clamp(min=1))
        mini = _MiniBatch(batch, fixed, output, denominator, num_tokens, num_sequences, num_seen)
        for gradients, metrics in self._map(partial(self._gradients, mini), self._parts(batch, rows)):
            # Not strict: nothing is given when `backward` has added the gradients already.
            for parameter, gradient in zip(self._parameters(), gradients, strict=False):
                if gradient is not None:
                    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
            for name, value in metrics.items():
                sums[name] += value
        self.num_updates += 1
        num_updates = train.steps * train.epochs * train.mini_batches
        number = max(1, self.num_updates - self._before)
        factor = lr_factor(number, num_updates, train.warmup_steps, train.lr_schedule, train.min_lr_ratio)
        sums["policy/grad_norm"] += self._step(self.optimizer, train.learning_rate * factor)
        if self.critic_optimizer is not None and fixed.values_BT is not None:
            sums["critic/grad_norm"] += self._step(self.critic_optimizer, train.critic.learning_rate * factor)

    def _step(self, optimizer: torch.optim.AdamW, learning_rate: float) -> float:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        norm = float(torch.nn.utils.clip_grad_norm_(_parameters_of(optimizer), self._now.max_grad_norm))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return norm

    def _parameters(self) -> list[torch.Tensor]:
        """Everything that is trained, policy first."""
        optimizers = [self.optimizer, *([self.critic_optimizer] if self.critic_optimizer is not None else [])]
        return [parameter for optimizer in optimizers for parameter in _parameters_of(optimizer)]

    def _gradients(
        self, mini: _MiniBatch, rows: torch.Tensor
    ) -> tuple[Sequence[torch.Tensor | None], dict[str, float]]:
        """Gradients and metrics of one micro-batch: its share of the whole mini-batch's, so that shares add up."""
        part = self._part(mini.batch, rows)
        loss, metrics = self._policy_loss(mini, part, rows)
        if self.critic is not None and mini.fixed.values_BT is not None:
            value = self._value_loss(self.critic, mini, part, rows)
            metrics["loss/value"] = float(value.detach())
            # One graph for both: policy and critic share no weight, so neither sees the other's gradient.
            loss = loss + value
        if self._workers is None:
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves backward untyped
            return (), metrics
        # `backward` would add into `.grad` from several threads at once, in the order in which they end. `grad` gives
        # each part its own, which are added in the order of the parts. Unused are weights that a part's loss does not
        # reach.
        return torch.autograd.grad(loss, self._parameters(), allow_unused=True), metrics

    def _policy_loss(
        self, mini: _MiniBatch, part: MicroBatch, rows: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        train, fixed, width = self._now, mini.fixed, part.width
        logprobs_N, entropy_N = part.logprobs(self.model, self._temperature)
        logprobs_BT = part.shift.to_tokens(logprobs_N)
        if part.observation_mask_BT is not None:  # entropies are of what was sampled
            entropy_N = entropy_N[part.loss_mask_BT.flatten()[part.shift.slot_N]]
        # Detached, the ratio of the first step is 1 and its gradient that of the log-probability.
        old_BT = logprobs_BT.detach() if fixed.old_logprobs_BT is None else fixed.old_logprobs_BT[rows, :width]
        result = policy_loss(
            logprobs_BT,
            old_BT,
            mini.output.advantages_BT[rows, :width],
            part.loss_mask_BT,
            config=train.loss,
            rollout_logprobs_BT=mini.batch.rollout_logprobs_BT[rows, :width] if self._has_sampler else None,
            high_entropy_BT=None if fixed.high_entropy_BT is None else fixed.high_entropy_BT[rows, :width],
            denominator=mini.denominator,
        )
        loss = result.loss
        metrics = _loss_metrics(result, mini.num_tokens)
        if result.filter_fraction is not None:
            share = _share_filtered_of(train.loss, part, mini)
            metrics["policy/filter_fraction"] = share * float(result.filter_fraction)
        metrics["policy/entropy"] = float(entropy_N.detach().sum()) / mini.num_tokens
        if train.entropy_coef > 0:
            loss = loss - train.entropy_coef * entropy_N.sum() / mini.num_tokens
        if fixed.ref_logprobs_BT is not None:
            kl_BT = approx_kl(logprobs_BT, fixed.ref_logprobs_BT[rows, :width], train.kl.kind)
            kl = aggregate_loss(kl_BT, part.loss_mask_BT, Aggregation.TOKEN_MEAN, mini.num_tokens)
            metrics["policy/kl_ref"] = float(kl.detach())
            if train.kl.place is KlPlace.LOSS:
                loss = loss + train.kl.coef * kl
        if part.observation_mask_BT is not None:
            seen = -aggregate_loss(logprobs_BT, part.observation_mask_BT, Aggregation.TOKEN_MEAN, mini.num_observations)
            metrics["loss/observations"] = float(seen.detach())
            loss = loss + train.loss.observations * seen
        return loss, metrics

    def _value_loss(self, critic: Critic, mini: _MiniBatch, part: MicroBatch, rows: torch.Tensor) -> torch.Tensor:
        assert mini.fixed.values_BT is not None, "a critic's values are computed before its update"
        return value_loss(
            part.shift.to_tokens(critic_values_of(critic, part)),
            mini.fixed.values_BT[rows, : part.width],
            mini.output.returns_BT[rows, : part.width],
            part.loss_mask_BT,
            clip=self._now.critic.value_clip,
            denominator=mini.num_tokens,
        )


@dataclass(frozen=True, slots=True)
class _MiniBatch:
    """The parts that micro-batches of one optimiser step share."""

    batch: Batch
    fixed: _Fixed
    output: AdvantageOutput
    denominator: float
    """What the policy loss of the whole mini-batch is divided by."""
    num_tokens: float
    """Tokens of its loss mask, at least 1."""
    num_sequences: float
    """Sequences with a token in the loss mask, at least 1."""
    num_observations: float
    """Tokens that the loss of observations is about, at least 1."""


def _loss_metrics(result: PolicyLossOutput, num_tokens: float) -> dict[str, float]:
    share = float(result.num_tokens) / num_tokens
    metrics = {
        "loss/policy": float(result.loss.detach()),
        "policy/clip_fraction": share * float(result.clip_fraction),
        "policy/kl_old": share * float(result.approx_kl),
    }
    if result.mismatch_kl is not None:
        metrics["policy/mismatch_kl"] = share * float(result.mismatch_kl)
    if result.masked_fraction is not None:
        metrics["policy/masked_fraction"] = share * float(result.masked_fraction)
    return metrics


def _share_filtered_of(loss: PolicyLossConfig, part: MicroBatch, mini: _MiniBatch) -> float:
    """The part's share of what the correction judges in the mini-batch: tokens, or whole sequences."""
    if loss.correction.level is CorrectionLevel.TOKEN:
        return float(part.loss_mask_BT.sum()) / mini.num_tokens
    return float(part.loss_mask_BT.any(dim=1).sum()) / mini.num_sequences


def decay_groups(module: torch.nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """What is trained, in groups of AdamW: biases and norms do not decay. One group where nothing does."""
    decayed, others = list[torch.Tensor](), list[torch.Tensor]()
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            is_spared = weight_decay > 0 and any(part in name for part in _NOT_DECAYED)
            (others if is_spared else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
