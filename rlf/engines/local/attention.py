"""Attention over a ragged batch: every token of a decode tick in one row, no padding outside attention itself.

The transformers model runs on tokens of shape [1, N]; its linear layers never see padding. This function, registered
as the attention `rlf`, writes each token's key and value to its row's slot in the cache and lets it attend to that
slot only. Rows that decode one token are in the first slots, whose keys are read in place.

The kernels' rounding follows the shapes of their inputs. An invariant layout makes the shapes that a row meets follow
from the row alone, so that its bits do not depend on the batch: the number of keys is rounded up, runs attend in
groups of equal shapes, and the number of tokens is rounded up too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from rlf.core.text import count_shared
from rlf.engines.local.cache import KVCache, PrefixTree, attend, round_up
from rlf.training.draw import TurnState, uniforms
from rlf.types.policy import Finish, Sample, SampleRequest, Watch

ATTENTION = "rlf"


@dataclass(slots=True)
class RaggedLayout:
    """Which token belongs to which slot, for one forward pass.

    The N tokens are `num_decode` single ones, then the runs of the extending rows, whose slots follow on each other.
    """

    cache: KVCache
    num_decode: int
    slots_N: torch.Tensor
    """int64: the cache slot of each token; of the single ones 0, 1, ..."""
    positions_N: torch.Tensor
    """int64: the position of each token in its row."""
    decode_mask: torch.Tensor | None = None
    """[A, 1, 1, T]: what each decoding token may attend to, as `KVCache.mask` has it."""
    runs: list[Runs] = field(default_factory=list)
    """The extending rows, by slot."""
    num_filling: int = 0
    """Copies of the last token after the N, which only fill the batch up."""


@dataclass(frozen=True, slots=True)
class Runs:
    """R extending rows in slots that follow on each other, of at most L new tokens each."""

    first_slot: int
    index_RL: torch.Tensor
    """int64: for each row and offset the token's place among all tokens; padding points to the row's first."""
    valid_RL: torch.Tensor
    """bool: false on padding."""
    mask: torch.Tensor
    """[R, 1, L, T], as `KVCache.mask` has it."""


def run_shape(length: int, count: int, *, invariant: bool) -> tuple[int, int]:
    """What rows have in common that attend together: in an invariant layout their queries and keys, rounded up.

    Else at most four times as many queries, so that one long result of a tool does not pad all that are short.
    """
    return (round_up(count), round_up(length + count)) if invariant else (count.bit_length() // 2, 0)


def ragged_layout(
    cache: KVCache,
    decode_lengths: Sequence[int],
    extends: Sequence[tuple[int, int]],
    *,
    first_slot: int | None = None,
    invariant: bool = False,
) -> RaggedLayout:
    """The layout for rows that decode and rows that extend.

    Args:
        cache: where keys and values go.
        decode_lengths: tokens already cached per decoding row, which sit in slots 0, 1, ...
        extends: (tokens already cached, new tokens) per extending row, ordered by `run_shape`.
        first_slot: where the first extending row sits, the others after it; None: after the decoding rows.
        invariant: whether no row's bits may depend on the others.
    """
    device = cache.device
    num_decode = len(decode_lengths)
    first_slot = num_decode if first_slot is None else first_slot
    slots, positions = list(range(num_decode)), list(decode_lengths)
    for row, (length, count) in enumerate(extends):
        slots += [first_slot + row] * count
        positions += range(length, length + count)
    num_filling = round_up(len(slots)) - len(slots) if invariant else 0
    slots += slots[-1:] * num_filling
    positions += positions[-1:] * num_filling
    slots_N, positions_N = (torch.tensor(column, device=device) for column in (slots, positions))
    layout = RaggedLayout(cache, num_decode, slots_N, positions_N, num_filling=num_filling)
    if num_decode:
        width = max(decode_lengths) + 1
        keys_T = torch.arange(round_up(width) if invariant else width, device=device)
        layout.decode_mask = cache.mask(keys_T <= positions_N[:num_decode, None])[:, None, None, :]
    slot, token = first_slot, num_decode
    for shape, group in groupby(extends, lambda extend: run_shape(*extend, invariant=invariant)):
        rows = list(group)
        if not invariant:
            shape = max(count for _, count in rows), max(map(sum, rows))
        layout.runs.append(_lay_out_runs(cache, rows, shape, slot, token))
        slot, token = slot + len(rows), token + sum(count for _, count in rows)
    return layout


def _lay_out_runs(
    cache: KVCache, extends: Sequence[tuple[int, int]], shape: tuple[int, int], first_slot: int, first_token: int
) -> Runs:
    device = cache.device
    lengths_R, counts_R = (torch.tensor(column, device=device) for column in zip(*extends, strict=True))
    offsets_L = torch.arange(shape[0], device=device)
    valid_RL = offsets_L < counts_R[:, None]
    starts_R = first_token + counts_R.cumsum(0) - counts_R
    index_RL = torch.where(valid_RL, starts_R[:, None] + offsets_L, first_token)
    queries_RL = torch.where(valid_RL, lengths_R[:, None] + offsets_L, 0)
    mask = cache.mask(torch.arange(shape[1], device=device) <= queries_RL[:, :, None])[:, None]
    return Runs(first_slot, index_RL, valid_RL, mask)


_current = threading.local()


@contextmanager
def using(layout: RaggedLayout | PrefixTree | None) -> Iterator[None]:
    """Makes this thread's forward passes follow `layout`: transformers' attention interface passes no state of ours."""
    before, _current.layout = _layout(), layout
    try:
        yield
    finally:
        _current.layout = before


def _layout() -> RaggedLayout | PrefixTree | None:
    return getattr(_current, "layout", None)


def checkpoint_layers(model: torch.nn.Module) -> None:
    """Keeps of each layer its input alone for the backward pass, which computes the layer again."""
    layer: Any
    for layer in model.modules():
        if hasattr(layer, "gradient_checkpointing") and hasattr(layer, "self_attn"):
            layer.gradient_checkpointing = layer.training = True
            layer._gradient_checkpointing_func = _recompute


def _recompute(layer: Callable[..., Any], *inputs: Any) -> Any:
    """The layer now, and again in the backward pass, which may run on another thread, under the layout of now."""
    if not torch.is_grad_enabled():
        return layer(*inputs)
    layout = _layout()

    def compute(*inputs: Any) -> Any:
        with using(layout):
            return layer(*inputs)

    return checkpoint(compute, *inputs, use_reentrant=False, preserve_rng_state=False)


def ragged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The attention `rlf`. Without a layout it is causal attention over whole right-padded rows, for training.

    Args:
        query: [B, H, N, D]; B is 1 with a layout.
        key, value: [B, KV, N, D].
        attention_mask: unused; right padding needs none, since no real token attends to what follows it.

    Returns:
        [B, N, H, D], None.
    """
    layout = _layout()
    if isinstance(layout, PrefixTree):
        return layout.attend(query, key, value, scale=scaling), None
    if layout is None:
        out = attend(query, key, value, scale=scaling, causal=query.shape[2] > 1)
        return out.transpose(1, 2), None
    layer: Any = module.layer_idx
    keys_SKTD, values_SKTD = layout.cache.write(layer, layout.slots_N, layout.positions_N, key, value)
    query_NHD = query[0].transpose(0, 1)
    num_decode, parts = layout.num_decode, []
    if layout.decode_mask is not None:
        width = layout.decode_mask.shape[-1]
        k, v = keys_SKTD[:num_decode, :, :width], values_SKTD[:num_decode, :, :width]
        out = attend(query_NHD[:num_decode, :, None], k, v, layout.decode_mask, scale=scaling)
        parts.append(out[:, :, 0])
    for run in layout.runs:
        slots = slice(run.first_slot, run.first_slot + len(run.index_RL))
        k, v = keys_SKTD[slots, :, : run.mask.shape[-1]], values_SKTD[slots, :, : run.mask.shape[-1]]
        out = attend(query_NHD[run.index_RL].transpose(1, 2), k, v, run.mask, scale=scaling)
        parts.append(out.transpose(1, 2)[run.valid_RL])
    if layout.num_filling:
        parts.append(parts[-1][-1:].expand(layout.num_filling, -1, -1))
    joined = parts[0] if len(parts) == 1 else torch.cat(parts)
    return joined[None], None


