"""Trajectories as right-padded tensors, and their split into micro-batches by token budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from rlf.types.score import Scored


@dataclass(frozen=True, slots=True)
class Batch:
    """B trajectories of at most T tokens, all of them scorable."""

    tokens_BT: torch.Tensor
    """int64; padding holds 0."""
    loss_mask_BT: torch.Tensor
    """bool: the action mask, and in the ablation also the observations."""
    rollout_logprobs_BT: torch.Tensor
    """float32: 0 where nothing was sampled."""
    lengths_B: torch.Tensor
    """int64."""
    rewards_B: torch.Tensor
    """float32."""
    group_B: torch.Tensor
    """int64: equal for rollouts of the same task."""

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device; lengths stay on the CPU, where the rows are planned."""
        return Batch(
            self.tokens_BT.to(device),
            self.loss_mask_BT.to(device),
            self.rollout_logprobs_BT.to(device),
            self.lengths_B,
            self.rewards_B.to(device),
            self.group_B.to(device),
        )


def make_batch(scored: Sequence[Scored], *, observations_in_loss: bool = False) -> Batch:
    """Tensors of trajectories that have a reward and at least one sampled token."""
    trajectories = [item.trajectory for item in scored]
    lengths = [len(t.tokens) for t in trajectories]
    shape = (len(scored), max(lengths))
    tokens_BT = torch.zeros(shape, dtype=torch.int64)
    loss_mask_BT = torch.zeros(shape, dtype=torch.bool)
    logprobs_BT = torch.zeros(shape)
    for row, (trajectory, length) in enumerate(zip(trajectories, lengths, strict=True)):
        tokens_BT[row, :length] = torch.tensor(trajectory.tokens)
        loss_mask_BT[row, :length] = torch.tensor(trajectory.action_mask)
        logprobs_BT[row, :length] = torch.tensor(trajectory.rollout_logprobs)
        if observations_in_loss:
            loss_mask_BT[row, trajectory.turns[0].start : length] = True
    groups = {task: index for index, task in enumerate(dict.fromkeys(_group(item) for item in scored))}
    return Batch(
        tokens_BT,
        loss_mask_BT,
        logprobs_BT,
        torch.tensor(lengths),
        torch.tensor([_reward(item) for item in scored], dtype=torch.float32),
        torch.tensor([groups[_group(item)] for item in scored]),
    )


def trainable(scored: Scored) -> bool:
    """Whether a trajectory can be learnt from: it has a reward and the policy sampled something."""
    return scored.reward is not None and any(scored.trajectory.action_mask)


def micro_batches(rows: torch.Tensor, lengths_B: torch.Tensor, max_tokens: int) -> Iterator[torch.Tensor]:
    """Splits row numbers so that each part, padded to its longest row, holds at most `max_tokens`; longest first.

    A single row longer than that is a part of its own.
    """
    order = rows[lengths_B[rows].argsort(descending=True, stable=True)]
    start = 0
    while start < len(order):
        count = max(1, max_tokens // int(lengths_B[order[start]]))
        yield order[start : start + count]
        start += count


def _group(scored: Scored) -> str:
    return scored.trajectory.task.id


def _reward(scored: Scored) -> float:
    assert scored.reward is not None, f"{scored.trajectory.id} has no reward"
    return scored.reward
