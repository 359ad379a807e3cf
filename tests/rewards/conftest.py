"""Trajectories by what a reward looks at: answer, calls, failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlf.apps.rules import math
from rlf.rewards import Term, Verdict
from rlf.types import (
    CallRecord,
    FailureClass,
    Outcome,
    ParseFailure,
    StopReason,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)

from ..warm import warm_python
from .scoring import verdict

Build = Callable[..., Trajectory]


@pytest.fixture(scope="package")
def warm_math() -> Iterator[None]:
    """Processes of the rule `math` are forked from one that has made their first comparisons."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(math, "_COMMAND", (warm_python("tests.rewards.compared"), *math._COMMAND[1:]))
        yield


@pytest.fixture
def trajectory() -> Build:
    """Builds a trajectory; `outcomes` are those of its calls, `failures` the number of its parse failures."""

    def build(
        answer: str | None = None,
        gold: Any = None,
        outcomes: tuple[Outcome, ...] = (),
        failures: int = 0,
        stop: StopReason = StopReason.ANSWERED,
        **columns: Any,
    ) -> Trajectory:
        calls = tuple(CallRecord(ToolCall("search", {"query": "x"}), ToolResult(outcome, "")) for outcome in outcomes)
        failure = ParseFailure(FailureClass.BAD_JSON, "no JSON", "{", 0, structural=False)
        turn = Turn(0, 1, 1, "text", calls, (failure,) * failures)
        task = Task("task-1", (), gold, columns=columns)
        turns = (turn,) if outcomes or failures else ()
        return Trajectory("t", task, 0, [1], [True], [-0.5], turns, stop, answer)

    return build


@pytest.fixture
def judge() -> Callable[..., Verdict]:
    """The verdict of a term given as its YAML keys."""

    def judge(trajectory: Trajectory, **keys: Any) -> Verdict:
        term = Term.model_validate({"name": "term", **keys})
        return asyncio.run(verdict(term, trajectory))

    return judge
