"""Keys and values of every open trajectory, one slot each, kept from its first turn to its last."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from rlf.core.errors import RunError

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
        self,
        layer: int,
        slots_N: torch.Tensor,
        positions_N: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores key and value [1, KV, N, D] of N tokens; returns the layer's whole cache, twice [S, KV, T, D]."""
        keys, values = self._data[layer, 0], self._data[layer, 1]
        keys[slots_N, :, positions_N] = key[0].transpose(0, 1).to(keys.dtype)
        values[slots_N, :, positions_N] = value[0].transpose(0, 1).to(values.dtype)
        return keys, values

    def copy(self, source: int, targets: slice, start: int, stop: int) -> None:
        """Copies some tokens of one slot to others."""
        self._data[:, :, targets, :, start:stop] = self._data[:, :, source : source + 1, :, start:stop]

    def copy_tokens(self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int]) -> None:
        """Copies one token each of several slots to others."""
        places = torch.tensor([sources, targets, positions], device=self.device)
        self._data[:, :, places[1], :, places[2]] = self._data[:, :, places[0], :, places[2]]

    def swap(self, left: int, right: int, num_tokens: int) -> None:
        """Exchanges the first tokens of two slots."""
        if not num_tokens:
            return
        kept = self._data[:, :, left, :, :num_tokens].clone()
        self.copy(right, slice(left, left + 1), 0, num_tokens)
        self._data[:, :, right, :, :num_tokens] = kept
