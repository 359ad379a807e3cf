"""Runs beside one another: how they differ, and what each was made from."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rlf.core.errors import RlfError
from rlf.lineage.graph import Graph, GraphNode, read_graph
from rlf.lineage.reader import Reader
from rlf.reports.arms import read_arms
from rlf.reports.comparison import Comparison, compare_arms
from rlf.reports.comparison_views import markdown


def compare_runs(
    reader: Reader,
    names: Sequence[str],
    mode: str | None = None,
    threshold: float | None = None,
    *,
    at_ends: bool = False,
) -> Comparison:
    """Compares runs; of one arm, such as a sweep of seeds alone, what chance does to it."""
    found = compare_arms(read_arms(reader, names), mode, threshold, at_ends=at_ends)
    return replace(found, markdown=markdown(found))


def whence(reader: Reader, thing: str) -> list[GraphNode]:
    """A checkpoint, exported model or run, after everything that it was made from."""
    graph, key = _find_graph_node(reader, thing)
    return [*graph.ancestors(key), *([node] if (node := graph.node(key)) else [])]


def _find_graph_node(reader: Reader, thing: str) -> tuple[Graph, str]:
    """The graph that holds a thing, and the thing's key."""
    path = Path(thing).absolute()
    if not path.exists():  # every run's checkpoints are read for a path alone
        with suppress(RlfError):
            return _graph_of_run(reader, thing)
    for run in reader.list_runs():
        run_id = run.record.id
        for kind, made in (("checkpoint", reader.checkpoints(run_id)), ("export", reader.exports(run_id))):
            for item in made:
                if Path(item.path).absolute() == path:
                    return read_graph(reader, run_id), f"{kind}:{item.path}"
    try:
        return _graph_of_run(reader, thing)
    except RlfError as error:
        raise RlfError(
            f"{thing}: no checkpoint, exported model or run of the lineage has this name. `rlf runs show RUN` "
            "shows a run's checkpoints."
        ) from error


def _graph_of_run(reader: Reader, name: str) -> tuple[Graph, str]:
    run_id = reader.get_run(name).record.id
    return read_graph(reader, run_id), f"run:{run_id}"
