"""What a run's machine did: throughput, time, processor, memory, and percentiles of latencies by step; its log."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import literal, select

from rlf.apps.web.jobs import Jobs
from rlf.cli.live import event_line
from rlf.core.files import run_folder
from rlf.core.redact import Redactor
from rlf.lineage import tables
from rlf.lineage.reader import Reader
from rlf.lineage.records import TRAIN, Run, TrainingStep
from rlf.reports.pages.chart import Chart, Line
from rlf.types.events import EvaluationFinished, StepFinished

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
        {"sampled": _metric("throughput/generate_tokens_per_s"), "trained": _metric("throughput/update_tokens_per_s")},
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


_TAIL_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line."""

    time: float
    level: str
    """`step`, `eval`, `saved`, `run`, or the level of a notice."""
    text: str


@dataclass(frozen=True, slots=True)
class LogFile:
    """The end of a file."""

    name: str
    size_bytes: int
    tail: str


def read_log(reader: Reader, run: Run, num_steps: int | None, level: str, text: str) -> list[LogLine]:
    """The lines of a run whose level is one, and which hold a text whatever its case; empty ones want all."""
    run_id, total = run.record.id, num_steps or run.last_step
    lines = [LogLine(run.record.started, "run", f"started: {run.record.command}")]
    lines += [LogLine(event.time, event.level, event.text) for event in reader.events(run_id)]
    for step in reader.steps(run_id):
        words = event_line(StepFinished(step.step, step.metrics, (), ()), total)
        lines.append(LogLine(step.finished, "step", words or ""))
    for one in reader.evaluations(run_id):
        words = event_line(EvaluationFinished(one.step, one.mode, one.metrics, ()), total)
        lines.append(LogLine(one.finished, "eval", words or ""))
    lines += [LogLine(one.saved, "saved", f"checkpoint {one.step}") for one in reader.checkpoints(run_id)]
    if run.finished is not None:
        lines.append(LogLine(run.finished, "run", " ".join(filter(None, (run.status, run.error)))))
    found = sorted(lines, key=lambda line: line.time)
    return [line for line in found if level in ("", line.level) and text.lower() in line.text.lower()]


def read_files(runs_folder: Path, run_id: str, jobs: Jobs, redactor: Redactor) -> list[LogFile]:
    """The ends of what the run's processes wrote: logs in its folder, and messages of jobs of the page."""
    folder = run_folder(runs_folder, run_id) / "logs"
    paths = sorted(folder.rglob("*.log")) if folder.is_dir() else []
    real = folder.resolve()
    inside = [path for path in paths if path.resolve().is_relative_to(real)]
    named = [(str(path.relative_to(folder)), path) for path in inside]
    named += [(f"messages of job {job_id}", path) for job_id, path in jobs.messages(run_id)]
    return list(_read_tails(named, redactor))


def _read_tails(named: Sequence[tuple[str, Path]], redactor: Redactor) -> Iterable[LogFile]:
    for name, path in named:
        with suppress(OSError), path.open("rb") as stream:
            size = path.stat().st_size
            stream.seek(max(0, size - _TAIL_BYTES))
            tail = stream.read(_TAIL_BYTES).decode(errors="replace")
            if size:
                yield LogFile(name, size, redactor.text(tail))
