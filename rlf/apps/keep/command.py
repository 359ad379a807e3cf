"""`rlf verify`, `rlf runs verify|salvage`: what of a card is proven, what of a lineage is whole, saving the rest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunsFolder
from rlf.cli.envelope import print_result
from rlf.cli.output import showing_progress, stdout_console
from rlf.reports.sheets import counted

if TYPE_CHECKING:
    from rlf.apps.keep.proof import ModelProof
    from rlf.apps.keep.verification import Verification


def verify_lineage(
    heads: Annotated[
        bool, typer.Option("--head", help="Print the head of each run's chain: who keeps it sees any later edit.")
    ] = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Read the whole lineage and print what is damaged or was edited, checkpoints included; exit code 3 then.

    Rows are compared with the chain that each run has written with them, rewards with their scores, advantages with the
    rewards, a plan with its hash.
    """
    from rlf.apps.keep.verification import verify_folder

    with showing_progress("reading") as progress:
        found = verify_folder(runs_folder, progress)
    print_result("runs verify", found, as_json, lambda: _print_verification(found, heads=heads))
    if found.faults:
        raise typer.Exit(3)


def verify_model(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A model that `rlf export` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Say which sentences of an exported model's card are proven by what lies beside it; exit code 3 when one is wrong.

    Needs no network and nothing of the machine that trained it, and runs no code of the folder.
    """
    from rlf.apps.keep import proof

    found = proof.verify_model(folder)
    print_result("verify", found, as_json, lambda: _print_proof(found))
    if any(claim.state is proof.ClaimState.WRONG for claim in found.claims):
        raise typer.Exit(3)


def _print_proof(found: ModelProof) -> None:
    for claim in found.claims:
        line = f"{claim.state:8} {claim.sentence} ({claim.reason})"
        stdout_console().print(line, markup=False, highlight=False, soft_wrap=True)
    print(f"proof {found.sha256}: compare it with what the one who exported the model has published.")


def _print_verification(found: Verification, *, heads: bool) -> None:
    notes = (f"note: {remark}" for remark in found.remarks)
    readable = (
        f"readable: {item.table}: {counted(item.num_rows, 'row')}{_show_losses(item.num_damaged, item.num_gaps)}"
        for item in found.readable
    )
    for line in (*found.faults, *notes, *readable):
        stdout_console().print(line, markup=False, soft_wrap=True)
    for run_id, head in found.heads.items() if heads else ():
        print(f"{run_id} link {head.number} {head.sha256}")
    num_runs = counted(found.num_runs, "run")
    print(f"{num_runs}, {counted(len(found.faults), 'fault')}" if found.faults else f"{num_runs}, all whole")
    if found.readable:
        print("`rlf runs salvage` saves what is readable into a new database.")


def _show_losses(num_damaged: int, num_gaps: int) -> str:
    damaged = f"; {num_damaged} more are damaged" if num_damaged else ""
    return damaged + (f"; {counted(num_gaps, 'place')} cannot be read" if num_gaps else "")


def salvage_runs(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The new database; it must not exist.")],
    database: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The damaged one.", show_default="rlf.db in --runs")
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Save what is readable of a damaged lineage or archive into a new database; the damaged one stays as it is.

    Trajectories that lost a part keep their row and nothing else. Each run gets a note of what was lost.
    """
    from rlf.apps.keep.verification import salvage

    done = salvage(database or runs_folder / "rlf.db", out)
    lines = [
        f"{item.table}: {counted(item.num_rows, 'row')} saved{_show_losses(item.num_damaged, item.num_gaps)}"
        for item in done.tables
        if item.num_rows or item.num_damaged or item.num_gaps
    ]
    lost = "trajectory" if done.num_thinned == 1 else "trajectories"
    end = f"{counted(len(done.run_ids), 'run')} saved to {done.target}; {done.num_thinned:,} {lost} lost a part"
    print_result("runs salvage", done, as_json, "\n".join([*lines, end]))
