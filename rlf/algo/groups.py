"""Statistics over the rollouts of one task, given as a group number per row.

Tensor methods only, so that estimators import without torch. Invariant: a group whose values are all equal, and a
group of one, deviate from their mean by exactly 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def group_sum(values_B: Tensor, group_B: Tensor) -> Tensor:
    """Sum over each row's group, repeated at each of its rows."""
    index_B, num_groups = _index_groups(group_B)
    return values_B.new_zeros(num_groups).index_add(0, index_B, values_B)[index_B]


def group_size(values_B: Tensor, group_B: Tensor) -> Tensor:
    """Number of rows in each row's group, in the dtype of `values_B`."""
    return group_sum(values_B.new_ones(values_B.shape), group_B)


def group_mean(values_B: Tensor, group_B: Tensor) -> Tensor:
    """Mean over each row's group, repeated at each of its rows."""
    return group_sum(values_B, group_B) / group_size(values_B, group_B)


def group_deviation(values_B: Tensor, group_B: Tensor) -> Tensor:
    """`r_i - mean(r)` over each row's group.

    Departure from OpenRLHF, which subtracts the rounded mean: there eight equal float32 rewards of 0.1 leave a
    residue of 7e-9 that its division by a standard deviation of the same size turns into an advantage of -0.83.
    Here the group's least value goes first, which leaves equal values exactly 0.
    """
    above_B = values_B - group_least(values_B, group_B)
    return above_B - group_mean(above_B, group_B)


def group_least(values_B: Tensor, group_B: Tensor) -> Tensor:
    """The least value of each row's group, repeated at each of its rows."""
    index_B, num_groups = _index_groups(group_B)
    least_P = values_B.new_zeros(num_groups).scatter_reduce(0, index_B, values_B, "amin", include_self=False)
    return least_P[index_B]


def ranks_in_groups(values_B: Tensor, group_B: Tensor) -> Iterator[Tensor]:
    """The rows of each group, int64, by ascending value."""
    index_B, num_groups = _index_groups(group_B)
    order_B = values_B.argsort(stable=True)
    for group in range(num_groups):
        yield order_B[index_B[order_B] == group]


def group_std(values_B: Tensor, group_B: Tensor) -> Tensor:
    """`sqrt(sum((r_i - mean(r))^2) / (n - 1))` over each row's group of n; 0 for a group of one."""
    squares_B = group_sum(group_deviation(values_B, group_B).square(), group_B)
    return (squares_B / (group_size(values_B, group_B) - 1).clamp(min=1)).sqrt()


def _index_groups(group_B: Tensor) -> tuple[Tensor, int]:
    """Any group numbers as 0 .. P-1 per row, and P."""
    keys_P, index_B = group_B.unique(return_inverse=True)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return index_B, len(keys_P)
