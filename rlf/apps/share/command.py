"""`rlf export`: a run's model as a Hugging Face folder with its card, on this disk and on the Hub."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunName, RunNames, RunsFolder
from rlf.cli.output import plain_table, print_result, stdout_console
from rlf.core.errors import RlfError
from rlf.core.identity import short
from rlf.reports.sheets import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlf.apps.share.bundles import Graph, Node, NodeDifference
    from rlf.runs.exports import Exported


def export(
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
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Write the model that a run trained as a Hugging Face folder, with a model card (README.md) and its curves.

    The final model, or while there is none that of the newest checkpoint; a run that was stopped has one too.
    """
    from rlf.runs.exports import export_model

    if push is None and (private or dry_run):
        raise RlfError(f"{'--private' if private else '--dry-run'}: goes with --push OWNER/NAME.")
    done = export_model(name, folder, runs_folder=runs_folder, step=step)
    if push is not None:
        from rlf.apps.share.publish import push_folder

        done = replace(done, pushed=push_folder(folder, push, private=private, dry_run=dry_run))
    print_result("export", done, as_json, lambda: _show_exported(done))


def _show_exported(done: Exported) -> str:
    lines = [f"run {done.run_id} after step {done.step}: {done.folder}"]
    lines += [f"  {shlex.join(done.vllm)}", f"  rlf serve {shlex.quote(str(done.folder))}"]
    if done.pushed is not None:
        total = sum(done.pushed.files.values())
        how = "would be sent (--dry-run)" if done.pushed.dry_run else "sent"
        lines.append(f"{how} to {done.pushed.url}: {len(done.pushed.files)} files, {total:,} bytes")
        lines += [f"  {size:>14,}  {name}" for name, size in done.pushed.files.items()]
    return "\n".join(lines)


# `rlf runs export|import`: runs from one machine to another, and to other tools.


def export_runs(
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


def import_runs(
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


# `rlf runs whence|diff`, and the drawing of a run's graph.

_FEW = 3
"""Steps and evaluations that a drawing names before it counts the rest."""


def whence(
    thing: Annotated[
        str, typer.Argument(metavar="PATH|RUN", help="A checkpoint or exported model, or a run.", show_default=False)
    ],
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Walk a checkpoint or exported model back to everything that made it, each with the hash of its content."""
    from rlf.apps.share import bundles as graph
    from rlf.runs.place import open_reader

    with open_reader(runs_folder) as reader:
        found = graph.whence(reader, thing)
    print_result("runs whence", found, as_json, lambda: _print_nodes(found))


def diff_runs(
    left: RunName,
    right: RunName,
    step: Annotated[
        int | None, typer.Option("--step", min=1, help="Also show this step's trajectories, calls and scores.")
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Name the nodes of two runs' lineage that differ, and nothing else: sources first, then what was made."""
    from rlf.apps.share import bundles as graph
    from rlf.runs.place import open_reader

    with open_reader(runs_folder) as reader:
        found = graph.diff_runs(reader, (left, right), step)
    print_result("runs diff", found, as_json, lambda: _print_differences(found))


def _print_differences(found: Sequence[NodeDifference]) -> None:
    for kind in dict.fromkeys(item.kind for item in found):
        of_kind = [item for item in found if item.kind == kind]
        for item in of_kind[:_FEW]:
            print(f"{item.kind:11} {item.name}  {short(item.left)} → {short(item.right)}")
        if len(of_kind) > _FEW:
            print(f"{kind:11} and {len(of_kind) - _FEW} more")
    if not found:
        print("no node differs")


def print_graph(graph: Graph) -> None:
    """Draws a run's graph: what it was made of, and what it made."""
    few: list[Node] = []
    for kind in dict.fromkeys(node.kind for node in graph.nodes):
        of_kind = [node for node in graph.nodes if node.kind == kind]
        few += of_kind if len(of_kind) <= 2 * _FEW else [*of_kind[:_FEW], *of_kind[-_FEW:]]
    _print_nodes(few, num_left_out=len(graph.nodes) - len(few))


def _print_nodes(nodes: Sequence[Node], num_left_out: int = 0) -> None:
    from rich.text import Text

    made_of = [", ".join(dict.fromkeys(key.partition(":")[0] for key in node.made_of)) for node in nodes]
    rows = [
        (node.kind, Text(node.name), node.sha256[:12], Text(of, "dim")) for node, of in zip(nodes, made_of, strict=True)
    ]
    stdout_console().print(plain_table(("kind", "what", "sha256", "made of"), rows))
    if num_left_out:
        print(f"and {num_left_out} nodes between these")
