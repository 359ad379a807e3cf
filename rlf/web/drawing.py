"""Figures and small drawings of templates, as words, paths and levels; pages have no styles."""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Sequence

from rlf.core.errors import RlfError
from rlf.core.files import read_image_file

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
    if len(points) < 2:
        return ""
    bottom = min(value for _, value in points) if low is None else low
    top = max(value for _, value in points) if high is None else high
    across = (SPARK_WIDTH - 4) / (len(values) - 1)
    down = (SPARK_HEIGHT - 4) / (top - bottom) if top > bottom else 0.0
    places = [(2 + place * across, SPARK_HEIGHT - 2 - (value - bottom) * down) for place, value in points]
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def bar_level(share: float | None) -> int:
    """The class of a bar that is as long as a share, from 0 to 20."""
    if share is None or not math.isfinite(share):
        return 0
    return round(NUM_LEVELS * min(1.0, max(0.0, share)))


def clock(seconds: float) -> str:
    """`2026-11-22 18:24:12`: a Unix time where the server is."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def ago(seconds: float) -> str:
    """`12 s`, `5 min`, `3 h`, `2 d`: how long ago a Unix time was."""
    passed = max(0.0, time.time() - seconds)
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if passed >= length:
            return f"{passed / length:.0f} {unit}"
    return f"{passed:.0f} s"


def image_source(reference: str) -> str:
    """A `data:` URI of an image, typed by its first bytes; empty for anything but an image."""
    if not reference.startswith("data:"):
        return ""
    try:
        data = read_image_file(reference)
    except RlfError:
        return ""
    return f"data:{data.mime_type};base64,{base64.b64encode(data.data).decode()}"


def size(num_bytes: float) -> str:
    """`812 B`, `12.3 kB`, `4.5 GB`."""
    for length, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= length:
            return f"{num_bytes / length:.1f} {unit}"
    return f"{num_bytes:.0f} B"
