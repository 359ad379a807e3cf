"""Log-probabilities and entropies of sampled tokens from logits, and the one-token shift between the two.

The shift lives in `shift` and nowhere else: position t - 1's logits predict token t. Everything beyond this module
is aligned with the tokens. Invariant: no probability tensor of all rows is ever kept for the backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlf.algo.loss_config import at_least_float32

_CHUNK_NUMEL = 1 << 24
"""Elements of one chunk of rows: 64 MB in float32, whatever the vocabulary."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Which logits predict which sampled tokens; N = number of true positions of the action mask."""

    source_N: Tensor
    """int64, into the flattened [B * T] positions: whose logits (or hidden state, or value) to take."""
    slot_N: Tensor
    """int64, into the flattened [B * T] tokens: where the result belongs; always source + 1."""
    targets_N: Tensor
    """int64: the sampled token ids."""
    shape: tuple[int, int]
    """(B, T)."""

    def to_tokens(self, values_N: Tensor) -> Tensor:
        """Per-prediction values as [B, T], aligned with the tokens; 0 elsewhere. Differentiable."""
        rows, tokens = self.shape
        return values_N.new_zeros(rows * tokens).index_copy(0, self.slot_N, values_N).view(rows, tokens)


def shift(tokens_BT: Tensor, action_mask_BT: Tensor) -> Shift:
    """The predictions of a batch: for every sampled token (b, t), the logits of position (b, t - 1).

    `hidden.flatten(0, 1)[shift.source_N]` feeds the output layer with the rows that matter and no others.

    Args:
        tokens_BT: int64 token ids.
        action_mask_BT: bool, true where the policy sampled token t. Never at t = 0, which nothing predicts; in a
            packed row, never at the first token of a piece.
    """
    assert not bool(action_mask_BT[:, 0].any()), "token 0 is marked as sampled, but no logits predict it"
    slot_N = action_mask_BT.flatten().nonzero().squeeze(1)
    rows, tokens = tokens_BT.shape
    return Shift(slot_N - 1, slot_N, tokens_BT.flatten()[slot_N], (rows, tokens))


class TokenLogprobs(NamedTuple):
    """float32 or better, [N]."""

    logprobs_N: Tensor
    entropy_N: Tensor | None
    """In nats; None unless asked for."""


def token_logprobs(
    logits_NV: Tensor, targets_N: Tensor, temperature: float = 1.0, *, with_entropy: bool = False
) -> TokenLogprobs:
    """Natural log-probability of each target under softmax(logits / temperature), and that softmax's entropy.

        z = x / temperature;  logprob = z_y - logsumexp(z);  H = -sum_v p_v log p_v,  p = softmax(z)

    Mirrors OpenRLHF `log_probs_from_logits` and `compute_entropy`, which see temperature-scaled logits too.
    Computed in chunks in float32 or better; the backward pass recomputes p, so beside the logits only their
    gradient takes N x V memory. Logits of -inf (forbidden tokens) are fine; the target's must be finite.

    Args:
        logits_NV: float, any precision. Row n predicts `targets_N[n]`: rows and targets are already shifted.
        targets_N: int64.
        temperature: the one the tokens were sampled with; > 0.
    """
    assert temperature > 0, f"temperature must be > 0, got {temperature}; greedy sampling has no logprobs"
    logprobs_N, entropy_N = _TokenLogprobs.apply(logits_NV, targets_N, temperature, with_entropy)  # type: ignore[no-untyped-call]  # torch leaves apply untyped
    return TokenLogprobs(logprobs_N, entropy_N if with_entropy else None)


class _TokenLogprobs(torch.autograd.Function):
    """The forward and backward of `token_logprobs`; keeps the logits and two numbers a row.

    d logprob / dz_v = [v = y] - p_v;   d H / dz_v = -p_v log p_v - p_v H
    """

    @staticmethod
    def forward(
        ctx: Any, logits_NV: Tensor, targets_N: Tensor, temperature: float, with_entropy: bool
    ) -> tuple[Tensor, Tensor]:
        lse_N = at_least_float32(logits_NV.new_empty(len(logits_NV)))
        logprobs_N, entropy_N = torch.empty_like(lse_N), torch.zeros_like(lse_N)
        for rows in _split_rows(logits_NV):
            scaled_CV = at_least_float32(logits_NV[rows]) / temperature
            lse_N[rows] = scaled_CV.logsumexp(dim=1)
            logprobs_N[rows] = scaled_CV.gather(1, targets_N[rows, None]).squeeze(1) - lse_N[rows]
            if with_entropy:
                entropy_N[rows] = torch.special.entr((scaled_CV - lse_N[rows, None]).exp()).sum(dim=1)
        ctx.save_for_backward(logits_NV, targets_N, lse_N, entropy_N)
        ctx.temperature, ctx.with_entropy = temperature, with_entropy
        return logprobs_N, entropy_N

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_logprobs_N: Tensor, grad_entropy_N: Tensor) -> tuple[Tensor, None, None, None]:
        logits_NV, targets_N, lse_N, entropy_N = ctx.saved_tensors
        grad_NV = torch.empty_like(logits_NV)
        for rows in _split_rows(logits_NV):
            p_CV = (at_least_float32(logits_NV[rows]) / ctx.temperature - lse_N[rows, None]).exp()
            grad_CV = p_CV * -grad_logprobs_N[rows, None]
            grad_CV.scatter_add_(1, targets_N[rows, None], grad_logprobs_N[rows, None])
            if ctx.with_entropy:
                slope_CV = torch.special.entr(p_CV) - p_CV * entropy_N[rows, None]
                grad_CV += slope_CV * grad_entropy_N[rows, None]
            grad_NV[rows] = grad_CV / ctx.temperature
        return grad_NV, None, None, None


def _split_rows(logits_NV: Tensor) -> list[slice]:
    """Row ranges of at most `_CHUNK_NUMEL` elements."""
    rows, vocabulary = logits_NV.shape
    size = max(1, _CHUNK_NUMEL // vocabulary)
    return [slice(start, start + size) for start in range(0, rows, size)]
