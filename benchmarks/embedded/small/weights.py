"""Starting weights with which copying is there from the first step: an induction circuit, set by hand.

From random weights, hundreds of steps pass before two layers find each other: a head that looks one token back and
writes down what it saw, and a head of the next layer that looks for what followed the present token before. Here
they start that way, in one head of the first layer and two of the second. Every other block starts by writing
nothing, so that the embeddings are not drowned. All weights are trained as ever.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from transformers import Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

_EMBEDDING_SCALE = 1.6
"""Of the embeddings, so that a token stands out among two thousand."""
_COMMON_STD = 0.06
"""Of a vector added to every embedding, by which a head can attend to a place whatever stands there."""
_QUERY_SCALE = 0.6
_WRITE_SCALE = 0.5
_NUM_PLACE_FREQUENCIES = 4
"""The fastest of the rotary frequencies, which distinguish neighbours."""
_NUM_FAST_FREQUENCIES = 6
"""The rest are slow enough to match contents at any distance."""
_CONTENT_OFFSETS = (0, 12)
"""Where in the first head's 32 dimensions each of the two matching heads begins to compare."""


@torch.no_grad()
def start_copying(model: Qwen3ForCausalLM, seed: int) -> None:
    """Set the circuit into a fresh model whose query and key heads are equally many."""
    generator = torch.Generator().manual_seed(seed)
    width, size = int(model.config.hidden_size), int(model.config.head_dim)
    common = torch.randn(width, generator=generator)
    model.model.embed_tokens.weight.mul_(_EMBEDDING_SCALE).add_(common * _COMMON_STD)
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()

    common = common / common.norm()
    seen, before, two_before, sought = (_subspace(common, size, generator) for _ in range(4))
    first, second, third = (model.model.layers[number].self_attn for number in range(3))
    frequencies = model.model.rotary_emb.inv_freq.tolist()
    for head, written in enumerate((before, two_before)):
        rows = slice(head * size, (head + 1) * size)
        query, key = _looking_back(frequencies, size, head + 1)
        first.q_proj.weight[rows] += torch.outer(query, common) * _QUERY_SCALE
        first.k_proj.weight[rows] += torch.outer(key, common) * _QUERY_SCALE
        _copy(first, head, seen, written)
    for head, (offset, asked) in enumerate(zip(_CONTENT_OFFSETS, (sought, before), strict=True)):
        _match(second, head, offset, seen, before)
        _match(third, head, offset, asked, two_before)
        for attention in (second, third):
            copied = _subspace(common, size, generator)
            _copy(attention, head, copied, copied)
    _copy(second, len(_CONTENT_OFFSETS), seen, sought)


def _match(attention: Qwen3Attention, head: int, offset: int, asked: torch.Tensor, held: torch.Tensor) -> None:
    """Make a head attend to where `held` has the content that `asked` has here."""
    size = len(held)
    rows = slice(head * size, (head + 1) * size)
    half = size // 2
    slots = [*range(_NUM_FAST_FREQUENCIES, half), *range(half + _NUM_FAST_FREQUENCIES, size)]
    for projection, content in ((attention.q_proj, asked), (attention.k_proj, held)):
        projection.weight[rows] *= 0.1
        projection.weight[[head * size + slot for slot in slots]] += (
            content[offset : offset + len(slots)] * _QUERY_SCALE
        )


def _copy(attention: Qwen3Attention, head: int, read: torch.Tensor, written: torch.Tensor) -> None:
    """Make a head write what it reads where it attends."""
    rows = slice(head * len(read), (head + 1) * len(read))
    attention.v_proj.weight[rows] = read
    attention.o_proj.weight[:, rows] = written.T * _WRITE_SCALE


def _subspace(common: torch.Tensor, size: int, generator: torch.Generator) -> torch.Tensor:
    """`size` orthonormal rows, all orthogonal to the unit vector `common`."""
    columns = torch.randn(common.numel(), size, generator=generator)
    columns = columns - common[:, None] * (common @ columns)
    rows: torch.Tensor = torch.linalg.qr(columns)[0].T.contiguous()
    return rows


def _looking_back(frequencies: Sequence[float], size: int, distance: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A query and a key whose product, once both are rotated, is largest `distance` tokens back."""
    query, key = torch.zeros(size), torch.zeros(size)
    for number, frequency in enumerate(frequencies[:_NUM_PLACE_FREQUENCIES]):
        query[number] = 1.0
        key[number], key[number + size // 2] = math.cos(distance * frequency), math.sin(distance * frequency)
    return query, key
