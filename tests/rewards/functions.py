"""Reward functions that behave and that do not."""

from __future__ import annotations

import asyncio
from typing import Any

from rlf.core import RunError
from rlf.types import Trajectory


def right(trajectory: Trajectory) -> float:
    return float(trajectory.answer == trajectory.task.answer)


def two_columns(trajectory: Trajectory, hops: int, bonus: float = 0.5) -> float:
    return hops + bonus


def all_columns(trajectory: Trajectory, **columns: Any) -> float:
    return len(columns)


async def later(trajectory: Trajectory) -> float:
    await asyncio.sleep(0)
    return 0.25


async def never(trajectory: Trajectory) -> float:
    await asyncio.Event().wait()
    return 1.0


def value(trajectory: Trajectory, value: Any) -> Any:
    return value


def one_for_all(completions: list[Any], value: list[Any]) -> Any:
    return value[0]


def fail(trajectory: Trajectory) -> float:
    raise ValueError("no such thing")


def leave(trajectory: Trajectory) -> float:
    raise SystemExit(3)


async def after(trajectory: Trajectory, delay_s: float) -> float:
    await asyncio.sleep(delay_s)
    return 0.5


async def end_run(trajectory: Trajectory) -> float:
    raise RunError("the judges are gone")


def share_of_words(result, expected, scale):
    """For verify terms: the share of the expected words that the tool said, scaled."""
    wanted = expected[0].split()
    return scale * sum(word in result.text.split() for word in wanted) / len(wanted)


def endless(result, expected):
    while True:
        pass


def refuse(result, expected):
    raise KeyError(result.text)
