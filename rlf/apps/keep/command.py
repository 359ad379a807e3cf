"""`rlf export`, `rlf verify`, and what `rlf runs` does with runs that are over: proves, marks, thins, repeats them."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunName, RunNames, RunsFolder, split_arguments
from rlf.cli.completion import complete_run, complete_spec
from rlf.cli.envelope import print_result
from rlf.cli.output import FEW, print_nodes, print_note, stdout_console
from rlf.cli.run import watch
from rlf.core.errors import RlfError
from rlf.core.identity import hash_path, short
from rlf.reports.sheets import counted

if TYPE_CHECKING:
    from rlf.apps.keep.export import ModelExport
    from rlf.apps.keep.forks import Agreement
    from rlf.apps.keep.proof import ModelProof
    from rlf.apps.keep.verification import Verification
    from rlf.lineage.graph import NodeDifference


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

    with _showing_progress("reading") as progress:
        found = verify_folder(runs_folder, progress)
    print_result("runs verify", found, as_json, lambda: _print_verification(found, heads=heads))
    if found.faults:
        raise typer.Exit(3)


def verify_model_command(
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
    from rlf.apps.keep.salvage import salvage

    done = salvage(database or runs_folder / "rlf.db", out)
    lines = [
        f"{item.table}: {counted(item.num_rows, 'row')} saved{_show_losses(item.num_damaged, item.num_gaps)}"
        for item in done.tables
        if item.num_rows or item.num_damaged or item.num_gaps
    ]
    lost = "trajectory" if done.num_thinned == 1 else "trajectories"
    end = f"{counted(len(done.run_ids), 'run')} saved to {done.target}; {done.num_thinned:,} {lost} lost a part"
    print_result("runs salvage", done, as_json, "\n".join([*lines, end]))


# `rlf runs tag|note|rm`: tags, notes, and removal of runs.


def tag_run(
    name: RunName,
    tags: Annotated[list[str], typer.Argument(metavar="TAG...", help="Tags to add; with --remove, to remove.")],
    remove: Annotated[bool, typer.Option("--remove", help="Remove the tags.")] = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Give a run tags; `rlf runs list "'best' in tags"` finds it by them."""
    from rlf.lineage.upkeep import tag
    from rlf.runs.place import open_reader

    with open_reader(runs_folder) as reader:
        done = tag(reader, name, tags, remove=remove)
    print_result("runs tag", done, as_json, f"{done.run_id}: {' '.join(done.tags) or 'no tags'}")


def note_run(
    name: RunName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The remark.")],
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Add a note to a run; `rlf runs show` prints it."""
    from rlf.lineage.upkeep import note
    from rlf.runs.place import open_reader

    with open_reader(runs_folder) as reader:
        done = note(reader, name, text)
    print_result("runs note", done, as_json, f"{done.run_id}: {counted(done.num_notes, 'note')}")


def remove_runs(
    names: RunNames,
    keep_files: Annotated[
        bool, typer.Option("--keep-files", help="Keep the run's folder with its checkpoints.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Remove stopped runs from the lineage, with their folders; `rlf runs gc` then frees the room."""
    from rlf.apps.keep.upkeep import remove_with_folders
    from rlf.runs.place import open_reader

    with open_reader(runs_folder) as reader:
        runs = [reader.get_run(name) for name in names]
        what = ", ".join(f"{run.record.id} ({run.record.name})" for run in runs)
        if not yes and not typer.confirm(f"Remove {what}?", err=as_json):
            raise typer.Exit(1)
        done = remove_with_folders(reader, runs, runs_folder, keep_files=keep_files)
    lines = [f"removed {item.run_id}" + ("" if item.folder is None else f" and {item.folder}") for item in done.removed]
    print_result("runs rm", done, as_json, "\n".join(lines))


def thin_runs(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN...]", help="Runs to thin.", autocompletion=complete_run)
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="RULE",
            help="Training trajectories to keep whole: `last:N` steps, `every:N` steps, `failed`, or `none`.",
        ),
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Free room: thin runs by rule, and drop contents that nothing names any more.

    Thinned trajectories lose tokens, calls and scores. Metrics, sums, evaluations, checkpoints and the rows of the
    trajectories stay, so that every report keeps working.
    """
    from rlf.apps.keep.upkeep import free_room
    from rlf.runs.place import open_reader

    with open_reader(runs_folder) as reader:
        done = free_room(reader, names or (), keep or ())
    contents = f"{done.num_contents:,} contents dropped, {done.size_bytes:,} bytes"
    lines = [f"{done.num_trajectories:,} trajectories thinned; {contents}"]
    if not done.is_compact:
        lines.append("The file keeps its size while a run is running: run `rlf runs gc` again after it.")
    print_result("runs gc", done, as_json, "\n".join(lines))


# Where a model comes from, and in what two runs differ.


def whence_command(
    thing: Annotated[
        str, typer.Argument(metavar="PATH|RUN", help="A checkpoint or exported model, or a run.", show_default=False)
    ],
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Walk a checkpoint or exported model back to everything that made it, each with the hash of its content."""
    from rlf.lineage.graph import whence
    from rlf.runs.place import open_reader

    with open_reader(runs_folder) as reader:
        found = whence(reader, thing)
    print_result("runs whence", found, as_json, lambda: print_nodes(found))


