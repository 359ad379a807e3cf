"""Reductions under a mask that hold where the mask is empty and where what it hides is no number."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def zero_outside(values_BT: Tensor, loss_mask_BT: Tensor) -> Tensor:
    """`values_BT` where the mask is true; 0, without gradient, elsewhere. Filled, not multiplied: NaN * 0 is NaN."""
    return values_BT.masked_fill(~loss_mask_BT.bool(), 0.0)


def masked_mean(values_BT: Tensor, loss_mask_BT: Tensor, dim: int | None = None) -> Tensor:
    """Mean over the true positions, of everything or along `dim`; 0 where there is none."""
    inside_BT = zero_outside(values_BT, loss_mask_BT)
    if dim is None:
        return inside_BT.sum() / loss_mask_BT.sum().clamp(min=1)
    return inside_BT.sum(dim=dim) / loss_mask_BT.sum(dim=dim).clamp(min=1)
