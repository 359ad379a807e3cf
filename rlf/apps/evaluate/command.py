"""`rlf eval`: tries models on questions, each an evaluation of its own in the lineage."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import (
    DEFAULT_RUNS,
    ApiKeyVariable,
    AsJson,
    EndpointUrl,
    HtmlFile,
    RequestTime,
    RunsFolder,
    ServedName,
    is_override,
    load_part,
    runs_option,
    split_arguments,
)
from rlf.cli.completion import complete_run
from rlf.cli.envelope import print_event, print_result, print_run_event, prints_aside
from rlf.cli.output import print_note, stdout_console, write_page
from rlf.cli.run import EXIT_CODES
from rlf.core.errors import RlfError

if TYPE_CHECKING:
    from rich.console import Console

    from rlf.apps.evaluate.branches import Branches
    from rlf.apps.evaluate.findings import Findings
    from rlf.apps.evaluate.play import EvaluationProgress
    from rlf.apps.evaluate.run import EvaluationResults, Shown
    from rlf.reports.evaluations import EvaluationReport

_SHOWN_EVERY_S = 0.1
"""Between two frames of a progress line; in a pipe and as JSON, a hundred times as long."""


def evaluate_command(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET...|SPEC|KEY=VALUE",
            help="Runs, RUN@STEP, folders, Hugging Face ids or evaluations; then a spec to use  "
            "instead of their run's own, and overrides of it.",
            show_default=False,
            autocompletion=complete_run,
        ),
    ] = None,
    endpoint: EndpointUrl = None,
    model: ServedName = None,
    api_key_env: ApiKeyVariable = None,
    timeout: RequestTime = 120.0,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DATASET", help="Questions to use instead of the spec's `data.eval`."),
    ] = None,
    num_samples: Annotated[
        int | None,
        typer.Option("-k", "--samples", min=1, max=10_000, help="Samples per question, for pass@k and pass^k."),
    ] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", min=0.0, help="Of the samples.")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Answer each question greedily, once.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Use only the first N questions.")] = None,
    max_concurrency: Annotated[
        int | None, typer.Option("--max-concurrency", min=1, help="Trajectories at once.")
    ] = None,
    log: Annotated[
        str | None, typer.Option("--log", metavar="FORMAT", help="Also write logs: `inspect`, for inspect's viewer.")
    ] = None,
    html: HtmlFile = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Try models with the tools, rewards and limits that they were trained with, and record the results.

    Without options, a run's last evaluation is repeated: the same questions, the same numbers. The same command
    continues an evaluation that was stopped.
    """
    from rlf.apps.evaluate.inspect_log import check_log, write_log
    from rlf.apps.evaluate.prepare import EvaluationOptions
    from rlf.apps.evaluate.run import try_targets
    from rlf.runs.targets import endpoint_of

    names, files, overrides = _split_arguments(arguments or [])
    served = endpoint_of(endpoint, model, api_key_env, timeout)
    check_log(log)
    asked = EvaluationOptions(
        tuple(files), tuple(overrides), data, num_samples, temperature, greedy, limit, max_concurrency
    )
    view = _View(as_json=as_json)
    try:
        with prints_aside():
            command = ["rlf", *sys.argv[1:]]
            done = try_targets(names, asked, endpoint=served, runs_folder=runs_folder, command=command, show=view.show)
    finally:
        view.erase_line()
    report = _make_report(done, runs_folder, html)
    logs = [write_log(run_id, runs_folder) for run_id in done.run_ids] if log is not None else []
    print_result("eval", report, as_json, lambda: _print_end(stdout_console(), report, done, runs_folder, logs))
    raise typer.Exit(EXIT_CODES.get(done.status, 1))


def _split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[Path], list[str]]:
    """Targets, spec files and overrides."""
    names, files, overrides = list[str](), list[Path](), list[str]()
    for argument in arguments:
        if is_override(argument):
            overrides.append(argument)
        elif argument.endswith((".yaml", ".yml")):
            files.append(Path(argument))
        else:
            names.append(argument)
    return names, files, overrides


