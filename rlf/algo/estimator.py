"""Advantage estimators: the settings, needs, inputs and outputs that all share.

One estimator is one file of `rlf.algo.advantages`. This module names tensors but loads no torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from rlf.core.kinds import Kind

if TYPE_CHECKING:
    import torch
    from torch import Tensor


OF_TOKENS = ("kl_BT", "values_BT", "old_logprobs_BT", "teacher_logprobs_BT")


@dataclass(frozen=True, slots=True)
class TurnRewards:
    """The rewards of B trajectories taken apart: what is about each turn, and what is about the whole."""

    outcome_B: Tensor
    """float: the part of the reward that is about the trajectory as a whole."""
    rewards_BK: Tensor
    """float: the reward of each of at most K turns."""
    num_turns_B: Tensor
    """int64: turns of each trajectory; `rewards_BK` is not read beyond."""
    turn_BT: Tensor
    """int64: the turn, from 0, that token t was sampled in. Any turn where nothing was sampled."""
    state_BK: Tensor
    """int64: equal for turns of a task that begin in equal states."""
    node_BK: Tensor | None = None
    """int64: equal where trajectories share one turn, which one of them sampled. None: none do."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All of them, a row for each trajectory."""
        known = (self.outcome_B, self.rewards_BK, self.num_turns_B, self.turn_BT, self.state_BK)
        return known if self.node_BK is None else (*known, self.node_BK)

    def to(self, device: torch.device) -> TurnRewards:
        """The same on a device."""
        return TurnRewards(*(tensor.to(device) for tensor in self.tensors))


@dataclass(frozen=True, slots=True)
class TermRewards:
    """The rewards of B trajectories taken apart by the K terms that they are sums of."""

    values_BK: Tensor
    """float: what each term adds to the reward, its weight included; their sum over K is the reward."""
    is_scored_BK: Tensor
    """bool: false where the term has no value for the trajectory, so that it adds 0."""
    weights_K: Tensor
    """float: the weight of each term, of which only the size counts."""

    def to(self, device: torch.device) -> TermRewards:
        """The same on a device."""
        return TermRewards(self.values_BK.to(device), self.is_scored_BK.to(device), self.weights_K.to(device))


@dataclass(frozen=True, slots=True)
class AdvantageInput:
    """One batch of trajectories as every estimator reads it; B trajectories of at most T tokens.

    The [B, T] tensors are aligned with one another, whatever the caller aligns them with. What they hold where
    `action_mask_BT` is false is never read.
    """

    rewards_B: Tensor
    """float: the scalar reward of each trajectory. Finite: unscorable trajectories are left out before."""
    group_B: Tensor
    """int64: which task each row is a rollout of. Any numbers, in any order; groups may differ in size."""
    action_mask_BT: Tensor
    """bool: true where the policy sampled token t; false on prompt, observation and padding."""
    kl_BT: Tensor | None = None
    """float: per-token KL estimate against the reference policy, subtracted from the reward. None: no penalty."""
    kl_coef: float = 0.0
    """Weight of `kl_BT`; negative counts as 0."""
    values_BT: Tensor | None = None
    """float: the critic's value before token t. None unless the estimator needs a critic."""
    reward_clip: tuple[float, float] | None = (-10.0, 10.0)
    """Bounds on the scalar *after* baseline and group scaling, as in OpenRLHF. None: no clipping."""
    turns: TurnRewards | None = None
    """The same rewards turn by turn, for estimators that `reads_turns`; None: nothing is known of turns."""
    terms: TermRewards | None = None
    """The same rewards term by term; None: the reward is one term."""
    greedy_B: Tensor | None = None
    """float: the reward of the greedy rollout of each row's task. None unless the estimator `needs_greedy`."""
    old_logprobs_BT: Tensor | None = None
    """float: of the policy before the update. None unless the estimator `needs_teacher`."""
    teacher_logprobs_BT: Tensor | None = None
    """float: of the teacher; no number where it says nothing. None unless the estimator `needs_teacher`."""
    world_B: Tensor | None = None
    """int64: which of several worlds each row was played in; None where there is one."""

    def __post_init__(self) -> None:
        rows, tokens = self.action_mask_BT.shape
        assert self.rewards_B.shape == self.group_B.shape == (rows,), (
            f"rewards {tuple(self.rewards_B.shape)} and groups {tuple(self.group_B.shape)} for {rows} trajectories"
        )
        assert self.rewards_B.dtype.is_floating_point, f"rewards are {self.rewards_B.dtype}"
        assert not self.action_mask_BT.dtype.is_floating_point, f"action_mask is {self.action_mask_BT.dtype}"
        assert bool(self.rewards_B.isfinite().all()), f"rewards must be finite: {self.rewards_B.tolist()}"
        for name in OF_TOKENS:
            tensor = getattr(self, name)
            assert tensor is None or tensor.shape == (rows, tokens), f"{name} is no [{rows}, {tokens}]"
        turns = self.turns
        assert turns is None or turns.turn_BT.shape == (rows, tokens), f"turns are no [{rows}, {tokens}]"
        assert turns is None or len(turns.rewards_BK) == rows, f"turn rewards of {len(turns.rewards_BK)} of {rows} rows"
        terms, greedy_B = self.terms, self.greedy_B
        assert terms is None or len(terms.values_BK) == rows, f"term rewards of {len(terms.values_BK)} of {rows} rows"
        assert greedy_B is None or greedy_B.shape == (rows,), f"greedy rewards {tuple(greedy_B.shape)} for {rows} rows"


