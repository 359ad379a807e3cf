"""`rlf trace`: one trajectory turn by turn, and which trajectories match."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunName, RunsFolder
from rlf.cli.envelope import print_envelope
from rlf.cli.lineage import open_reader
from rlf.cli.output import stdout_console
from rlf.core.errors import RlfError
from rlf.core.registry import nearest

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader
    from rlf.lineage.records import Run, StoredTrajectory, TrajectoryFilter
    from rlf.types import FailureClass, Outcome

_POLL_S = 0.5


def trace(
    name: RunName,
    k: Annotated[
        int | None,
        typer.Argument(metavar="[K]", min=0, help="A trajectory of the step, from 0; without it, those that match."),
    ] = None,
    phase: Annotated[
        str | None, typer.Option("--phase", help="`train`, an evaluation's `sampled` or `greedy`, or `interrupted`.")
    ] = None,
    step: Annotated[int | None, typer.Option("--step", min=0, help="A step; with K its latest otherwise.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Success below 1, or unscorable.")] = False,
    flipped: Annotated[
        bool, typer.Option("--flipped", help="Held-out questions whose outcome changed from first to last.")
    ] = False,
    best: Annotated[bool, typer.Option("--best", help="Highest advantage first.")] = False,
    failure: Annotated[
        str | None, typer.Option("--failure", metavar="CLASS", help="With a parse failure of a class, e.g. bad_json.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="WORDS", help="With these words in prompt, turns or results.")
    ] = None,
    heat: Annotated[
        bool, typer.Option("--heat", help="Colour sampled tokens by how likely the sampler held them.")
    ] = False,
    tool: Annotated[
        str | None, typer.Option("--tool", metavar="NAME", help="List calls of this tool in place of trajectories.")
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option(
            "--outcome",
            metavar="OUTCOME",
            help="List calls that ended so, e.g. `timeout`; `failed` is every outcome but `ok`.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Trajectories or calls to list.")] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", help="Show one trajectory that matches of each step as the run makes it.")
    ] = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Show a trajectory turn by turn, or find some: failed, flipped, best, by parse failure or text; or calls."""
    from rlf.lineage.records import TRAIN, TrajectoryFilter

    wanted = TrajectoryFilter(
        phase=phase,
        step=step,
        succeeded=False if failed else None,
        failure=_failure_class(failure),
        best_first=best,
    )
    with open_reader(runs_folder) as reader:
        run = reader.get_run(name)
        if k is not None:
            stored = reader.trajectory(run.record.id, k=k, step=step, phase=phase or TRAIN)
            show_trajectory("trace", run, stored, heat=heat, as_json=as_json)
        elif tool is not None or outcome is not None:
            if flipped or follow or text is not None:
                raise RlfError("--tool and --outcome list calls; --flipped, --follow and --text are for trajectories.")
            _list_calls(reader, run, wanted, tool, outcome, limit, as_json=as_json)
        elif follow:
            _follow(reader, run, wanted, text, heat=heat)
        else:
            _list(reader, run, wanted, text, limit, flipped=flipped, as_json=as_json)


def _failure_class(name: str | None) -> FailureClass | None:
    from rlf.types import FailureClass

    known = [str(kind) for kind in FailureClass]
    if name is not None and name not in known:
        raise RlfError(f"--failure: unknown class {name!r}{nearest(name, known)} (known: {', '.join(known)}).")
    return None if name is None else FailureClass(name)


def _list_calls(
    reader: Reader,
    run: Run,
    wanted: TrajectoryFilter,
    tool: str | None,
    outcome: str | None,
    limit: int,
    *,
    as_json: bool,
) -> None:
    from rlf.reports.trace import calls_table

    run_id = run.record.id
    outcomes = _outcomes(outcome)
    called = [summary.name for summary in reader.tool_call_summary(run_id)]
    called += sorted(reader.names_inside(run_id) - set(called)) if tool is not None and tool not in called else []
    if tool is not None and tool not in called:
        raise RlfError(
            f"--tool: {run_id} has no call of {tool!r}{nearest(tool, called)} (called: {', '.join(called) or 'none'})."
        )
    found = reader.calls(run_id, wanted, tool=tool, outcomes=outcomes, limit=limit)
    if as_json:
        print_envelope("trace", found)
    elif found:
        stdout_console().print(calls_table(found))
    else:
        print("no call matches.")


def _outcomes(name: str | None) -> list[Outcome]:
    from rlf.types import Outcome

    if name is None:
        return list(Outcome)
    known = ["failed", *map(str, Outcome)]
    if name not in known:
        raise RlfError(f"--outcome: unknown outcome {name!r}{nearest(name, known)} (known: {', '.join(known)}).")
    return [found for found in Outcome if found is not Outcome.OK] if name == "failed" else [Outcome(name)]


def _list(
    reader: Reader,
    run: Run,
    wanted: TrajectoryFilter,
    text: str | None,
    limit: int,
    *,
    flipped: bool,
    as_json: bool,
) -> None:
    from rlf.reports.trace import find, find_flipped, matches_table

    run_id = run.record.id
    found = find_flipped(reader, run_id, limit) if flipped else find(reader, run_id, wanted, text, limit)
    if as_json:
        print_envelope("trace", found)
    elif found:
        stdout_console().print(matches_table(found))
    else:
        print("no trajectory matches.")


def show_trajectory(
    command: str, run: Run, stored: StoredTrajectory, *, heat: bool = False, as_json: bool = False
) -> None:
    """Prints a trajectory, as a page or as the JSON of a command."""
    from rlf.api.runs.openings import Openings
    from rlf.reports.trace import heat_legend, heated
    from rlf.reports.trajectory import legend, trajectory_view

    if as_json:
        print_envelope(command, stored)
        return
    summary, console = stored.summary, stdout_console()
    advantage = "" if summary.advantage is None else f" · advantage {summary.advantage:+.3f}"
    place = f"{summary.phase} step {summary.step} · trajectory {summary.k}"
    console.print(f"run {run.record.id} · {place}{advantage}", style="dim")
    texts = heated(stored.scored.trajectory, _decoder(run)) if heat else None
    opening = Openings(run)(stored.scored.trajectory)
    console.print(trajectory_view(stored.scored, sampled=texts, opening=opening), heat_legend() if heat else legend())


def _decoder(run: Run) -> Callable[[int], str]:
    """One token as text, by the tokenizer of the run's model."""
    from rlf.chat.tokenizer import load_tokenizer
    from rlf.spec.looking.model_folder import model_location

    tokenizer = load_tokenizer(model_location(run.record.plan["spec"]["model"]["path"]))
    return lambda token: str(tokenizer.decode([token]))


def _follow(reader: Reader, run: Run, wanted: TrajectoryFilter, text: str | None, *, heat: bool) -> None:
    from dataclasses import replace

    from rlf.lineage.records import TRAIN
    from rlf.reports.trace import find

    for step in _steps(reader, run.record.id):
        here = replace(wanted, phase=TRAIN, step=step, limit=None)
        for match in find(reader, run.record.id, here, text, 1):
            stored = reader.whole(run.record.id, match.summary)
            if stored is not None:
                show_trajectory("trace", run, stored, heat=heat)


def _steps(reader: Reader, run_id: str) -> Iterator[int]:
    """The steps that finish from now on, until the run ends."""
    from rlf.types.events import RunStatus

    told = reader.get_run(run_id).last_step
    while True:
        run = reader.get_run(run_id)
        yield from range(told + 1, run.last_step + 1)
        told = run.last_step
        if run.status is not RunStatus.RUNNING:
            return
        time.sleep(_POLL_S)
