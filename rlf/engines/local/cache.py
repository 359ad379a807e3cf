"""A micro-batch as a tree of prefixes: a common beginning of several rows is computed once.

A hidden state depends on the tokens up to it alone, so rows that begin alike have the same states there: a group's
prompt, and often its first turns. Every layer runs on each distinct prefix once, named by its last token, and sees no
padding. The result equals that of the rows one by one up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.functional import scaled_dot_product_attention as sdpa

from rlf.core.errors import RunError

_KEY_WEIGHT = 1 / 16
"""Memory of a token's copied key and value, in tokens of a micro-batch."""
_MIN_TOKENS, _MAX_PARTS = 600, 8
"""Micro-batches of at least so many tokens are worth being split for the sake of several cores, up to so many parts."""
_CALL_COST, _COPY_COST = 8192, 16
"""Of one more attention call, and of one more key that is copied for it, in pairs of query and key."""
_MASK_NUMEL = 1 << 22
"""Pairs of the largest attention mask."""


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, scale: float | None, causal: bool = False
) -> Tensor:
    """Attention of [B, H, Q, D] over [B, KV, K, D]. Args: mask: as torch's, whose last two dimensions are [Q, K]."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and _is_on_gpu(query):
        return _attend_by_key(query, key, value, mask, scale=scale, causal=causal)
    return sdpa(query, key, value, mask, is_causal=causal, scale=scale, enable_gqa=groups > 1)


def _is_on_gpu(tensor: Tensor) -> bool:
    return tensor.is_cuda


def _attend_by_key(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, scale: float | None, causal: bool
) -> Tensor:
    """The same with all query heads of a key as that many queries of one head.

    torch's kernels for GPUs take a mask, or several query heads for a key's, not both; what is left would hold the
    score of every pair. (cuDNN's takes both, and plans each new shape for a tenth of a second: `load_model` shuts it
    out.)
    """
    groups = query.shape[1] // key.shape[1]
    if mask is None:
        key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
        return sdpa(query, key, value, is_causal=causal, scale=scale)
    joined = query.reshape(*key.shape[:2], groups * query.shape[2], query.shape[3])
    if mask.shape[-2] not in (1, joined.shape[2]):
        mask = torch.cat([mask] * groups, dim=-2)
    return sdpa(joined, key, value, mask, scale=scale).reshape(query.shape)


@dataclass(frozen=True, slots=True)
class Block:
    """Rows whose attention is computed together: their own prefixes attend to those before them."""

    num_queries: int
    num_keys: int
    """The beginning that the first row shares with earlier ones, then the block's own prefixes."""
    mask_QK: Tensor | None
    """bool: what each query sees; None: one row, causal."""
    summands: dict[int, Tensor] = field(default_factory=dict, compare=False)
    """The mask as numbers to be added, by query heads of a key. A GPU's kernel wants it so, and else each layer would
    make one and keep it for its gradient."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None) -> Tensor:
        """Attention of [1, H, Q, D] over [1, KV, K, D]."""
        if self.mask_QK is not None:
            mask = self._summand(query, query.shape[1] // key.shape[1]) if _is_on_gpu(query) else self.mask_QK
            return attend(query, key, value, mask, scale=scale)
        first = self.num_keys - self.num_queries
        if first:
            query = pad(query, (0, 0, first, 0))
        return attend(query, key, value, scale=scale, causal=self.num_keys > 1)[:, :, first:]

    def _summand(self, query: Tensor, groups: int) -> Tensor:
        assert self.mask_QK is not None, "a block of one row has no mask"
        if groups not in self.summands:
            kind = query.device.type
            dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else query.dtype
            # The kernel reads rows that begin at multiples of eight numbers; others it copies, for each layer.
            numbers = query.new_full((self.num_queries, round_up(self.num_keys)), -math.inf, dtype=dtype)
            numbers[:, : self.num_keys].masked_fill_(self.mask_QK, 0)
            self.summands[groups] = numbers.repeat(groups, 1)[:, : self.num_keys]
        return self.summands[groups]


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """R rows of at most T tokens as N distinct prefixes, in the order in which the rows bring them."""

    tokens_N: Tensor
    """int64: the last token of each prefix."""
    positions_N: Tensor
    """int64: its position."""
    index_RT: Tensor
    """int64: the prefix that ends at each token of each row; padding points to any."""
    parent_N: Tensor
    """int64: the prefix one token shorter; of a first token any."""
    blocks: tuple[Block, ...]
    keys_K: Tensor
    """int64: the prefixes that each block sees, block after block."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None) -> Tensor:
        """Attention of each prefix over those it begins with: [1, H, N, D] and [1, KV, N, D] to [1, N, H, D]."""
        queries = torch.split(query, [block.num_queries for block in self.blocks], dim=2)
        sizes = [block.num_keys for block in self.blocks]
        keys, values = (torch.split(part.index_select(2, self.keys_K), sizes, dim=2) for part in (key, value))
        parts = zip(self.blocks, queries, keys, values, strict=True)
        out = [block.attend(q, k, v, scale=scale).transpose(1, 2) for block, q, k, v in parts]
        return torch.cat(out, dim=1)


