"""The growing token record of one trajectory: the mask is right by construction.

Tokens enter by exactly two doors: `act` for what the policy sampled, `observe` for everything else. Nothing is
ever decoded and encoded again, so each turn's prompt extends the one before it token for token.
"""

from __future__ import annotations

from collections.abc import Sequence


class TokenRecord:
    """Tokens with their action mask and rollout log-probabilities, all of one length."""

    __slots__ = ("action_mask", "rollout_logprobs", "tokens")

    def __init__(self, prompt: Sequence[int]) -> None:
        self.tokens: list[int] = []
        self.action_mask: list[bool] = []
        self.rollout_logprobs: list[float] = []
        self.observe(prompt)

    def __len__(self) -> int:
        return len(self.tokens)

    def act(self, tokens: Sequence[int], logprobs: Sequence[float]) -> None:
        """Appends sampled tokens with their log-probabilities."""
        assert len(tokens) == len(logprobs), f"{len(tokens)} tokens, {len(logprobs)} log-probabilities"
        self.tokens += tokens
        self.action_mask += [True] * len(tokens)
        self.rollout_logprobs += logprobs

    def observe(self, tokens: Sequence[int]) -> None:
        """Appends tokens that the policy did not sample."""
        self.tokens += tokens
        self.action_mask += [False] * len(tokens)
        self.rollout_logprobs += [0.0] * len(tokens)
