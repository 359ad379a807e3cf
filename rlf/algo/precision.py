"""Statistics and exponentials are computed in float32 or better, whatever the model's dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def at_least_float32(values: Tensor) -> Tensor:
    """The same numbers in float32, or in float64 if they came so."""
    return values.float() if values.dtype.itemsize < 4 else values