def sort_by_tokens(rows: Tensor, tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
    """Row numbers in the order of their tokens, so that rows that begin alike follow each other."""
    tokens = {row: tokens_BT[row, : int(lengths_B[row])].tolist() for row in rows.tolist()}
    return torch.tensor(sorted(tokens, key=tokens.__getitem__), dtype=torch.int64)


def split_rows(rows: Tensor, tokens_BT: Tensor, lengths_B: Tensor, max_tokens: int) -> Iterator[Tensor]:
    """Splits sorted row numbers into micro-batches of similar size, between rows that have least in common.

    A row counts its tokens that the row before it does not begin with, and a little for what it shares. The split
    follows from the rows alone, so that no number of threads changes it.

    Args:
        max_tokens: of a micro-batch; a single row longer than that is one of its own.
    """
    lengths = lengths_B[rows].tolist()
    shared = _count_shared_prefixes(tokens_BT[rows], lengths_B[rows]).tolist()
    total = sum(_size(length, common) for length, common in zip(lengths, shared, strict=True))
    num_parts = max(-(-total // max_tokens), min(_MAX_PARTS, total // _MIN_TOKENS), 1)
    start, size = 0, 0.0
    for end, (length, common) in enumerate(zip(lengths, shared, strict=True)):
        grown = size + _size(length, common)
        is_full = grown > total / num_parts and 2 * common < length
        if end > start and (grown > max_tokens or is_full):
            yield rows[start:end]
            start, grown = end, _size(length, 0)
        size = grown
    if start < len(rows):
        yield rows[start:]


def _size(length: int, shared: int) -> float:
    return length - shared + _KEY_WEIGHT * length


def _count_shared_prefixes(tokens_RT: Tensor, lengths_R: Tensor) -> Tensor:
    """How many tokens of each row also begin the row before it: int64 [R], on the CPU."""
    valid_RT = torch.arange(tokens_RT.shape[1]) < lengths_R[:, None].cpu()
    tokens_RT = tokens_RT.cpu()
    equal_RT = (tokens_RT[1:] == tokens_RT[:-1]) & valid_RT[1:] & valid_RT[:-1]
    return torch.cat([torch.zeros(1, dtype=torch.int64), equal_RT.cumprod(1, dtype=torch.uint8).sum(1)])


def merge_prefixes(tokens_RT: Tensor, lengths_R: Tensor) -> PrefixTree:
    """The tree of right-padded rows; those that begin alike have to follow each other (`sort_by_tokens`)."""
    device, num_tokens = tokens_RT.device, tokens_RT.shape[1]
    shared_R = _count_shared_prefixes(tokens_RT, lengths_R)
    offsets_T, lengths_R = torch.arange(num_tokens), lengths_R.cpu()
    is_new_RT = (offsets_T < lengths_R[:, None]) & (offsets_T >= shared_R[:, None])
    place_N = is_new_RT.flatten().nonzero()[:, 0]
    numbers_RT = torch.zeros(is_new_RT.numel(), dtype=torch.int64).index_copy(0, place_N, torch.arange(len(place_N)))
    # What a row shares was brought by the last row above it that has a token of its own there.
    index_RT = numbers_RT.view(is_new_RT.shape).cummax(0).values
    blocks = _group_rows(shared_R.tolist(), lengths_R.tolist())
    keys = [torch.cat([index_RT[a, : int(shared_R[a])], index_RT[a:b][is_new_RT[a:b]]]).to(device) for a, b in blocks]
    return PrefixTree(
        tokens_RT.flatten()[place_N.to(device)],
        (place_N % num_tokens).to(device),
        index_RT.to(device),
        index_RT.flatten()[place_N - 1].to(device),
        tuple(_block(index_RT[a:b], shared_R[a:b].tolist(), lengths_R[a:b].tolist(), device) for a, b in blocks),
        torch.cat(keys),
    )


def _group_rows(shared: Sequence[int], lengths: Sequence[int]) -> list[tuple[int, int]]:
    """First row and end of each block: rows stay together where that costs less than attention calls of their own."""
    starts, size = [0], (lengths[0], lengths[0])
    for row in range(1, len(lengths)):
        new = lengths[row] - shared[row]
        merged, alone = (size[0] + new, size[1] + new), (new, lengths[row])
        joins = merged[0] * merged[1] <= _MASK_NUMEL and _cost(*merged) <= _cost(*size) + _cost(*alone)
        if new == 0 or joins:
            size = merged
        else:
            starts.append(row)
            size = alone
    return list(pairwise([*starts, len(lengths)]))


def _cost(num_queries: int, num_keys: int) -> int:
    return num_queries * num_keys + _COPY_COST * num_keys + _CALL_COST


def _block(index_RT: Tensor, shared: Sequence[int], lengths: Sequence[int], device: torch.device) -> Block:
    """The block of these rows, of which the first brings at least one prefix."""
    num_path = shared[0]
    num_queries = sum(lengths) - sum(shared)
    num_keys = num_path + num_queries
    if len(lengths) == 1 and (num_path == 0 or num_queries * num_keys > _MASK_NUMEL):
        return Block(num_queries, num_keys, None)
    first = int(index_RT[0, num_path])
    mask_QK = torch.zeros(num_queries, num_keys, dtype=torch.bool)
    done = 0
    for path_T, common, length in zip(index_RT, shared, lengths, strict=True):
        path_L = path_T[:length]
        keys_L = torch.where(path_L < first, torch.arange(length), path_L - first + num_path)
        mask_QK[done : done + length - common, keys_L] = torch.ones(length, length, dtype=torch.bool).tril()[common:]
        done += length - common
    return Block(num_queries, num_keys, mask_QK.to(device))


# Keys and values of every open trajectory, one slot each, kept from its first turn to its last.

BLOCK = 16
"""Slots hold a multiple of so many tokens, which an invariant layout rounds every number of tokens up to."""


def round_up(num_tokens: int) -> int:
    """The next multiple of `BLOCK`."""
    return -(-num_tokens // BLOCK) * BLOCK


class KVCache:
    """A block of slots, reserved when it is first needed. Which trajectory holds which slot is the host's affair."""

    def __init__(
        self,
        *,
        num_layers: int,
        num_slots: int,
        num_heads: int,
        max_tokens: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.device = device
        self._reserved = num_slots, round_up(max_tokens)
        self._data = torch.zeros((num_layers, 2, 0, num_heads, 0, head_dim), dtype=dtype, device=device)

    def fit(self, num_slots: int, num_tokens: int) -> None:
        """Reserves the slots and the tokens of each; one that they do not fit into doubles, and keeps what it holds."""
        had, num_tokens = self._data, round_up(num_tokens)
        _, _, had_slots, _, had_tokens, _ = had.shape
        if num_slots > had_slots or num_tokens > had_tokens:
            slots = max(self._reserved[0], had_slots if num_slots <= had_slots else max(num_slots, 2 * had_slots))
            tokens = max(self._reserved[1], had_tokens if num_tokens <= had_tokens else max(num_tokens, 2 * had_tokens))
            self._data = self._zeros(slots, tokens)
            self._data[:, :, :had_slots, :, :had_tokens] = had

    def shrink(self) -> None:
        """Frees what was not reserved from the start; its contents are no longer needed."""
        if self._data.shape[2] > self._reserved[0] or self._data.shape[4] > self._reserved[1]:
            self._data = self._zeros(0, 0)

    def _zeros(self, num_slots: int, num_tokens: int) -> torch.Tensor:
        """Zeroed, not left as found: a NaN in a masked place would still reach the sum, as 0 * NaN."""
        layers, two, _, heads, _, head_dim = self._data.shape
        shape = (layers, two, num_slots, heads, num_tokens, head_dim)
        try:
            with torch.inference_mode(False):  # slots are exchanged outside of inference too
                return torch.zeros(shape, dtype=self._data.dtype, device=self.device)
        except (RuntimeError, torch.OutOfMemoryError) as error:
            size_bytes = math.prod(shape) * self._data.dtype.itemsize
            raise RunError(
                f"no room for the keys and values of {num_slots} trajectories of {num_tokens} tokens "
                f"({size_bytes / 2**30:.1f} GiB); lower rollout.max_concurrency or rollout.max_total_tokens"
            ) from error

    def write(
        self, layer: int, slots_N: torch.Tensor, positions_N: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores key and value [1, KV, N, D] of N tokens; returns the layer's whole cache, twice [S, KV, T, D]."""
        keys, values = self._data[layer, 0], self._data[layer, 1]
        keys[slots_N, :, positions_N] = key[0].transpose(0, 1).to(keys.dtype)
        values[slots_N, :, positions_N] = value[0].transpose(0, 1).to(values.dtype)
        return keys, values

    def mask(self, seen: torch.Tensor) -> torch.Tensor:
        """What may be attended to, as the numbers that layers would make of it; bool where autocast may choose them."""
        is_exact = self._data.dtype is torch.float32
        return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, -math.inf) if is_exact else seen

    def copy(self, source: int, targets: slice, start: int, stop: int) -> None:
        """Copies some tokens of one slot to others."""
        self._data[:, :, targets, :, start:stop] = self._data[:, :, source : source + 1, :, start:stop]

    def copy_tokens(self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int]) -> None:
        """Copies one token each of several slots to others."""
        layers, two, _, heads, tokens, head_dim = self._data.shape
        flat = self._data.view(layers * two, -1, head_dim)
        slots_2N1 = torch.tensor([sources, targets], device=self.device)[..., None]
        places = slots_2N1 * heads + torch.arange(heads, device=self.device)
        places = places * tokens + torch.tensor(positions, device=self.device)[:, None]
        flat.index_copy_(1, places[1].flatten(), flat.index_select(1, places[0].flatten()))

    def move(self, sources: Sequence[int], targets: Sequence[int], nums_tokens: Sequence[int]) -> None:
        """Copies the first tokens of several slots to others, which may be sources too."""
        pairs = list(zip(sources, nums_tokens, strict=True))
        kept = [self._data[:, :, slot, :, :num_tokens].clone() for slot, num_tokens in pairs]
        for slot, values in zip(targets, kept, strict=True):
            self._data[:, :, slot, :, : values.shape[3]] = values
