"""`rlf runs tail`: a run as it goes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, RunName, RunsFolder
from rlf.cli.lineage import open_reader
from rlf.cli.output import stdout_console

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader
    from rlf.types.events import RunEvent

_POLL_S = 0.5


def tail_run(
    name: RunName,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Steps and evaluations told at once.")] = 10,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Go on as the run goes on.")] = True,
    runs_folder: RunsFolder = DEFAULT_RUNS,
) -> None:
    """Tell a run's last steps, evaluations and notices a line each, and those to come until it ends."""
    from rlf.cli.plain import event_line
    from rlf.types.events import RunStatus

    with open_reader(runs_folder) as reader:
        run = reader.get_run(name)
        total = run.record.plan.get("spec", {}).get("train", {}).get("steps", 0)
        told = 0
        while True:
            run = reader.get_run(run.record.id)
            events = _events(reader, run.record.id)
            for event in events[told or max(0, len(events) - lines) :]:
                stdout_console().print(event_line(event, total), markup=False, highlight=False, soft_wrap=True)
            told = len(events)
            if run.status is not RunStatus.RUNNING or not follow:
                break
            time.sleep(_POLL_S)
    print(f"{run.record.id} {run.status} at step {run.last_step}")


def _events(reader: Reader, run_id: str) -> list[RunEvent]:
    """What the lineage tells of a run, in the order it happened, without trajectories."""
    from rlf.types.events import EvaluationFinished, Notice, StepFinished

    told: list[tuple[float, RunEvent]] = [
        (step.finished, StepFinished(step.step, step.metrics, (), ())) for step in reader.steps(run_id)
    ]
    told += [(e.finished, EvaluationFinished(e.step, e.mode, e.metrics, ())) for e in reader.evaluations(run_id)]
    told += [(e.time, Notice(e.level, e.text, e.data)) for e in reader.events(run_id)]
    return [event for _, event in sorted(told, key=lambda item: item[0])]
