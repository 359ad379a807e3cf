"""From logits to tokens: one uniform number per token, by the inverse of the cumulative distribution.

The number is the trajectory's own, so what is drawn for a row depends on its logits and on nothing else in the batch.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import torch

from rlf.types.policy import Sampling


class TurnState(Protocol):
    """Where a turn stands whose tokens have a form, such as that of a JSON schema."""

    def allowed(self, size: int) -> np.ndarray:
        """bool [V]: what may come next, and never nothing; the log-probabilities are those among these alone."""

    def take(self, token: int) -> None:
        """Takes the token that was drawn."""


def uniforms(seed: int, count: int) -> np.ndarray:
    """The first `count` numbers in [0, 1) of a trajectory's stream: a longer stream starts with the shorter one."""
    return np.random.Generator(np.random.Philox(key=seed)).random(count)


def draw_tokens(
    logits_BV: torch.Tensor, uniforms_B: torch.Tensor, sampling: Sampling, source_B: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws one token per row.

    Args:
        logits_BV: float32; with `source_B` as many rows as there are different ones.
        uniforms_B: float64 in [0, 1); unused when temperature is 0.
        source_B: int64: the row of the logits that each number draws from; None: its own.
        sampling: temperature 0 takes the likeliest token and reports its log-probability at temperature 1.

    Returns:
        tokens_B int64, logprobs_B float32 (at the temperature, before top-p, top-k and min-p).
    """
    scaled_BV = logits_BV / sampling.temperature if sampling.temperature not in (0, 1) else logits_BV
    logprobs_BV = scaled_BV.log_softmax(-1)
    if sampling.temperature == 0:
        tokens_B = logits_BV.argmax(-1) if source_B is None else logits_BV.argmax(-1)[source_B]
    else:
        kept_BV = keep_likely(logprobs_BV.exp(), top_p=sampling.top_p, top_k=sampling.top_k, min_p=sampling.min_p)
        cumulative_BV = kept_BV.cumsum(-1, dtype=torch.float64)
        if source_B is not None:
            cumulative_BV = cumulative_BV[source_B]
        targets_B1 = uniforms_B[:, None] * cumulative_BV[:, -1:]
        tokens_B = torch.searchsorted(cumulative_BV, targets_B1, right=True)[:, 0].clamp_(max=logits_BV.shape[-1] - 1)
    if source_B is not None:
        return tokens_B, logprobs_BV[source_B, tokens_B]
    return tokens_B, logprobs_BV.gather(-1, tokens_B[:, None])[:, 0]


def likeliest(logits_BV: torch.Tensor, tokens_B: torch.Tensor, num_top: int) -> list[dict[int, float]]:
    """Per row the log-probabilities at temperature 1 of the likeliest tokens, then of the drawn one."""
    logprobs_BV = logits_BV.log_softmax(-1)
    values_BN, indices_BN = logprobs_BV.topk(min(num_top, logits_BV.shape[-1]), dim=-1)
    drawn = zip(tokens_B.tolist(), logprobs_BV.gather(-1, tokens_B[:, None])[:, 0].tolist(), strict=True)
    pairs = zip(indices_BN.tolist(), values_BN.tolist(), drawn, strict=True)
    return [
        {index: value for index, value in zip(indices, values, strict=True) if value > -math.inf} | {token: own}
        for indices, values, (token, own) in pairs
    ]


def keep_likely(probs_BV: torch.Tensor, *, top_p: float, top_k: int, min_p: float) -> torch.Tensor:
    """Zeroes what top-k, top-p and min-p exclude; each looks at the full distribution."""
    kept_BV = probs_BV
    if top_k > 0:
        lowest = probs_BV.topk(min(top_k, probs_BV.shape[-1]), dim=-1).values[:, -1:]
        kept_BV = kept_BV.masked_fill(probs_BV < lowest, 0.0)
    if top_p < 1:
        ranked, order = probs_BV.sort(dim=-1, descending=True, stable=True)
        outside = ranked.cumsum(-1) - ranked >= top_p
        kept_BV = kept_BV.masked_fill(outside.scatter(-1, order, outside), 0.0)
    if min_p > 0:
        floor = min_p * probs_BV.max(-1, keepdim=True).values
        kept_BV = kept_BV.masked_fill(probs_BV < floor, 0.0)
    return kept_BV