def _make_report(done: EvaluationResults, runs_folder: Path, html: Path | None) -> EvaluationReport:
    from rlf.reports.evaluations import read_evaluations
    from rlf.runs.place import open_reader

    with open_reader(runs_folder) as reader:
        report = read_evaluations(reader, done.run_ids, done.original_by_id)
    if html is not None:
        write_page(html, _render_page(done.run_ids, runs_folder))
    return report


def _render_page(run_ids: Sequence[str], runs_folder: Path) -> str:
    """One page: of several evaluations their comparison, question by question."""
    from rlf.reports.pages.render import run_page
    from rlf.reports.report import read_report
    from rlf.runs.place import open_reader
    from rlf.runs.trajectories import Openings

    with open_reader(runs_folder) as reader:
        if len(run_ids) == 1:
            run = reader.get_run(run_ids[0])
            return run_page(read_report(reader, run_ids[0]), reader.evaluations(run_ids[0]), Openings(run))
        page: str = load_part("apps.compare.views:page_of_runs", "--html of several models")(reader, run_ids)
        return page


def _print_end(
    console: Console, report: EvaluationReport, done: EvaluationResults, runs_folder: Path, logs: Sequence[Path]
) -> None:
    from rich.text import Text

    from rlf.reports.evaluations import evaluations_view

    option = runs_option(runs_folder)
    if report.rows:
        console.print(evaluations_view(report), Text(), crop=False)
    why = "" if done.reason is None else f" ({done.reason})"
    if done.status == "interrupted":
        console.print(f"evaluation {done.run_ids[-1]} interrupted{why}: the same command continues it", soft_wrap=True)
    elif done.status == "failed":
        console.print(f"failed{why}: the same command tries again", soft_wrap=True)
    for run_id, mode in {row.run_id: row.mode for row in report.rows}.items():
        console.print(f"  rlf trace {run_id} --phase {mode}{option}")
    if len(done.run_ids) > 1:
        console.print(f"  rlf runs compare {' '.join(done.run_ids)}{option}", soft_wrap=True)
    for path in logs:
        console.print(f"  inspect view --log-dir {path.parent}  # {path.name}", soft_wrap=True)


class _View:
    """Shows what happens: as JSON; on a terminal by a line that moves; in a pipe by one now and then.

    Lines are on stderr: stdout has the result.
    """

    def __init__(self, *, as_json: bool, command: str = "eval") -> None:
        self._moves = not as_json and sys.stderr.isatty()
        self._print = partial(_print_json, command) if as_json else self._print_words
        self._last_s = 0.0
        self._width = 0

    def show(self, shown: Shown) -> None:
        """Takes what happens."""
        from rlf.apps.evaluate.play import EvaluationProgress

        if isinstance(shown, EvaluationProgress):
            now_s, every_s = time.monotonic(), _SHOWN_EVERY_S * (1 if self._moves else 100)
            if shown.num_done and now_s - self._last_s < every_s:
                return
            self._last_s = now_s
        self._print(shown)

    def erase_line(self) -> None:
        """Removes the line that moves."""
        if self._width:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._width = 0

    def _print_words(self, shown: Shown) -> None:
        from rlf.apps.evaluate.play import EvaluationProgress
        from rlf.apps.evaluate.run import EvaluationStart
        from rlf.cli.live import event_line
        from rlf.types import RunFinished

        self.erase_line()
        match shown:
            case EvaluationStart():
                how = "continues" if shown.resumed else "begins"
                of = f"{shown.target} by {shown.name}, {shown.num_questions} questions"
                print_note(f"evaluation {shown.run_id} {how}: {of}")
            case EvaluationProgress() if self._moves:
                line = progress_line(shown)
                sys.stderr.write(line)
                sys.stderr.flush()
                self._width = len(line)
            case EvaluationProgress():
                print_note(progress_line(shown))
            case RunFinished():
                return
            case _ if (line_of_event := event_line(shown, 0)) is not None:
                print_note(line_of_event)


