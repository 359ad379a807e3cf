"""`rlf run`: trains as a spec says and shows the progress."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from rlf.cli.arguments import (
    DEFAULT_RUNS,
    AsJson,
    RunsFolder,
    SpecArguments,
    activation_hint,
    load_part,
    runs_option,
    split_arguments,
    suggest_sweep,
)
from rlf.cli.envelope import JsonLines, print_result, prints_aside
from rlf.cli.output import stdout_console
from rlf.cli.start import settle
from rlf.core.errors import OutageError, RlfError, RunError, SpecError

if TYPE_CHECKING:
    from rlf.cli.board import LiveView
    from rlf.cli.live import PlainView
    from rlf.runs.sink import RunInfo, RunOutcome
    from rlf.types.events import EventSink, RunEvent

# Views of a run under way: live, plain or JSON, opened when the run is registered, closed whatever happens, even twice.

EXIT_CODES = {"finished": 0, "interrupted": 130}
"""By a run's status; 1 for any other."""


def choose_view(console: Console, command: str, *, as_json: bool) -> LiveView | PlainView | JsonLines:
    """Live on a terminal that can be redrawn, plain lines elsewhere, JSON lines on request."""
    if as_json:
        return JsonLines(command)
    if console.is_terminal and not console.is_dumb_terminal:
        from rlf.cli.board import LiveView

        return LiveView(console)
    from rlf.cli.live import PlainView

    return PlainView(console)


AtOnce = Annotated[
    int, typer.Option("--at-once", min=1, help="Runs of a sweep side by side, each with cores or a GPU of its own.")
]


def run_command(
    arguments: SpecArguments,
    multirun: Annotated[
        bool, typer.Option("-m", "--multirun", help="Run once for each value of overrides such as `seed=0,1,2`.")
    ] = False,
    sweep: Annotated[
        Path | None, typer.Option("--sweep", metavar="FILE", help="Run once for each member of a sweep file.")
    ] = None,
    at_once: AtOnce = 1,
    record: Annotated[
        bool, typer.Option("--record", help="Write every tool call and its result to the run's tool_calls.jsonl.")
    ] = False,
    replay: Annotated[
        str | None,
        typer.Option(
            "--replay", metavar="RUN|FILE", help="Answer tool calls with the recorded results of a run or file."
        ),
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Train a model as a spec says.

    Ctrl-C stops at once and keeps everything; `rlf resume` continues from there.
    """
    from rlf.runs import start

    files, overrides = split_arguments(arguments)
    if record and replay is not None:
        raise RlfError("--record and --replay: a replay makes no tool calls to record. Remove one of the two.")
    if multirun or sweep is not None:
        if record or replay is not None:
            raise RlfError("--record and --replay go with one run, not with a sweep.")
        run_members = load_part("apps.sweep.command:run_members_command", "-m" if multirun else "--sweep")
        run_members(files, overrides, sweep, multirun, at_once, runs_folder=runs_folder, as_json=as_json)
    if at_once > 1:
        raise RlfError("--at-once goes with a sweep. Write e.g. `-m seed=0,1,2 --at-once 2`.")

    try:
        watch("run", partial(start.run, files, overrides, record=record, replay=replay), runs_folder, as_json=as_json)
    except SpecError as error:
        raise suggest_sweep(error, overrides) from error


def watch(
    command: str, work: Callable[..., RunOutcome], runs_folder: Path, *, as_json: bool, shows_end: bool = True
) -> RunOutcome:
    """Lets `work` run under the view that suits the output; with `shows_end` prints how it ended, and exits by that."""
    view = choose_view(stdout_console(), command, as_json=as_json)
    begun: list[RunInfo] = []

    def open_view(info: RunInfo) -> EventSink:
        from rlf.types.events import Notice

        begun.append(info)
        settle()
        sink = view.open(info)

        def show(event: RunEvent) -> None:
            if as_json or not shows_end or not (isinstance(event, Notice) and "verdict" in event.data):
                sink(event)

        return show

    try:
        with prints_aside() if as_json else nullcontext():
            outcome = work(runs_folder=runs_folder, view=open_view, command=["rlf", *sys.argv[1:]])
    except RunError as error:
        if begun:  # what raised it knows neither the run's id nor its folder
            command, words = f"rlf resume {begun[0].run_id}{runs_option(runs_folder)}", str(error)
            is_silent = type(error) in (RunError, OutageError) and "rlf resume" not in words
            error.args = (
                f"{words}\nContinue it: {command}" if is_silent else words.replace("`rlf resume`", f"`{command}`"),
            )
        raise
    finally:
        view.close()
    if not shows_end:
        return outcome
    print_result(command, outcome, as_json, lambda: _print_end(stdout_console(), outcome, runs_folder))
    raise typer.Exit(EXIT_CODES.get(outcome.status, 1))


def _print_end(console: Console, outcome: RunOutcome, runs_folder: Path) -> None:
    """The summary, the commands to use next, and the verdict."""
    from rlf.reports.summary import read_summary, summary_view
    from rlf.reports.verdict import verdict_text
    from rlf.runs.place import open_reader

    opening = None
    with open_reader(runs_folder) as reader:
        summary = read_summary(reader, outcome.run_id)
        if summary.example is not None:
            from rlf.runs.trajectories import Openings

            opening = Openings(reader.get_run(outcome.run_id))
    shown = summary_view(summary, runs_option(runs_folder), opening, below=outcome.verdict.line)
    console.print(Rule(style="dim"), shown, Text(), crop=False)
    console.print(_show_commands(outcome, runs_folder), soft_wrap=True)
    console.print(verdict_text(outcome.verdict), soft_wrap=True)


def _show_commands(outcome: RunOutcome, runs_folder: Path) -> Text:
    from rlf.types.events import RunStatus

    option = runs_option(runs_folder)
    text = Text(f"run {outcome.run_id} {outcome.status} at step {outcome.step}", style="bold")
    if outcome.spent is not None:
        text.append(f"\n{outcome.spent}", "not bold")
    text.append(f"\n  rlf runs show {outcome.run_id}{option}", "not bold")
    text.append(f"\n  rlf runs show {outcome.run_id} --trajectory 0{option}", "not bold")
    if outcome.status is not RunStatus.FINISHED:
        budget = "" if outcome.spent is None else " --max-usd N"
        text.append(f"\n  rlf resume {outcome.run_id}{budget}{option}", "not bold")
    text.append(activation_hint(), "dim not bold")
    return text
