"""`rlf export`: a run's model as a Hugging Face folder with its card, on this disk and on the Hub."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunName, RunNames, RunsFolder
from rlf.cli.envelope import print_result
from rlf.core.errors import RlfError
from rlf.core.identity import hash_path
from rlf.reports.sheets import counted

if TYPE_CHECKING:
    from rlf.apps.share.export import ModelExport


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
    from rlf.apps.share.export import export_model
    from rlf.apps.share.proof import write_proof

    if push is None and (private or dry_run):
        raise RlfError(f"{'--private' if private else '--dry-run'}: goes with --push OWNER/NAME.")
    done = export_model(name, folder, runs_folder=runs_folder, step=step, prove=write_proof if proof else None)
    if push is not None:
        from rlf.apps.share.export import push_folder

        done = replace(done, pushed=push_folder(folder, push, private=private, dry_run=dry_run))
    print_result("export", done, as_json, lambda: _show_exported(done))


def _show_exported(done: ModelExport) -> str:
    from rlf.runs.exports import PROOF

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
    from rlf.apps.share import tables as transfer
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
    from rlf.apps.share import tables as transfer

    done = transfer.import_runs(source, names or (), runs_folder)
    words = f"{counted(len(done.imported), 'run')} imported, {len(done.present)} were here already"
    print_result("runs import", done, as_json, words)
