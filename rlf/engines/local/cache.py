"""Keys and values of every open trajectory, one slot each, kept from its first turn to its last."""

from __future__ import annotations

import math

import torch

from rlf.core.errors import RunError


class KVCache:
    """A fixed block of slots. Which trajectory holds which slot is the sampler's affair."""

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
        self._at_first = num_slots, max_tokens
        self._data = _zeros((num_layers, 2, num_slots, num_heads, max_tokens, head_dim), dtype, device)

    def fit(self, num_slots: int, num_tokens: int) -> None:
        """Grows to at least so many slots and tokens of each, by doubling; what is kept stays."""
        had = self._data
        layers, two, had_slots, heads, had_tokens, head_dim = had.shape
        if num_slots <= had_slots and num_tokens <= had_tokens:
            return
        slots = had_slots if num_slots <= had_slots else max(num_slots, 2 * had_slots)
        tokens = had_tokens if num_tokens <= had_tokens else max(num_tokens, 2 * had_tokens)
        self._data = _zeros((layers, two, slots, heads, tokens, head_dim), had.dtype, had.device)
        self._data[:, :, :had_slots, :, :had_tokens] = had

    def shrink(self) -> None:
        """Gives back what it has grown by; nothing of it is needed any more."""
        layers, two, slots, heads, tokens, head_dim = self._data.shape
        if (slots, tokens) != self._at_first:
            slots, tokens = self._at_first
            self._data = _zeros((layers, two, slots, heads, tokens, head_dim), self._data.dtype, self.device)

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

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        """Copies the first tokens of one slot to another."""
        self._data[:, :, target, :, :num_tokens] = self._data[:, :, source, :, :num_tokens]

    def swap(self, left: int, right: int, num_tokens: int) -> None:
        """Exchanges the first tokens of two slots."""
        kept = self._data[:, :, left, :, :num_tokens].clone()
        self.copy(right, left, num_tokens)
        self._data[:, :, right, :, :num_tokens] = kept


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeroed, not left as found: a NaN in a masked place would still reach the sum, as 0 * NaN."""
    try:
        with torch.inference_mode(False):  # slots are exchanged outside of inference too
            return torch.zeros(shape, dtype=dtype, device=device)
    except (RuntimeError, torch.OutOfMemoryError) as error:
        size = math.prod(shape) * dtype.itemsize
        raise RunError(
            f"no room for the keys and values of {shape[2]} trajectories of {shape[4]} tokens "
            f"({size / 2**30:.1f} GiB); lower rollout.max_concurrency or rollout.max_total_tokens"
        ) from error
