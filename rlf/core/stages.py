"""Stages of this process's work that are under way, each with how much of it is done."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_numbers = itertools.count()
_open: dict[int, Stage] = {}


@dataclass(slots=True)
class Stage:
    """One of them."""

    what: str
    """E.g. `train 3`: the trajectories of a step or evaluation; `update 3`, `checkpoint 3`."""
    num_planned: int
    """0 where nothing is counted."""
    since: float
    """Unix time."""
    num_done: int = 0


@contextmanager
def stage(what: str, num_planned: int = 0) -> Iterator[Stage]:
    """Names what is done within the block, which counts what is done in `num_done`."""
    number = next(_numbers)
    _open[number] = Stage(what, num_planned, time.time())
    try:
        yield _open[number]
    finally:
        del _open[number]


def open_stages() -> list[Stage]:
    """Those under way, the oldest first."""
    return list(_open.values())