@dataclass(frozen=True, slots=True)
class AdvantageOutput:
    """Inputs of the loss and the metrics; all float, without gradient, 0 where `action_mask_BT` is false."""

    advantages_BT: Tensor
    """The weight of each sampled token in the policy loss."""
    returns_BT: Tensor
    """Discounted sum of token rewards from t on; the critic's target. Never whitened."""
    rewards_B: Tensor
    """Sum of each trajectory's token rewards, after baseline, scaling, clipping and KL penalty."""


class Estimator(Kind, ABC):
    """A way to turn rewards into per-token advantages. Fields are its hyperparameters."""

    chosen_by: ClassVar[str] = "kind"
    needs_group: ClassVar[bool] = False
    """True if a task needs several rollouts: with one, every advantage would be 0."""
    needs_critic: ClassVar[bool] = False
    """True if `values_BT` must be given and a critic trained on `returns_BT`."""
    reads_turns: ClassVar[bool] = False
    """True if it distinguishes the turns of a trajectory by `AdvantageInput.turns`."""
    needs_greedy: ClassVar[bool] = False
    """True if `greedy_B` must be given, which takes one greedy rollout of each task beside the sampled ones."""
    needs_teacher: ClassVar[bool] = False
    """True if `old_logprobs_BT` and `teacher_logprobs_BT` must be given."""

    spans_batch: ClassVar[bool] = False
    """True if it has statistics of the whole batch; of several worlds, of the batch's rows in each."""

    @property
    def subset_size(self) -> int:
        """Rollouts in the subsets of a group that it compares, its `k`; 0 if it compares no subsets."""
        return 0

    @abstractmethod
    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """The advantages of a whole batch: group and batch statistics see all rows at once."""


def advantages_by_world(estimator: Estimator, batch: AdvantageInput) -> AdvantageOutput:
    """The advantages of a batch, each world's rows by themselves: their rewards have scales of their own."""
    worlds = [] if batch.world_B is None else sorted({*batch.world_B.tolist()})
    if len(worlds) < 2 or batch.world_B is None:
        return estimator.advantages(batch)
    rows = [(batch.world_B == world).nonzero().squeeze(1) for world in worlds]
    outputs = [estimator.advantages(take_rows(batch, rows_N)) for rows_N in rows]
    joined = {}
    for name in ("advantages_BT", "returns_BT", "rewards_B"):
        first = getattr(outputs[0], name)
        joined[name] = first.new_zeros((len(batch.rewards_B), *first.shape[1:]))
        for rows_N, output in zip(rows, outputs, strict=True):
            joined[name][rows_N] = getattr(output, name)
    return AdvantageOutput(**joined)


def take_rows(batch: AdvantageInput, rows_N: Tensor) -> AdvantageInput:
    """Some of the rows, in an order that is given, as a batch of one world."""
    names = ("rewards_B", "group_B", "action_mask_BT", "greedy_B", *OF_TOKENS)
    chosen: dict[str, Any] = {name: one[rows_N] for name in names if (one := getattr(batch, name)) is not None}
    if (terms := batch.terms) is not None:
        chosen["terms"] = TermRewards(terms.values_BK[rows_N], terms.is_scored_BK[rows_N], terms.weights_K)
    if (turns := batch.turns) is not None:
        chosen["turns"] = TurnRewards(*(one[rows_N] for one in turns.tensors))
    return replace(batch, **chosen, world_B=None)
