"""Random batches of trajectories: masks with holes and different lengths, groups, KL, values."""

from __future__ import annotations

import torch

from rlf.algo.estimator import AdvantageInput


def random_mask(rows: int, tokens: int, generator: torch.Generator) -> torch.Tensor:
    """bool [B, T]: prompt and padding at the ends, observations as holes, at least one sampled token a row."""
    mask_BT = torch.rand(rows, tokens, generator=generator) < 0.6
    start_B = torch.randint(0, tokens // 3, (rows,), generator=generator)
    end_B = torch.randint(tokens // 2, tokens + 1, (rows,), generator=generator)
    positions_T = torch.arange(tokens)
    mask_BT &= (positions_T >= start_B[:, None]) & (positions_T < end_B[:, None])
    mask_BT[torch.arange(rows), start_B] = True
    return mask_BT


def random_batch(
    seed: int,
    *,
    groups: int = 5,
    num_generations: int = 4,
    tokens: int = 17,
    kl_coef: float = 0.0,
    reward_scale: float = 1.0,
    reward_clip: tuple[float, float] | None = (-10.0, 10.0),
) -> AdvantageInput:
    """float64 batch of contiguous equal groups."""
    generator = torch.Generator().manual_seed(seed)
    rows = groups * num_generations

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return AdvantageInput(
        rewards_B=normal(rows) * reward_scale,
        group_B=torch.arange(groups).repeat_interleave(num_generations),
        action_mask_BT=random_mask(rows, tokens, generator),
        kl_BT=normal(rows, tokens) if kl_coef else None,
        kl_coef=kl_coef,
        values_BT=normal(rows, tokens),
        old_logprobs_BT=-normal(rows, tokens).abs(),
        teacher_logprobs_BT=-normal(rows, tokens).abs(),
        greedy_B=torch.zeros(rows, dtype=torch.float64),
        reward_clip=reward_clip,
    )
