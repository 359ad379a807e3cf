"""Keys and values of every open trajectory, one slot each, kept from its first turn to its last."""

from __future__ import annotations

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
        shape = (num_layers, 2, num_slots, num_heads, max_tokens, head_dim)
        try:
            # Zeroed, not left as found: a NaN in a masked place would still reach the sum, as 0 * NaN.
            self._data = torch.zeros(shape, dtype=dtype, device=device)
        except (RuntimeError, torch.OutOfMemoryError) as error:
            size = 2 * num_layers * num_slots * num_heads * max_tokens * head_dim * dtype.itemsize
            raise RunError(
                f"no room for the keys and values of {num_slots} trajectories of {max_tokens} tokens "
                f"({size / 2**30:.1f} GiB); lower rollout.max_concurrency or rollout.max_total_tokens"
            ) from error
        self.device = device

    @property
    def num_slots(self) -> int:
        """Trajectories that fit."""
        return self._data.shape[2]

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
