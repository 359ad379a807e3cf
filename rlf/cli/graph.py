"""`rlf runs whence|diff`, and the drawing of a run's graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunName, RunsFolder
from rlf.cli.envelope import print_result
from rlf.cli.output import plain_table, stdout_console
from rlf.core.identity import short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlf.runs.compare import Graph, GraphNode, NodeDifference

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
    from rlf.runs import compare as graph
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
    from rlf.runs import compare as graph
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
    few: list[GraphNode] = []
    for kind in dict.fromkeys(node.kind for node in graph.nodes):
        of_kind = [node for node in graph.nodes if node.kind == kind]
        few += of_kind if len(of_kind) <= 2 * _FEW else [*of_kind[:_FEW], *of_kind[-_FEW:]]
    _print_nodes(few, num_left_out=len(graph.nodes) - len(few))


def _print_nodes(nodes: Sequence[GraphNode], num_left_out: int = 0) -> None:
    from rich.text import Text

    made_of = [", ".join(dict.fromkeys(key.partition(":")[0] for key in node.made_of)) for node in nodes]
    rows = [
        (node.kind, Text(node.name), node.sha256[:12], Text(of, "dim")) for node, of in zip(nodes, made_of, strict=True)
    ]
    stdout_console().print(plain_table(("kind", "what", "sha256", "made of"), rows))
    if num_left_out:
        print(f"and {num_left_out} nodes between these")
