"""`rlf climb`: from a base to a target, by the cheapest rung that is enough."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunsFolder, SpecArguments, runs_option, split_arguments
from rlf.cli.envelope import print_result
from rlf.reports.sheets import duration

if TYPE_CHECKING:
    from pathlib import Path

    from rlf.apps.climb.climb import Climb, Rung


def climb_command(
    arguments: SpecArguments,
    target: Annotated[
        float, typer.Option("--target", min=0.0, max=1.0, help="Success that the 95 % interval has to lie above.")
    ] = 0.9,
    samples: Annotated[
        int, typer.Option("-k", "--samples", min=2, help="Samples of each question of an evaluation.")
    ] = 4,
    writer_endpoint: Annotated[
        str | None, typer.Option("--writer-endpoint", metavar="URL", help="Server of the model that rewrites prompts.")
    ] = None,
    writer_model: Annotated[
        str | None, typer.Option("--writer-model", metavar="NAME", help="The server's name of that model.")
    ] = None,
    writer_key_env: Annotated[
        str | None, typer.Option("--writer-key-env", metavar="VARIABLE", help="Environment variable with its key.")
    ] = None,
    rollouts: Annotated[int, typer.Option("--rollouts", min=2, help="Rollouts of the search of prompts.")] = 300,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Teach a model by the cheapest way that is enough: its prompt, then demonstrations, then rewards.

    Each rung is measured on the evaluation set; the first whose interval lies above the target is the last. The same
    command continues what was stopped.
    """
    from rlf.apps.climb.climb import ClimbOptions, climb
    from rlf.runs.targets import WRITER, endpoint_of

    files, overrides = split_arguments(arguments)
    writer = endpoint_of(writer_endpoint, writer_model, writer_key_env, options=WRITER)
    options = ClimbOptions(target, samples, writer, rollouts)
    done = climb(
        files,
        overrides,
        options,
        runs_folder=runs_folder,
        command=["rlf", *sys.argv[1:]],
        notify=lambda line: typer.echo(line, err=True),
    )
    print_result("climb", done, as_json, lambda: _show(done, runs_folder))
    raise typer.Exit(0 if done.reached is not None else 3)


def _show(done: Climb, runs_folder: Path) -> str:
    lines = [f"{'rung':<16}{'success':>8}  {'95 %':<16}{'rollouts':>9}{'tokens':>11}{'time':>9}  run"]
    lines += map(_row, done.rungs)
    tried = [rung for rung in reversed(done.rungs) if rung.run_id is not None]
    best = tried[0] if done.reached else max(tried, key=lambda rung: rung.success or 0.0)  # of equal ones the last
    by = f"reached {done.target:.0%} by" if done.reached else f"no rung reaches {done.target:.0%}; the best is"
    lines.append(f"{by}: {best.name}")
    if best.model is not None:
        lines.append(f"  the model is {best.model}")
    trained = [rung.run_id for rung in done.rungs if rung.run_id is not None and rung.model is not None]
    if len(trained) > 1:
        lines.append(f"  rlf runs compare {' '.join(trained)}{runs_option(runs_folder)}")
    return "\n".join(lines)


def _row(rung: Rung) -> str:
    if rung.success is None or rung.low is None or rung.high is None:
        return f"{rung.name:<16}{'-':>8}  {rung.words}"
    interval = f"{rung.low:.1%} to {rung.high:.1%}"
    return (
        f"{rung.name:<16}{rung.success:>8.1%}  {interval:<16}{rung.num_rollouts:>9,}{rung.num_sampled:>11,}"
        f"{duration(rung.time_s):>9}  {rung.run_id}"
    )
