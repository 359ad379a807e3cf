"""The policy host: a model and the one sampler over it. No trainer is needed around it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

import torch

from rlf.chat.tokenizer import load_tokenizer
from rlf.engines.local.model import PolicyModel, load_model, resolve_device, resolve_dtype
from rlf.engines.local.sampler import Sampler
from rlf.types.policy import Sample, SampleRequest, Sampling

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

T = TypeVar("T")

_MAX_COMPLETIONS = 32
"""Completions that a served model samples at once."""


class PolicyHost:
    """A model that plays any number of conversations at once, each with sampling settings of its own.

    It is the rollout loop's `Policy`. To be entered as an async context manager: the cache and the one thread that the
    model runs on exist from then on.
    """

    def __init__(
        self,
        model: PolicyModel,
        decode: Callable[[Sequence[int]], str],
        *,
        num_slots: int,
        max_tokens: int | None = None,
        logical: bool = False,
        threads: int = 1,
    ) -> None:
        """Takes the model; reserves nothing yet.

        Args:
            decode: text of tokens, to look for stop strings.
            num_slots: conversations sampled at once; further open ones wait in their order.
            max_tokens: of a whole conversation, for which the cache is reserved; None: the cache grows as it is needed.
            logical: whether batches follow a logical order instead of the clock.
            threads: CPU cores of one operation.
        """
        self.model = model
        self._thread = ThreadPoolExecutor(1, "rlf-model", initializer=torch.set_num_threads, initargs=(threads,))
        self._new_sampler = partial(
            Sampler,
            model,
            num_slots=num_slots,
            max_tokens=max_tokens,
            logical=logical,
            executor=self._thread,
            decode=decode,
        )
        self._sampler: Sampler
        self._numbers = itertools.count()

    async def __aenter__(self) -> Self:
        self._sampler = self._new_sampler()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._sampler.close()
        self._thread.shutdown(wait=True)

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Announces conversations in their logical order."""
        self._sampler.open(trajectory_ids)

    async def sample(self, request: SampleRequest) -> Sample:
        """Samples one turn of an open conversation."""
        return await self._sampler.sample(request)

    def release(self, trajectory_id: str) -> None:
        """Ends a conversation."""
        self._sampler.release(trajectory_id)

    async def complete(self, tokens: Sequence[int], max_tokens: int, sampling: Sampling, seed: int) -> Sample:
        """A conversation of one turn."""
        id_ = f"completion/{next(self._numbers)}"
        self.open([id_])
        try:
            return await self.sample(SampleRequest(id_, tokens, max_tokens, sampling, seed))
        finally:
            self.release(id_)

    async def run(self, work: Callable[[], T]) -> T:
        """Runs other work of the model between two turns, such as an update of its weights."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    @property
    def held_s(self) -> float:
        """Time that the logical schedule held conversations back that could sample."""
        return self._sampler.held_s


def load_host(path: str) -> tuple[PolicyHost, PreTrainedTokenizerBase]:
    """A model to be served as it is, with its tokenizer: on the GPU in bfloat16 if there is one.

    Raises:
        RlfError: it does not load, or is no model that this host can run.
    """
    device = resolve_device("auto")
    tokenizer = load_tokenizer(path)
    model = load_model(path, dtype=resolve_dtype("auto", device), device=device, frozen=True)

    def decode(tokens: Sequence[int]) -> str:
        return str(tokenizer.decode(list(tokens), skip_special_tokens=True))

    return PolicyHost(model, decode, num_slots=_MAX_COMPLETIONS, threads=torch.get_num_threads()), tokenizer
