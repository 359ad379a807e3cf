"""`rlf runs tail`: a run as it goes."""

from __future__ import annotations

from typing import Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunName, RunsFolder
from rlf.cli.envelope import print_result
from rlf.cli.lines import print_run_event
from rlf.cli.output import stdout_console


def tail_run(
    name: RunName,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Events to print at once.")] = 10,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Continue printing until the run ends.")] = True,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Print a run's last steps, evaluations and notices, a line each, and those to come until it ends."""
    from rlf.api.lineage import open_reader
    from rlf.api.runs.tail import Tailed, follow_events
    from rlf.cli.plain import event_line

    with open_reader(runs_folder) as reader:
        record = reader.get_run(name).record
        total = record.plan.get("spec", {}).get("train", {}).get("steps", 0)
        for event in follow_events(reader, record.id, lines, follow=follow):
            if as_json:
                print_run_event("runs tail", event)
            else:
                stdout_console().print(event_line(event, total), markup=False, highlight=False, soft_wrap=True)
        run = reader.get_run(record.id)
    end = Tailed(record.id, run.status, run.last_step)
    print_result("runs tail", end, as_json, f"{record.id} {run.status} at step {run.last_step}")
