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
        self._dtype = policy.dtype
        self.value_head = nn.Linear(policy.config.hidden_size, 1, bias=False)
        nn.init.zeros_(self.value_head.weight)
        self.to(policy.device)

    def forward(self, tokens_BT: torch.Tensor, source_N: torch.Tensor) -> torch.Tensor:
        """Values of the flattened positions `source_N`: float32 [N]."""
        hidden_BTH = split(self.full, self._dtype).hidden(tokens_BT)
        values: torch.Tensor = self.value_head(hidden_BTH.flatten(0, 1)[source_N].float())[:, 0]
        return values
