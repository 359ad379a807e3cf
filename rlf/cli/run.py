"""`rlf run`: trains as a spec says and shows the progress."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, Protocol

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
    runs_option,
    split_arguments,
)
from rlf.cli.envelope import print_result
from rlf.cli.output import stdout_console
from rlf.cli.sweep import watch_sweep
from rlf.cli.view import EXIT_CODES, choose_view
from rlf.core.errors import RlfError, RunError, SpecError

if TYPE_CHECKING:
    from rlf.api.running.drive import RunInfo, RunOutcome, View
    from rlf.types.events import EventSink, RunEvent


class Work(Protocol):
    """A function of `rlf.api` that runs something to its end."""

    def __call__(self, *, runs_folder: Path, view: View, command: Sequence[str]) -> RunOutcome:
        """Shows what it does by the view; the lineage keeps the command."""


def run(
    arguments: SpecArguments,
    multirun: Annotated[
        bool, typer.Option("-m", "--multirun", help="Run once for each value of overrides such as `seed=0,1,2`.")
    ] = False,
    sweep: Annotated[
        Path | None, typer.Option("--sweep", metavar="FILE", help="Run once for each member of a sweep file.")
    ] = None,
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
    from rlf.api.running import start
    from rlf.api.specs.sweep import suggest_sweep

    files, overrides = split_arguments(arguments)
    if record and replay is not None:
        raise RlfError("--record and --replay: a replay makes no tool calls to record. Remove one of the two.")
    if multirun or sweep is not None:
        if record or replay is not None:
            raise RlfError("--record and --replay go with one run, not with a sweep.")
        _run_sweep(files, overrides, sweep, runs_folder, commas=multirun, as_json=as_json)

    try:
        watch("run", partial(start.run, files, overrides, record=record, replay=replay), runs_folder, as_json=as_json)
    except SpecError as error:
        raise suggest_sweep(error, overrides) from error


def _run_sweep(
    files: Sequence[Path],
    overrides: Sequence[str],
    file: Path | None,
    runs_folder: Path,
    *,
    commas: bool,
    as_json: bool,
) -> NoReturn:
    from rlf.api.running.sweeps import run_sweep
    from rlf.api.specs.sweep import members_of

    watch_sweep("run", partial(run_sweep, files, *members_of(overrides, file, commas=commas)), runs_folder, as_json)


def run_in_view(
    command: str, work: Work, runs_folder: Path, *, as_json: bool, shows_verdict: bool = True
) -> RunOutcome:
    """Lets `work` run under the view that suits the output."""
    view = choose_view(stdout_console(), command, as_json=as_json)

    begun: list[RunInfo] = []

    def open_view(info: RunInfo) -> EventSink:
        from rlf.types.events import Notice

        begun.append(info)
        sink = view.open(info)

        def show(event: RunEvent) -> None:
            if shows_verdict or not (isinstance(event, Notice) and "verdict" in event.data):
                sink(event)

        return show

    try:
        return work(runs_folder=runs_folder, view=open_view, command=["rlf", *sys.argv[1:]])
    except RunError as error:
        if begun:  # what raised it knows neither the run's id nor its folder
            command, words = f"rlf resume {begun[0].run_id}{runs_option(runs_folder)}", str(error)
            is_silent = type(error) is RunError and "rlf resume" not in words
            error.args = (
                f"{words}\nContinue it: {command}" if is_silent else words.replace("`rlf resume`", f"`{command}`"),
            )
        raise
    finally:
        view.close()


def watch(command: str, work: Work, runs_folder: Path, *, as_json: bool) -> NoReturn:
    """Lets `work` run under a view, prints how it ended, and exits with its code."""
    outcome = run_in_view(command, work, runs_folder, as_json=as_json, shows_verdict=as_json)
    print_result(command, outcome, as_json, lambda: _print_end(stdout_console(), outcome, runs_folder))
    raise typer.Exit(EXIT_CODES.get(outcome.status, 1))


def _print_end(console: Console, outcome: RunOutcome, runs_folder: Path) -> None:
    """The summary, the commands to use next, and the verdict."""
    from rlf.api.lineage import open_reader
    from rlf.api.runs.openings import Openings
    from rlf.reports.summary import read_summary, summary_view, verdict_text

    with open_reader(runs_folder) as reader:
        summary = read_summary(reader, outcome.run_id)
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
