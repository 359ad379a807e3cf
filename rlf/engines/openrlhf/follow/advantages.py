"""The advantages that a step's trajectories had, computed as OpenRLHF computes them from the rewards it got."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rlf.algo.estimator import AdvantageInput
from rlf.engines.openrlhf.actor.groups import filler, round_reward
from rlf.engines.openrlhf.spool.frames import Record
from rlf.spec.models import KlPlace, TrainSpec
from rlf.training.counting import counts
from rlf.training.evaluation import find_missing, recompute_advantages


def mean_advantages(records: Sequence[Record], train: TrainSpec) -> list[float | None]:
    """Mean advantage over each trajectory's sampled tokens; None where it is left out of the loss or was played again.

    All None where advantages need what OpenRLHF keeps to itself: a critic's values, a reference's log-probabilities.
    """
    final = [record for record in records if not record.again]
    means = iter(_segment_means(final, train))
    return [None if record.again else next(means) for record in records]


def _segment_means(records: Sequence[Record], train: TrainSpec) -> list[float | None]:
    penalised = train.kl.coef > 0 and train.kl.place is KlPlace.REWARD
    in_loss = [counts(record.scored) for record in records]
    if find_missing(train.algorithm) or penalised or not any(in_loss):
        return [None] * len(records)
    import torch

    masks = [record.scored.trajectory.action_mask for record in records]
    size = max(map(len, masks))
    stand_in = b"\1".ljust(size, b"\0")  # its one token counts where advantages are normalised
    rows = [
        bytes(mask).ljust(size, b"\0") if counted else stand_in for mask, counted in zip(masks, in_loss, strict=True)
    ]
    mask_BT = torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.bool).view(len(rows), size)
    asked = AdvantageInput(
        rewards_B=torch.tensor(_reported_rewards(records), dtype=torch.float32),
        group_B=torch.tensor([record.row for record in records]),
        action_mask_BT=mask_BT,
        reward_clip=train.reward_clip,
    )
    means = recompute_advantages(train.algorithm, asked)
    return [value if counted else None for value, counted in zip(means, in_loss, strict=True)]


def _reported_rewards(records: Sequence[Record]) -> list[float]:
    """The rewards that OpenRLHF got."""
    rewards: defaultdict[int, list[float]] = defaultdict(list)
    for record in records:
        if counts(record.scored) and record.scored.reward is not None:
            rewards[record.row].append(round_reward(record.scored.reward))
    return [
        round_reward(record.scored.reward)
        if counts(record.scored) and record.scored.reward is not None
        else filler(rewards[record.row])
        for record in records
    ]
