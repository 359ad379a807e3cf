"""`rlf runs branch`: a trajectory played again from one of its turns."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunsFolder
from rlf.cli.completion import complete_run
from rlf.cli.envelope import print_result

if TYPE_CHECKING:
    from rlf.api.evaluation.branches import Branches


def branch_trajectory(
    run: Annotated[str, typer.Argument(metavar="RUN", show_default=False, autocompletion=complete_run)],
    k: Annotated[int, typer.Argument(metavar="K", min=0, help="Which trajectory of the step.", show_default=False)],
    step: Annotated[int, typer.Option("--step", min=0, help="Its step.", show_default=False)],
    phase: Annotated[str, typer.Option("--phase", help="`train`, or the mode of an evaluation.")] = "train",
    turn: Annotated[int, typer.Option("--turn", min=0, help="Turns that are kept; 0 keeps only the prompt.")] = 0,
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, max=256, help="Continuations.")] = 8,
    observation: Annotated[
        str | None, typer.Option("--observation", help="Result of the last kept call, instead of the recorded one.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="STEP", help="The checkpoint that continues.", show_default="the newest"),
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Play a trajectory again from one of its turns, several times, by the model of its run.

    The turns before are kept token by token, and their calls are made again; with `--observation` the last kept call
    returns another text. The result is an evaluation of its own.
    """
    from rlf.api.evaluation.branches import BranchPoint, play_branches

    point = BranchPoint(run, phase, step, k, turn, observation)
    command = ["rlf", *sys.argv[1:]]
    found = play_branches(point, samples, at=at, runs_folder=runs_folder, command=command)
    print_result("runs branch", found, as_json, lambda: _describe_branches(found))


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
