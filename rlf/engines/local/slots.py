"""Open trajectories and the cache slots they hold: those that decode come first, without gaps.

Rows that decode are slots 0 to `num_active`, so that attention reads one contiguous block of the cache; the others
keep their keys and values behind it while their tools run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlf.engines.local.cache import KVCache
from rlf.training.draw import uniforms
from rlf.types.policy import Finish, Sample, SampleRequest, Watch


@dataclass(slots=True, eq=False)
class Row:
    """One open trajectory."""

    id: str
    due: int = 0
    """Tick at which the row continues, or ends."""
    request: SampleRequest | None = None
    """The turn to sample; None while the trajectory's tools run."""
    reply: asyncio.Future[Sample] | None = None
    slot: int = -1
    """Place in the cache; -1 before the row is admitted."""
    context: list[int] = field(default_factory=list)
    """Tokens fed or sampled so far; all but the last sampled one are cached."""
    num_cached: int = 0
    noise: np.ndarray | None = None
    """Uniform numbers for every token the trajectory may sample."""
    tokens: list[int] = field(default_factory=list)
    """Sampled in this turn."""
    tops: list[dict[int, float]] = field(default_factory=list)
    """Log-probabilities of the likeliest tokens at each of them, where they are asked for."""
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    """Updates that the policy had seen at each of them, where that is recorded."""
    sample: Sample = field(init=False)
    """This turn as it grows: it holds the lists above."""
    finish: Finish | None = None
    watch: Watch | None = None
    """Takes what is sampled so far of this turn."""
    released: bool = False

    def begin(self, request: SampleRequest, reply: asyncio.Future[Sample] | None, max_tokens: int) -> None:
        """Takes the next turn. Its context must extend the known tokens, unless it is fresh."""
        if request.fresh:
            self._forget(request.tokens)
        known = len(self.context)
        assert list(request.tokens[:known]) == self.context, f"{self.id}: the context does not extend the last turn's"
        if self.noise is None or len(self.noise) < request.num_sampled + request.max_tokens:
            self.noise = uniforms(request.seed, max(max_tokens, 2 * request.num_sampled + request.max_tokens))
        self.context += request.tokens[known:]
        self.request, self.reply = request, reply
        self.tokens, self.logprobs, self.tops, self.versions, self.finish = [], [], [], [], None
        self.sample = Sample(self.tokens, self.logprobs, Finish.LENGTH, self.tops, self.versions)

    def _forget(self, tokens: Sequence[int]) -> None:
        """Keeps what the tokens begin with, and the keys and values of that."""
        pairs = enumerate(zip(self.context, tokens, strict=False))
        shared = next((at for at, (old, new) in pairs if old != new), min(len(self.context), len(tokens)))
        self.context = self.context[:shared]
        self.num_cached = min(self.num_cached, shared, len(tokens) - 1)

    def deliver(self) -> None:
        """Passes the finished turn to the coroutine that waits for it."""
        reply, self.reply, self.request, self.watch = self.reply, None, None, None
        assert reply is not None and self.finish is not None, f"{self.id} was not sampled"
        if not reply.done():
            reply.set_result(Sample(self.tokens, self.logprobs, self.finish, self.tops, self.versions))

    def show(self) -> None:
        """Passes what is sampled so far to watchers."""
        if self.watch is not None and self.tokens and not self.released:
            self.watch(self.sample)

    @property
    def turn(self) -> SampleRequest:
        """The turn being sampled."""
        assert self.request is not None, f"{self.id} has nothing to sample"
        return self.request

    @property
    def pending(self) -> list[int]:
        """Tokens known and not yet cached."""
        return self.context[self.num_cached :]

    @property
    def next_uniform(self) -> float:
        """The number that decides the next token."""
        assert self.noise is not None, f"{self.id} has no noise"
        number: float = self.noise.item(self.turn.num_sampled + len(self.tokens))
        return number


class Slots:
    """The cache and the rows that hold its slots."""

    def __init__(self, cache: KVCache, num_slots: int) -> None:
        self.cache = cache
        self.num_slots = num_slots
        self.rows: list[Row] = []
        """By slot."""
        self.num_active = 0

    @property
    def active(self) -> list[Row]:
        """Rows that decode, by slot."""
        return self.rows[: self.num_active]

    @property
    def away(self) -> list[Row]:
        """Rows that wait: for their tools, or for their turn to join."""
        return self.rows[self.num_active :]

    @property
    def has_room(self) -> bool:
        """Whether a slot is free."""
        return len(self.rows) < self.num_slots

    def admit(self, row: Row) -> None:
        """Gives a row a slot."""
        row.slot = len(self.rows)
        self.rows.append(row)

    def fit_cache(self) -> None:
        """Lets the cache hold all that its rows know."""
        self.cache.fit(len(self.rows), max(len(row.context) for row in self.rows))

    def activate(self, row: Row) -> None:
        """Moves a waiting row to the end of those that decode."""
        self._exchange(row.slot, self.num_active)
        self.num_active += 1

    def deactivate(self, row: Row) -> None:
        """Moves a row behind those that decode, if it is one of them."""
        if row.slot < self.num_active:
            self.num_active -= 1
            self._exchange(row.slot, self.num_active)

    def free(self, row: Row) -> None:
        """Frees a row's slot."""
        self.deactivate(row)
        self._exchange(row.slot, len(self.rows) - 1)
        self.rows.pop()
        row.slot = -1

    def clear(self) -> None:
        """Frees every slot, and the memory by which the cache has grown."""
        self.rows.clear()
        self.cache.shrink()
        self.num_active = 0

    def _exchange(self, left: int, right: int) -> None:
        if left == right:
            return
        one, other = self.rows[left], self.rows[right]
        self.cache.swap(left, right, max(one.num_cached, other.num_cached))
        self.rows[left], self.rows[right] = other, one
        one.slot, other.slot = right, left
