"""What a run's machine did: throughput, time, processor, memory, and percentiles of latencies, step by step."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import literal, select

from rlf.lineage import tables
from rlf.lineage.reader import Reader
from rlf.lineage.records import TRAIN, TrainingStep
from rlf.reports.pages.chart import Chart, Line

_PERCENTILES = (50, 95, 99)
_MAX_TOOLS = 8
_MAX_POINTS = 400
_GIB = 2.0**30

Values = Mapping[str, float]


def _metric(name: str, unit: float = 1.0) -> Callable[[Values], float | None]:
    return lambda values: values[name] / unit if name in values else None


def _cores(values: Values) -> float | None:
    used_s, step_s = values.get("time/processor_s"), values.get("time/step_s")
    return used_s / step_s if used_s is not None and step_s else None


class _Panel(NamedTuple):
    """A chart of a step's figures."""

    title: str
    lines: Mapping[str, Callable[[Values], float | None]]
    share: bool = False


_PANELS = (
    _Panel(
        "tokens a second",
        {
            "sampled": _metric("throughput/generate_tokens_per_s"),
            "trained": _metric("throughput/update_tokens_per_s"),
        },
    ),
    _Panel(
        "seconds of a step",
        {
            "step": _metric("time/step_s"),
            "rollouts": _metric("time/generate_s"),
            "scoring": _metric("time/experience_s"),
            "update": _metric("time/update_s"),
            "sync": _metric("time/sync_s"),
        },
    ),
    _Panel("processor, cores in use", {"cores": _cores}),
    _Panel(
        "memory, GiB",
        {
            "peak": _metric("memory/peak_bytes", _GIB),
            "now": _metric("memory/resident_bytes", _GIB),
            "GPU": _metric("gpu/held_bytes", _GIB),
        },
    ),
    _Panel("GPU busy", {"share": _metric("gpu/busy")}, share=True),
    _Panel("time waiting for tools", {"share": _metric("tools/wait_share")}, share=True),
)


def system_charts(steps: Sequence[TrainingStep]) -> list[Chart]:
    """Charts of what the steps recorded; those without any value are left out."""
    thinned = steps[:: -max(1, math.ceil(len(steps) / _MAX_POINTS))][::-1]
    charts = []
    for panel in _PANELS:
        lines = list[Line]()
        for name, read in panel.lines.items():
            points = [(step.step, value) for step in thinned if (value := read(step.metrics)) is not None]
            if points:
                lines.append(Line(name, len(lines), tuple(points)))
        if lines:
            charts.append(Chart(panel.title, tuple(lines), panel.share))
    return charts


def latency_charts(reader: Reader, run_id: str) -> list[Chart]:
    """Percentiles over a step's trajectories, then over the calls of each tool; the most called ones."""
    of, calls = tables.trajectories.c, tables.tool_calls.c
    here = select(of.step).where(of.run_id == run_id, of.phase == TRAIN)
    called = here.join(tables.tool_calls, calls.trajectory_ref == of.id).where(calls.cached.is_(False))
    times = called.add_columns(calls.name, calls.queue_s + calls.run_s)  # the caller's wait in
    by_name: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    with reader.store.read() as connection:
        for query in (here.add_columns(literal(""), of.duration_s), times):
            for step, name, seconds in connection.execute(query):
                by_name[name][step].append(seconds)
    whole = by_name.pop("", {})
    tools = sorted(by_name, key=lambda name: (-sum(map(len, by_name[name].values())), name))[:_MAX_TOOLS]
    found = [_percentile_chart("a trajectory, seconds", whole)] if whole else []
    return found + [_percentile_chart(f"{name}, milliseconds", by_name[name], 1000.0) for name in tools]


def _percentile_chart(title: str, seconds: Mapping[int, list[float]], unit: float = 1.0) -> Chart:
    steps = sorted(seconds)
    ordered = {step: sorted(seconds[step]) for step in steps[:: -max(1, math.ceil(len(steps) / _MAX_POINTS))][::-1]}
    lines = [
        Line(f"p{share}", place, tuple((step, unit * percentile(values, share)) for step, values in ordered.items()))
        for place, share in enumerate(_PERCENTILES)
    ]
    return Chart(title, tuple(lines), share=False)


def percentile(ordered: Sequence[float], share: int) -> float:
    """The smallest value that at least so many percent do not exceed: one that was measured."""
    return ordered[max(0, math.ceil(share / 100 * len(ordered)) - 1)]
