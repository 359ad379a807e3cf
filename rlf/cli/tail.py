"""`rlf runs tail`: a run as it goes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunName, RunsFolder
from rlf.cli.envelope import print_envelope
from rlf.cli.lineage import open_reader
from rlf.cli.lines import print_run_event
from rlf.cli.output import stdout_console

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader
    from rlf.types.events import RunEvent, RunStatus

_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Tailed:
    """How a run stood when its events were no longer followed."""

    run_id: str
    status: RunStatus
    step: int


def tail_run(
    name: RunName,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Events to print at once.")] = 10,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Keep printing while the run runs.")] = True,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Print a run's last steps, evaluations and notices, a line each, and those to come until it ends."""
    from rlf.cli.plain import event_line
    from rlf.types.events import RunStatus

    with open_reader(runs_folder) as reader:
        run = reader.get_run(name)
        total = run.record.plan.get("spec", {}).get("train", {}).get("steps", 0)
        shown = 0
        while True:
            run = reader.get_run(run.record.id)
            events = _events(reader, run.record.id)
            for event in events[shown or max(0, len(events) - lines) :]:
                if as_json:
                    print_run_event("runs tail", event)
                else:
                    stdout_console().print(event_line(event, total), markup=False, highlight=False, soft_wrap=True)
            shown = len(events)
            if run.status is not RunStatus.RUNNING or not follow:
                break
            time.sleep(_POLL_S)
    if as_json:
        print_envelope("runs tail", Tailed(run.record.id, run.status, run.last_step))
    else:
        print(f"{run.record.id} {run.status} at step {run.last_step}")


def _events(reader: Reader, run_id: str) -> list[RunEvent]:
    """The events of a run that the lineage has, in the order it happened, without trajectories."""
    from rlf.types.events import EvaluationFinished, Notice, StepFinished

    timed: list[tuple[float, RunEvent]] = [
        (step.finished, StepFinished(step.step, step.metrics, (), ())) for step in reader.steps(run_id)
    ]
    timed += [(e.finished, EvaluationFinished(e.step, e.mode, e.metrics, ())) for e in reader.evaluations(run_id)]
    timed += [(e.time, Notice(e.level, e.text, e.data)) for e in reader.events(run_id)]
    return [event for _, event in sorted(timed, key=lambda item: item[0])]
