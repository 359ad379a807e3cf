"""Small drawings that stand in tables, as paths and levels: pages hold no styles of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence

SPARK_WIDTH, SPARK_HEIGHT = 72, 18
NUM_LEVELS = 20
"""Lengths that a bar of the style sheet has."""


def spark_path(values: Sequence[float], low: float | None = None, high: float | None = None) -> str:
    """A curve as the path of an SVG of 72 by 18; values that are not finite are left out.

    Args:
        low: the value at the bottom; None takes the smallest.
        high: the value at the top; None takes the largest.
    """
    points = [(place, value) for place, value in enumerate(values) if math.isfinite(value)]
    if not points:
        return ""
    bottom = min(value for _, value in points) if low is None else low
    top = max(value for _, value in points) if high is None else high
    across = (SPARK_WIDTH - 4) / max(1, len(values) - 1)
    down = (SPARK_HEIGHT - 4) / (top - bottom) if top > bottom else 0.0
    places = [(2 + place * across, SPARK_HEIGHT - 2 - (value - bottom) * down) for place, value in points]
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places) if len(places) > 1 else ""


def bar_level(share: float | None) -> int:
    """The class of a bar that is as long as a share, from 0 to 20."""
    if share is None or not math.isfinite(share):
        return 0
    return round(NUM_LEVELS * min(1.0, max(0.0, share)))