def _print_json(command: str, shown: Shown) -> None:
    from rlf.apps.evaluate.play import EvaluationProgress
    from rlf.apps.evaluate.run import EvaluationStart

    if isinstance(shown, EvaluationStart | EvaluationProgress):
        print_event(command, "started" if isinstance(shown, EvaluationStart) else "progress", shown)
    else:
        print_run_event(command, shown)


def progress_line(progress: EvaluationProgress) -> str:
    """`sampled: 120/512  success 61.0 %  1 failed  2 min left`."""
    from rlf.reports.sheets import duration, percent

    parts = [f"{progress.mode}: {progress.num_done}/{progress.num_planned}"]
    if progress.success is not None:
        parts.append(f"success {percent(progress.success)}")
    if progress.num_failed:
        parts.append(f"{progress.num_failed} failed")
    if progress.left_s is not None and progress.num_done < progress.num_planned:
        parts.append(f"{duration(progress.left_s)} left")
    return "  ".join(parts)


def forecast_command(
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="SPEC... [KEY=VALUE]...", help="A spec and overrides of it.", show_default=False),
    ],
    groups: Annotated[
        int | None,
        typer.Option("--groups", min=2, help="Groups to play; two steps' worth, and at least 32, by default."),
    ] = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", metavar="NxCARD", help="GPUs that will train, e.g. 8xH100 or 8x80GB.")
    ] = None,
    endpoint: EndpointUrl = None,
    model: ServedName = None,
    api_key_env: ApiKeyVariable = None,
    timeout: RequestTime = 120.0,
    html: HtmlFile = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Say what a run's first steps will be like, from groups that are played without an update.

    Success, dead groups, tokens and time of a step with 80 % intervals, what the reward terms teach, which budgets cut,
    and what to change. The same command continues what was stopped.
    """
    from rlf.apps.evaluate.forecast import forecast
    from rlf.runs.targets import endpoint_of

    files, overrides = split_arguments(arguments)
    view = _View(as_json=as_json, command="forecast")
    try:
        with prints_aside():
            found = forecast(
                files,
                overrides,
                num_groups=groups,
                gpus=gpus,
                endpoint=endpoint_of(endpoint, model, api_key_env, timeout),
                runs_folder=runs_folder,
                command=["rlf", *sys.argv[1:]],
                show=view.show,
            )
    finally:
        view.erase_line()
    from rlf.apps.evaluate.forecast_views import show_forecast

    shown = show_forecast(found)
    trace = f"  rlf trace {found.run_id} --phase sampled{runs_option(runs_folder)}"
    _print("forecast", found, shown._replace(lines=[*shown.lines, trace]), html, as_json)


def _print(command: str, found: object, shown: Findings, html: Path | None, as_json: bool) -> None:
    print_result(command, found, as_json, shown.view)
    if html is not None:
        write_page(html, shown.page())


# `rlf runs branch` and `rlf why`: a trajectory played again from one of its turns, or from each.

_Run = Annotated[str, typer.Argument(metavar="RUN", show_default=False, autocompletion=complete_run)]
_K = Annotated[int, typer.Argument(metavar="K", min=0, help="Which trajectory of the step.", show_default=False)]
_Step = Annotated[int, typer.Option("--step", min=0, help="Its step.", show_default=False)]
_Phase = Annotated[str, typer.Option("--phase", help="`train`, or the mode of an evaluation.")]
_At = Annotated[
    str | None, typer.Option("--at", metavar="STEP", help="The checkpoint that continues.", show_default="the newest")
]


def branch_trajectory(
    run: _Run,
    k: _K,
    step: _Step,
    phase: _Phase = "train",
    turn: Annotated[int, typer.Option("--turn", min=0, help="Turns that are kept; 0 keeps only the prompt.")] = 0,
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, max=256, help="Continuations.")] = 8,
    observation: Annotated[
        str | None, typer.Option("--observation", help="Result of the last kept call, instead of the recorded one.")
    ] = None,
    at: _At = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Play a trajectory again from one of its turns, several times, by the model of its run.

    The turns before are kept token by token, and their calls are made again; with `--observation` the last kept call
    returns another text. The result is an evaluation of its own.
    """
    from rlf.apps.evaluate.branches import BranchPoint, play_branches

    point = BranchPoint(run, phase, step, k, turn, observation)
    command = ["rlf", *sys.argv[1:]]
    found = play_branches(point, samples, at=at, runs_folder=runs_folder, command=command)
    print_result("runs branch", found, as_json, lambda: _describe_branches(found))


