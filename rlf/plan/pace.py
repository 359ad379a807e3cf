"""Slow tools under `rollout.schedule: logical`, where sampling stands still for all while one of them runs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rlf.core import Fault
from rlf.spec import LoadedSpec
from rlf.spec.engine import Feature
from rlf.spec.models import RunSpec, Schedule
from rlf.tools.declaration import ToolDeclaration

SLOW_S = 0.05
"""Time of a call from which it is slow: the four ticks that the schedule gives a call for free take less on any model
that is trained on a CPU."""
_USUAL_TIMEOUT_S = 10.0
"""The default: who allows more expects slow calls."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Time of a tool's calls in an earlier run."""

    mean_s: float
    num_calls: int
    run_id: str


def waits_for_tools(spec: RunSpec) -> bool:
    """Whether sampling stands still while a tool runs."""
    return spec.rollout.schedule is Schedule.LOGICAL and Feature.LOGICAL_SCHEDULE not in spec.engine.LACKS


def find_pace_warnings(loaded: LoadedSpec, latencies: Mapping[str, Latency]) -> Iterator[Fault]:
    """A warning that names the slow tools; what was measured counts before what is declared."""
    if not waits_for_tools(loaded.spec):
        return
    slow = [words for tool in loaded.spec.tools if (words := _slow_words(tool, latencies.get(tool.name)))]
    if slow:
        message = f"got logical; {'; '.join(slow)}. Meanwhile sampling stops for every trajectory. "
        fix = "Write invariant, which repeats bit for bit on a CPU and does not wait; or clock, which does not repeat."
        yield loaded.fault(("rollout", "schedule"), f"{message}{fix}")


def _slow_words(tool: ToolDeclaration, measured: Latency | None) -> str:
    if measured is not None:
        words = f"{measured.mean_s:.2g} s a call (mean of {measured.num_calls} calls in run {measured.run_id})"
        return f"{tool.name!r} takes {words}" if measured.mean_s >= SLOW_S else ""
    slowest_ms = max((test.expect.max_ms or 0.0 for test in tool.tests), default=0.0)
    if slowest_ms >= 1000 * SLOW_S:
        return f"{tool.name!r} may take {slowest_ms:g} ms a call (max_ms of its tests)"
    if tool.limits.timeout_s > _USUAL_TIMEOUT_S:
        return f"{tool.name!r} may take up to {tool.limits.timeout_s:g} s a call (limits.timeout_s)"
    return ""
