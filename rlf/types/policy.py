"""The seam between the rollout loop and an engine: a policy that continues tokens with tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, Self

from rlf.core.plain_json import frozen

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Finish(StrEnum):
    """Why sampling of one turn ended."""

    STOP = "stop"
    """A stop token or stop string was sampled; it is part of the tokens."""
    LENGTH = "length"
    """`max_tokens` were sampled without a stop."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. Temperature 0 is greedy."""

    temperature: float = 1.0
    top_p: float = 1.0
    """Smallest set of likeliest tokens whose probability reaches this; 1 keeps all."""
    top_k: int = 0
    """Number of likeliest tokens kept; 0 keeps all."""
    min_p: float = 0.0
    """Tokens below this share of the likeliest token's probability are dropped; 0 keeps all."""
    stop_token_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    form: Callable[[], Any] | None = None
    """Opens a `training.draw.TurnState` of what tokens may follow, where the policy `takes_forms`; None: any may."""
    num_top: int | None = None
    """Likeliest tokens whose log-probabilities come with each sampled one, and its own; None: nothing of that."""


@frozen
class SampleRequest:
    """One turn to sample."""

    trajectory_id: str
    tokens: Sequence[int]
    """The whole context; it extends the context of the trajectory's previous request, unless it is `fresh`."""
    max_tokens: int
    sampling: Sampling
    seed: int
    """The trajectory's own; the n-th token sampled in a trajectory depends on (seed, n) only."""
    num_sampled: int = 0
    """Tokens sampled earlier in this trajectory."""
    fresh: bool = False
    """Whether a new context begins: tokens were left out of what came before."""
    images: tuple[str, ...] = ()
    """The images that the context holds places of, in order, as a task names them."""


@frozen
class Sample:
    """Tokens that the policy sampled, bit for bit."""

    tokens: list[int]
    logprobs: list[float]
    """Natural log of each token's probability at the sampling temperature before top-p, top-k and min-p."""
    finish: Finish
    tops: Sequence[Mapping[int, float]] = ()
    """For each token, with `num_top`: log-probabilities at temperature 1, likeliest first, its own among them."""
    versions: Sequence[int] = ()
    """For each token the updates that the policy had seen; empty where they are the same for a whole step."""


class Policy(Protocol):
    """A model that samples. One trajectory is open from `open` to `release`, over all its turns."""

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Announces trajectories in their logical order, before any of them samples."""

    async def sample(self, request: SampleRequest) -> Sample:
        """Samples one turn."""

    def release(self, trajectory_id: str) -> None:
        """Ends a trajectory and gives back what is kept for it. Safe to call twice."""


Watch = Callable[[Sample], None]
"""Takes what is sampled so far, on the event loop, as often as there is more. The lists grow while sampling continues;
`finish` means nothing yet. It must not raise."""


class Host(Policy, Protocol):
    """A model of this machine that samples any number of conversations at once. Entered as an async context manager."""

    @property
    def num_slots(self) -> int:
        """Conversations that it samples at once; others wait."""

    @property
    def max_tokens(self) -> int:
        """Longest prompt and completion together that the model was made for."""

    def end_tokens(self, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
        """Tokens that end a turn."""

    async def sample(self, request: SampleRequest, watch: Watch | None = None) -> Sample:
        """Samples one turn."""

    async def complete(
        self, tokens: Sequence[int], max_tokens: int, sampling: Sampling, seed: int, watch: Watch | None = None
    ) -> Sample:
        """Samples a conversation of one turn. Cancelled, it frees what it holds."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...
