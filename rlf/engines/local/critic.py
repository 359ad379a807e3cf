"""The value model of `gae`: a copy of the starting policy's backbone with a scalar head."""

from __future__ import annotations

import copy

import torch
from torch import nn

from rlf.engines.local.model import PolicyModel, split


class Critic(nn.Module):
    """V(state before token t), read at the position whose logits predict token t."""

    def __init__(self, policy: PolicyModel) -> None:
        super().__init__()
        self.full = copy.deepcopy(policy.full)
        self._dtype, self._is_plain = policy.dtype, policy.is_plain
        self.value_head = nn.Linear(policy.config.hidden_size, 1, bias=False)
        nn.init.zeros_(self.value_head.weight)
        self.to(policy.device)

    @property
    def model(self) -> PolicyModel:
        """Its backbone, as hidden states are read from it."""
        return split(self.full, self._dtype, is_plain=self._is_plain)

    def values(self, hidden_NH: torch.Tensor) -> torch.Tensor:
        """Values of hidden states: float32 [N]."""
        values: torch.Tensor = self.value_head(hidden_NH.float())[:, 0]
        return values
