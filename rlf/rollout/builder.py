"""The growing token record of one trajectory: the mask is right by construction.

Tokens enter by `act` where the policy sampled them, by `observe` else, and whole in a prefix that is kept. Nothing is
ever decoded and encoded again, so each turn's prompt extends the one before it token for token. A fork begins a new
segment, whose first tokens are its context; the stretches stand one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlf.types.trajectory import Trajectory


class TokenRecord:
    """Tokens with their action mask and rollout log-probabilities, all of one length."""

    __slots__ = ("action_mask", "forks", "rollout_logprobs", "tokens")

    def __init__(self, prompt: Sequence[int]) -> None:
        self.tokens: list[int] = []
        self.action_mask: list[bool] = []
        self.rollout_logprobs: list[float] = []
        self.forks: list[int] = []
        """Where segments begin, the first one left out."""
        self.observe(prompt)

    @classmethod
    def of_prefix(cls, trajectory: Trajectory, end: int, *, is_trained: bool) -> TokenRecord:
        """The first `end` tokens of a trajectory as they are; masked, they are a context that nothing samples."""
        record = cls(trajectory.tokens[:end])
        if is_trained:
            record.action_mask = list(trajectory.action_mask[:end])
            record.rollout_logprobs = list(trajectory.rollout_logprobs[:end])
        record.forks = [offset for offset in trajectory.forks if offset < end]
        return record

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def segment(self) -> list[int]:
        """The tokens that the policy sees: since the last fork."""
        return self.tokens[self.forks[-1] :] if self.forks else self.tokens

    @property
    def segment_size(self) -> int:
        """How many they are."""
        return len(self.tokens) - (self.forks[-1] if self.forks else 0)

    def fork(self, context: Sequence[int]) -> None:
        """Begins a new segment with its context."""
        self.forks.append(len(self.tokens))
        self.observe(context)

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