# Open trajectories and the cache slots they hold: those that decode come first, without gaps.
#
# Rows that decode are slots 0 to `num_active`, so that attention reads one contiguous block of the cache; the others
# keep their keys and values behind it while their tools run.


@dataclass(slots=True, eq=False)
class AttentionRow:
    """One open trajectory."""

    id: str
    due: int = 0
    """Tick at which the row continues, or ends."""
    request: SampleRequest | None = None
    """The turn to sample; None while the trajectory's tools run."""
    reply: asyncio.Future[Sample] | None = None
    slot: int = -1
    """Of the cache, with its keys and values; -1: it has none yet."""
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
    state: TurnState | None = None
    """Where a turn of a form stands."""
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
        self.state = None if request.sampling.form is None else request.sampling.form()
        self.sample = Sample(self.tokens, self.logprobs, Finish.LENGTH, self.tops, self.versions)

    def _forget(self, tokens: Sequence[int]) -> None:
        """Keeps what the tokens begin with, and the keys and values of that."""
        shared = count_shared(self.context, tokens)
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
    """The open rows, and which slots of the cache they have.

    Keys and values are moved in `settle` alone, before they are read: a row that waits or ends costs no copy.
    """

    def __init__(self, cache: KVCache, num_slots: int) -> None:
        self.cache = cache
        self.num_slots = num_slots
        self.active: list[AttentionRow] = []
        """Rows that decode."""
        self.away: list[AttentionRow] = []
        """Rows that wait: for their tools, or for their turn to join."""

    @property
    def rows(self) -> list[AttentionRow]:
        """All open rows."""
        return self.active + self.away

    @property
    def has_room(self) -> bool:
        """Whether one more row may be open."""
        return len(self.active) + len(self.away) < self.num_slots

    def activate(self, row: AttentionRow) -> None:
        """Lets a waiting row decode."""
        self.away.remove(row)
        self.active.append(row)

    def deactivate(self, row: AttentionRow) -> None:
        """Lets a row wait that decodes. The last one takes its place: all others keep their slots."""
        last = self.active.pop()
        if last is not row:
            self.active[self.active.index(row)] = last
        self.away.append(row)

    def free(self, row: AttentionRow) -> None:
        """Closes a row."""
        if row in self.active:
            self.deactivate(row)
        self.away.remove(row)

    def clear(self) -> None:
        """Closes every row, and frees the memory by which the cache has grown."""
        self.active, self.away = [], []
        self.cache.shrink()

    def lend(self, rows: Sequence[AttentionRow]) -> None:
        """Gives a slot to those that have none, in a cache that holds all that open rows know."""
        self.cache.fit(len(self.rows), max(len(row.context) for row in self.rows))
        used = {row.slot for row in self.rows}
        unused = (slot for slot in range(len(self.rows)) if slot not in used)
        for row in rows:
            if row.slot < 0:
                row.slot = next(unused)

    def settle(self, fed: Sequence[AttentionRow]) -> None:
        """Gives the rows that are fed the first slots, in order; others there take those that become free."""
        kept, before = set(fed), [row.slot for row in fed]
        leaving = [row for row in self.rows if row.slot in range(len(fed)) and row not in kept]
        coming = [row for slot, row in enumerate(fed) if row.slot != slot]
        moved = [row for row in coming + leaving if row.num_cached]
        sources = [row.slot for row in moved]
        for slot, row in enumerate(fed):
            row.slot = slot
        for row, slot in zip(leaving, (slot for slot in before if slot >= len(fed)), strict=False):
            row.slot = slot
        if moved:
            self.cache.move(sources, [row.slot for row in moved], [row.num_cached for row in moved])