def diff_runs_command(
    left: RunName,
    right: RunName,
    step: Annotated[
        int | None, typer.Option("--step", min=1, help="Also show this step's trajectories, calls and scores.")
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Name the nodes of two runs' lineage that differ, and nothing else: sources first, then what was made."""
    from rlf.apps.keep.forks import diff_runs
    from rlf.runs.place import open_reader

    with open_reader(runs_folder) as reader:
        found = diff_runs(reader, (left, right), step)
    print_result("runs diff", found, as_json, lambda: _print_differences(found))


def _print_differences(found: Sequence[NodeDifference]) -> None:
    for kind in dict.fromkeys(item.kind for item in found):
        of_kind = [item for item in found if item.kind == kind]
        for item in of_kind[:FEW]:
            print(f"{item.kind:11} {item.name}  {short(item.left)} → {short(item.right)}")
        if len(of_kind) > FEW:
            print(f"{kind:11} and {len(of_kind) - FEW} more")
    if not found:
        print("no node differs")


# `rlf runs reproduce`: a run from its lineage, once more.

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

    On a CPU and without `rollout.schedule: clock` the default engine gives the same numbers bit for bit; --verify
    shows it, or names the first difference.
    """
    from rlf.apps.keep.forks import compare_with_original, reproduce
    from rlf.types.events import RunStatus

    work = partial(reproduce, name, live=live)
    if accept and not verify:
        raise RlfError("--accept goes with --verify. Add --verify, or leave it out.")
    outcome = watch("runs reproduce", work, runs_folder, as_json=as_json, shows_end=not verify)
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


# `rlf runs fork`: a child run from a checkpoint.


def fork_run(
    name: Annotated[
        str,
        typer.Argument(
            metavar="RUN[@STEP]",
            help="A run and the step of one of its checkpoints; without a step the newest.",
            show_default=False,
            autocompletion=complete_run,
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SPEC|KEY=VALUE]",
            help="Overrides of the parent's plan; or specs to use instead, with overrides.",
            show_default=False,
            autocompletion=complete_spec,
        ),
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Start a child run from a checkpoint, with changes, e.g. `rlf runs fork latest@6 train.steps=40`.

    The child keeps the parent's weights, optimizer and place in the data, counts its steps on from there, and is
    evaluated before its first one. Code and data are those that are there now.
    """
    from rlf.apps.keep.forks import fork_checkpoint

    files, overrides = split_arguments(arguments or [], need_file=False)

    watch("runs fork", partial(fork_checkpoint, name, files, overrides), runs_folder, as_json=as_json)


@contextmanager
def _showing_progress(verb: str) -> Iterator[Callable[[str], None]]:
    """What takes the time of a long command, printed every few seconds: yields what is called with it, often."""
    now, ended, started = [""], threading.Event(), time.monotonic()

    def show() -> None:
        while not ended.wait(3):
            print_note(f"{verb} {now[0]} ({time.monotonic() - started:.0f} s)")

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield lambda what: now.__setitem__(0, what)
    finally:
        ended.set()
        thread.join()


# `rlf export`: a run's model as a Hugging Face folder with its card, on this disk and on the Hub.


def export_command(
    name: RunName,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the model is written; it must not exist.")],
    step: Annotated[
        str,
        typer.Option(
            "--step", metavar="N|newest|best", help="Which model: a step, the newest, or the best by held-out success."
        ),
    ] = "newest",
    push: Annotated[
        str | None, typer.Option("--push", metavar="OWNER/NAME", help="Also upload it to the Hugging Face Hub.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="With --push: make the repository private.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --push: only show what would be sent.")] = False,
    proof: Annotated[
        bool,
        typer.Option(
            "--proof/--no-proof",
            help="Add the lineage that proves the card: plan, machine, questions, results of tools in evaluations.",
        ),
    ] = True,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Write the model that a run trained as a Hugging Face folder, with a model card (README.md), curves and a proof.

    `rlf verify FOLDER` says anywhere which sentences of the card are proven. The final model, or while there is none
    that of the newest checkpoint; a run that was stopped has one too.
    """
    from rlf.apps.keep.archive import write_proof
    from rlf.apps.keep.export import export_model

    if push is None and (private or dry_run):
        raise RlfError(f"{'--private' if private else '--dry-run'}: goes with --push OWNER/NAME.")
    done = export_model(name, folder, runs_folder=runs_folder, step=step, prove=write_proof if proof else None)
    if push is not None:
        from rlf.apps.keep.export import push_folder

        done = replace(done, pushed=push_folder(folder, push, private=private, dry_run=dry_run))
    print_result("export", done, as_json, lambda: _show_exported(done))


def _show_exported(done: ModelExport) -> str:
    from rlf.apps.keep.export import PROOF

    lines = [f"run {done.run_id} after step {done.step}: {done.folder}"]
    lines += [f"  {shlex.join(done.vllm)}", f"  rlf serve {shlex.quote(str(done.folder))}"]
    if (done.folder / PROOF).is_file():
        lines.append(f"  proof {hash_path(done.folder / PROOF)}: publish it, and `rlf verify` has it to compare")
    if done.pushed is not None:
        total = sum(done.pushed.files.values())
        how = "would be sent (--dry-run)" if done.pushed.dry_run else "sent"
        lines.append(f"{how} to {done.pushed.url}: {len(done.pushed.files)} files, {total:,} bytes")
        lines += [f"  {size:>14,}  {name}" for name, size in done.pushed.files.items()]
    return "\n".join(lines)


# `rlf runs export|import`: runs from one machine to another, and to other tools.


def export_runs_command(
    names: RunNames,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="PATH", help="File, or folder of tables, to write.")],
    format_: Annotated[
        Literal["rlf", "jsonl", "parquet"],
        typer.Option("--format", help="A database for `rlf runs import`, or tables."),
    ] = "rlf",
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Write runs to a file for another machine, or as tables of JSON lines or Parquet."""
    from rlf.apps.keep import tables as transfer
    from rlf.runs.place import open_reader

    with open_reader(runs_folder) as reader:
        done = transfer.export_runs(reader, names, out, transfer.ExportFormat(format_))
    print_result("runs export", done, as_json, f"{counted(len(done.run_ids), 'run')} written to {out}")


def import_runs_command(
    source: Annotated[
        str, typer.Argument(metavar="FILE|URL", help="A file of `rlf runs export`, or any other lineage.")
    ],
    names: Annotated[list[str] | None, typer.Argument(metavar="[RUN...]", help="Runs to import; default: all.")] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Take runs over from another lineage; those that are here already stay as they are."""
    from rlf.apps.keep import tables as transfer

    done = transfer.import_runs(source, names or (), runs_folder)
    words = f"{counted(len(done.imported), 'run')} imported, {len(done.present)} were here already"
    print_result("runs import", done, as_json, words)
