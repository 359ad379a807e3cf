"""A bound on a mean and a test of its rise that hold at every look at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Means of values from 0 to 1 that are looked at as they come. By betting: capital that grows only where a hypothesis is
# wrong reaches 1 / alpha, at any time, with a chance of at most alpha where it holds (Ville's inequality); Waudby-Smith
# and Ramdas 2024 (arXiv:2010.09686). The values may depend on those before, and their means may move.

_GRID = 200
"""Parts of 0 to 1 between which bounds lie."""
_STAKES = (0.2, 0.5, 0.9)
"""Shares of the most that may be bet; each has a third of the capital."""
_NUM_SHARES = 20
"""Shares of the capital from which `RiseTest` chooses what it bets, below 1."""
_HALF_LIFE = 32
"""Values after which one counts half in what `RiseTest` expects of the next, at least."""
_EXPECTED = 6
"""Values of which `RiseTest` supposes at first that half are 1 and half are 0: a rise worth an alarm is large, and what
it bets on is most often seen while few values are there."""


class UpperBound:
    """A bound that the mean was below at some look so far, at every look at once.

    For every m of a grid, K(m) = sum over k of w_k prod_(i >= k) (1 + c (m - x_i) / (1 - m)) is a supermartingale where
    no x_i had a mean below m, given those before: bets that begin at each look k with w_k = 1 / (k (k + 1)), so that
    early values do not weigh on later ones. `high` is the least m whose K(m) is 1 / alpha or more.
    """

    def __init__(self, alpha: float) -> None:
        import numpy as np

        self.high = 1.0
        self._needed = math.log(1 / alpha)
        self._means = np.arange(1, _GRID) / _GRID
        self._stakes = np.array(_STAKES)[:, None] / (1 - self._means)
        self._logs = np.full(self._stakes.shape, -math.inf)
        self._num_looks = 0

    def add(self, values: Sequence[float]) -> None:
        """Takes the values of the next look."""
        import numpy as np

        self._num_looks += 1
        share = 1 / (len(_STAKES) * self._num_looks * (self._num_looks + 1))
        self._logs = np.logaddexp(self._logs, math.log(share))
        for value in values:
            self._logs += np.log1p(self._stakes * (self._means - value))
        above = self._means[np.logaddexp.reduce(self._logs, axis=0) >= self._needed]
        self.high = float(above.min()) if above.size else 1.0


class RiseTest:
    """Whether the mean has been above a bound that is set before each value, at every look at once.

    prod_i (1 + f_i (x_i - m_i) / m_i) is a supermartingale where no x_i had a mean above its bound m_i, given those
    before. Of a grid, f_i is the share of the capital with which recent values would have made it grow the most
    (section B.2); it is 0 while values are below the bound, so that nothing is lost then.
    """

    def __init__(self, alpha: float) -> None:
        import numpy as np

        self.is_shown = False
        self.log_capital = 0.0
        self._needed = math.log(1 / alpha)
        self._shares = np.arange(_NUM_SHARES) / _NUM_SHARES
        self._growth: NDArray[np.float64] | None = None

    @property
    def is_rising(self) -> bool:
        """Whether recent values are above the bound."""
        return self._growth is not None and bool(self._growth.argmax())

    def add(self, value: float, bound: float, num_recent: int) -> None:
        """Takes the next value.

        Args:
            bound: above 0 and below 1.
            num_recent: values that come at once, which the half-life of what counts as recent is not below.
        """
        import numpy as np

        of_one, of_zero, grown = (np.log1p(self._shares * (each / bound - 1)) for each in (1.0, 0.0, value))
        if self._growth is None:
            self._growth = _EXPECTED * (of_one + of_zero) / 2
        self.log_capital += float(grown[self._growth.argmax()])
        self.is_shown = self.is_shown or self.log_capital >= self._needed
        self._growth = 0.5 ** (1 / max(_HALF_LIFE, num_recent)) * self._growth + grown
