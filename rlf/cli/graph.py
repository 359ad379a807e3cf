"""The drawing of a run's graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlf.cli.output import plain_table, stdout_console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlf.runs.compare import Graph, GraphNode

FEW = 3
"""Steps and evaluations that a drawing names before it counts the rest."""


def print_graph(graph: Graph) -> None:
    """Draws a run's graph: what it was made of, and what it made."""
    few: list[GraphNode] = []
    for kind in dict.fromkeys(node.kind for node in graph.nodes):
        of_kind = [node for node in graph.nodes if node.kind == kind]
        few += of_kind if len(of_kind) <= 2 * FEW else [*of_kind[:FEW], *of_kind[-FEW:]]
    print_nodes(few, num_left_out=len(graph.nodes) - len(few))


def print_nodes(nodes: Sequence[GraphNode], num_left_out: int = 0) -> None:
    """Prints nodes with what each was made of."""
    from rich.text import Text

    made_of = [", ".join(dict.fromkeys(key.partition(":")[0] for key in node.made_of)) for node in nodes]
    rows = [
        (node.kind, Text(node.name), node.sha256[:12], Text(of, "dim")) for node, of in zip(nodes, made_of, strict=True)
    ]
    stdout_console().print(plain_table(("kind", "what", "sha256", "made of"), rows))
    if num_left_out:
        print(f"and {num_left_out} nodes between these")
