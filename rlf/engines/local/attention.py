"""Attention over a ragged batch: every token of a decode tick in one row, no padding outside attention itself.

The transformers model runs on tokens of shape [1, N]; its linear layers never see padding. This function, registered
as the attention `rlf`, writes each token's key and value to its row's slot in the cache and lets it attend to that
slot only. Rows that decode one token are a contiguous range of slots, so that no key is ever gathered.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from rlf.engines.local.cache import KVCache

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ATTENTION = "rlf"


@dataclass(slots=True)
class RaggedLayout:
    """Which token belongs to which slot, for one forward pass.

    The N tokens are `num_decode` single ones of slots 0, 1, ..., then the runs of the extending rows, whose slots
    follow on directly.
    """

    cache: KVCache
    num_decode: int
    slots_N: torch.Tensor
    """int64: the cache slot of each token."""
    positions_N: torch.Tensor
    """int64: the position of each token in its row."""
    decode_mask: torch.Tensor | None
    """bool [A, 1, 1, T]: what each decoding token may attend to."""
    extend_index_RL: torch.Tensor | None
    """int64: for each extending row and offset the token's place among the extending tokens; padding points to 0."""
    extend_valid_RL: torch.Tensor | None
    """bool: false on padding."""
    extend_mask: torch.Tensor | None
    """bool [R, 1, L, T]."""

    @property
    def num_extend(self) -> int:
        """Number of extending rows."""
        return 0 if self.extend_index_RL is None else self.extend_index_RL.shape[0]


def ragged_layout(cache: KVCache, decode_lengths: Sequence[int], extends: Sequence[tuple[int, int]]) -> RaggedLayout:
    """The layout for rows that decode and rows that extend.

    Args:
        cache: where keys and values go.
        decode_lengths: tokens already cached per decoding row, which sit in slots 0, 1, ...
        extends: (tokens already cached, new tokens) per extending row, in the slots after them.
    """
    device = cache.device
    num_decode = len(decode_lengths)
    slots, positions = list(range(num_decode)), list(decode_lengths)
    for row, (length, count) in enumerate(extends):
        slots += [num_decode + row] * count
        positions += range(length, length + count)
    layout = RaggedLayout(
        cache, num_decode, torch.tensor(slots, device=device), torch.tensor(positions, device=device), *[None] * 4
    )
    if num_decode:
        keys_T = torch.arange(max(decode_lengths) + 1, device=device)
        layout.decode_mask = (keys_T <= layout.positions_N[:num_decode, None])[:, None, None, :]
    if extends:
        _lay_out_extends(layout, extends)
    return layout


def _lay_out_extends(layout: RaggedLayout, extends: Sequence[tuple[int, int]]) -> None:
    device = layout.cache.device
    lengths_R, counts_R = (torch.tensor(column, device=device) for column in zip(*extends, strict=True))
    offsets_L = torch.arange(int(counts_R.max()), device=device)
    valid_RL = offsets_L < counts_R[:, None]
    starts_R = counts_R.cumsum(0) - counts_R
    layout.extend_valid_RL = valid_RL
    layout.extend_index_RL = torch.where(valid_RL, starts_R[:, None] + offsets_L, 0)
    keys_T = torch.arange(int((lengths_R + counts_R).max()), device=device)
    queries_RL = torch.where(valid_RL, lengths_R[:, None] + offsets_L, 0)
    layout.extend_mask = (keys_T <= queries_RL[:, :, None])[:, None]


_current = threading.local()


@contextmanager
def using(layout: RaggedLayout) -> Iterator[None]:
    """Makes this thread's forward passes follow `layout`: transformers' attention interface passes no state of ours."""
    _current.layout = layout
    try:
        yield
    finally:
        _current.layout = None


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
    gqa = query.shape[1] != key.shape[1]
    layout: RaggedLayout | None = getattr(_current, "layout", None)
    if layout is None:
        out = sdpa(query, key, value, is_causal=query.shape[2] > 1, scale=scaling, enable_gqa=gqa)
        return out.transpose(1, 2), None
    layer: Any = module.layer_idx
    keys_SKTD, values_SKTD = layout.cache.write(layer, layout.slots_N, layout.positions_N, key, value)
    query_NHD = query[0].transpose(0, 1)
    num_decode, parts = layout.num_decode, []
    if layout.decode_mask is not None:
        width = layout.decode_mask.shape[-1]
        k, v = keys_SKTD[:num_decode, :, :width], values_SKTD[:num_decode, :, :width]
        out = sdpa(query_NHD[:num_decode, :, None], k, v, layout.decode_mask, scale=scaling, enable_gqa=gqa)
        parts.append(out[:, :, 0])
    if layout.extend_mask is not None and layout.extend_index_RL is not None and layout.extend_valid_RL is not None:
        width, stop = layout.extend_mask.shape[-1], num_decode + layout.num_extend
        k, v = keys_SKTD[num_decode:stop, :, :width], values_SKTD[num_decode:stop, :, :width]
        padded = query_NHD[num_decode:][layout.extend_index_RL].transpose(1, 2)
        out = sdpa(padded, k, v, layout.extend_mask, scale=scaling, enable_gqa=gqa)
        parts.append(out.transpose(1, 2)[layout.extend_valid_RL])
    joined = parts[0] if len(parts) == 1 else torch.cat(parts)
    return joined[None], None
