"""`rlf runs reproduce`: a run from its lineage, once more."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunName, RunsFolder
from rlf.cli.envelope import print_result
from rlf.cli.run import run_in_view, watch
from rlf.core.errors import RlfError
from rlf.core.identity import short

if TYPE_CHECKING:
    from rlf.api.running.reproduce import Agreement

_SHOWN = 10


def reproduce_run(
    name: RunName,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Compare inputs, steps and evaluations with the original's; exit code 3 where they differ."
        ),
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="With --verify: report inputs that differ, and fail only for results.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Call the tools instead of replaying their recorded responses.")
    ] = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Run a run's plan again from the lineage, its tools' recorded responses played back.

    On a CPU the default engine gives the same numbers bit for bit; --verify shows it, or names the first difference.
    """
    from rlf.api.running.reproduce import compare_with_original, reproduce
    from rlf.types.events import RunStatus

    work = partial(reproduce, name, live=live)
    if accept and not verify:
        raise RlfError("--accept goes with --verify. Add --verify, or leave it out.")
    if not verify:
        watch("runs reproduce", work, runs_folder, as_json=as_json)
    outcome = run_in_view("runs reproduce", work, runs_folder, as_json=as_json)
    if outcome.status is not RunStatus.FINISHED:
        raise typer.Exit(130)
    found = compare_with_original(outcome.run_id, runs_folder)
    print_result("runs reproduce", found, as_json, lambda: _print_agreement(found, accept=accept))
    raise typer.Exit(3 if found.results or (found.inputs and not accept) else 0)


def _print_agreement(found: Agreement, *, accept: bool) -> None:
    others = [item for item in found.differences if item not in found.results]
    for item in others[:_SHOWN]:
        print(f"differs: {item.kind} {item.name}  {short(item.left)} → {short(item.right)}")
    if len(others) > _SHOWN:
        print(f"and {len(others) - _SHOWN} more; `rlf runs diff {found.original} {found.reproduction}` names all")
    if found.results:
        first = found.results[0]
        print(f"{found.reproduction} differs from {found.original} first in {first.kind} {first.name}")
    else:
        print(f"{found.reproduction} equals {found.original}: every step's and evaluation's metrics, bit for bit")
    if found.inputs and not accept:
        print("its inputs differ, so this is not the same run: restore them, or pass --accept to compare only results")