def why(
    run: _Run,
    k: Annotated[
        int | None, typer.Argument(metavar="[K]", min=0, help="Which trajectory of the step.", show_default="the run")
    ] = None,
    step: Annotated[int | None, typer.Option("--step", min=0, help="Its step.", show_default=False)] = None,
    phase: _Phase = "train",
    turn: Annotated[
        int | None, typer.Option("--turn", min=1, help="One turn, for the worth of its parts.", show_default="all")
    ] = None,
    samples: Annotated[int, typer.Option("--samples", "-n", min=2, max=256, help="Continuations of each.")] = 32,
    at: _At = None,
    html: HtmlFile = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Say why a run got worse or did not learn, or which turn of a trajectory decided.

    Of a run: when its figures changed, the likely causes with their evidence, what would refute each, and trajectories
    that show it. Of a trajectory: from before each turn the run's model plays on, several times, and a turn's worth is
    how it changed the share of right ends; then how its scores became its advantage, and which weights of terms would
    change the order of its group. Of a turn: the same with its result, its call or an argument left out, or another.
    The continuations are branches.
    """
    if k is None:
        from rlf.apps.evaluate.explain_run import explain_run, show_run_explanation

        options = (("--step", step, None), ("--turn", turn, None), ("--phase", phase, "train"), ("-n", samples, 32))
        for name, value, default in (*options, ("--at", at, None)):
            if value != default:
                raise RlfError(f"why: got {name} {value} without K; write e.g. `rlf why {run} 0 --step 1`.")
        whole = explain_run(run, runs_folder)
        _print("why", whole, show_run_explanation(whole, runs_option(runs_folder)), html, as_json)
        return
    from rlf.apps.evaluate.branches import BranchPoint
    from rlf.apps.evaluate.turn import explain_turn, show_turn_explanation
    from rlf.apps.evaluate.why import explain_turns, show_explanation

    if step is None:
        raise RlfError(f"why: got K {k} without --step; write e.g. `rlf why {run} {k} --step 1`.")
    command = ["rlf", *sys.argv[1:]]
    point = BranchPoint(run, phase, step, k, turn or 0)
    if turn is not None:
        parts = explain_turn(point, samples, at=at, runs_folder=runs_folder, command=command)
        _print("why", parts, show_turn_explanation(parts), html, as_json)
        return
    found = explain_turns(point, samples, at=at, runs_folder=runs_folder, command=command)
    _print("why", found, show_explanation(found), html, as_json)


def _describe_branches(found: Branches) -> str:
    of, scored = found.of, found.num_played - found.num_unscorable
    was = {True: "was right", False: "was wrong", None: "could not be scored"}[found.was_right]
    share = (
        "" if found.interval is None else f" (95 % {100 * found.interval[0]:.0f} to {100 * found.interval[1]:.0f} %)"
    )
    kept = f"{of.turn} turns kept" if of.turn else "only the prompt kept"
    return (
        f"{of.phase} {of.step} · {of.k} of {of.run} {was}; {kept}, {found.num_right} of {scored} continuations by "
        f"{found.target} are right{share}. Run {found.run_id} has them: `rlf trace {found.run_id} 0 --phase branch`."
    )
