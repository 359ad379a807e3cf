"""A run's log: what the lineage has of its course in order of time, and the files that its processes wrote."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rlf.apps.web.jobs import Jobs
from rlf.cli.live import event_line
from rlf.core.files import run_folder
from rlf.core.redact import Redactor
from rlf.lineage.reader import Reader
from rlf.lineage.records import Run
from rlf.types.events import EvaluationFinished, StepFinished

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
