"""Sampling parameters by vLLM's names, and drawing one token by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class SamplingParams:
    """How one request is sampled; only what OpenRLHF and rlf set."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logprobs: int | None = None
    seed: int | None = None
    logit_bias: Mapping[int, float] | None = None


class LogitsReader:
    """Draws tokens; requests without a seed share a generator."""

    def __init__(self, seed: int) -> None:
        import torch

        self._shared = torch.Generator().manual_seed(seed)

    def draw(self, logits_V: Any, params: SamplingParams, position: int) -> tuple[int, float]:
        """A token and its log-probability at the temperature, before top-p, top-k and min-p."""
        import torch

        from rlf.training.draw import keep_likely

        if params.logit_bias:
            logits_V = logits_V.float().clone()
            logits_V[list(params.logit_bias)] += torch.tensor(list(params.logit_bias.values()))
        greedy = params.temperature == 0
        logprobs_V = (logits_V.float() / (1.0 if greedy else params.temperature)).log_softmax(-1)
        if greedy:
            token = int(logprobs_V.argmax())
        else:
            generator = self._shared
            if params.seed is not None:
                generator = torch.Generator().manual_seed(params.seed + position)
            kept_1V = keep_likely(logprobs_V.exp()[None], top_p=params.top_p, top_k=params.top_k, min_p=params.min_p)
            token = int(torch.multinomial(kept_1V[0], 1, generator=generator))
        return token, float(logprobs_V[token])
