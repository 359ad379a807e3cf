"""A run's lineage as a graph: what it was made from and what it made, each node with the hash of its content.

Edges go from what a thing was made of to the thing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from rlf.core import RlfError, hash_json
from rlf.lineage import tables
from rlf.lineage.reader import Reader
from rlf.lineage.records import INTERRUPTED, TRAIN, AcceptedChange, Run, StoredTrajectory, TrajectoryFilter
from rlf.types import ToolCall, ToolResult


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One thing of a run."""

    kind: str
    """`spec`, `tool`, `source` (of a tool), `code` (a file of the user's), `reward`, `data`, `model`, `tokenizer`,
    `template`, `plan`, `rlf`, `packages`, `seed`, `host`, `parent`, `rows` (of the data that were used), `run`,
    `change` (of an input, accepted on a resume), `step`, `evaluation`, `checkpoint`, `export`; and `trajectory`,
    `call`, `score` of a step that was asked for, and `inner_turn` of an agent's call."""
    name: str
    sha256: str
    """Of its content; empty where only the name is known."""
    made_of: tuple[str, ...]
    """Keys of the nodes that it was made of."""

    @property
    def key(self) -> str:
        """Unique within the graph."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class Graph:
    """Every node of one run, sources first."""

    run_id: str
    nodes: tuple[GraphNode, ...]

    def node(self, key: str) -> GraphNode | None:
        """The node of a key."""
        return next((node for node in self.nodes if node.key == key), None)

    def ancestors(self, key: str) -> list[GraphNode]:
        """Everything that a node was made of, directly or not, sources first."""
        wanted, found = [key], set()
        while wanted:
            node = self.node(wanted.pop())
            for source in node.made_of if node is not None else ():
                if source not in found:
                    found.add(source)
                    wanted.append(source)
        return [node for node in self.nodes if node.key in found]


@dataclass(frozen=True, slots=True)
class NodeDifference:
    """A node that is not the same in two graphs."""

    kind: str
    name: str
    left: str
    """Its hash, or its name where it has none; empty where the graph has no such node."""
    right: str


def differing(left: Graph, right: Graph) -> list[NodeDifference]:
    """The nodes that differ, sources first. The runs' own ids, folders and parents do not count."""
    sides = [_index_nodes(graph) for graph in (left, right)]
    keys = dict.fromkeys(key for side in sides for key in side)
    return [
        NodeDifference(kind, name, *(side.get((kind, name), "") for side in sides))
        for kind, name in keys
        if sides[0].get((kind, name)) != sides[1].get((kind, name))
    ]


_SINGLE = ("plan", "rlf", "packages", "seed", "host")
"""Kinds of which a run has one node: they are compared whatever their names are."""
_PLACES = ("run", "parent", "checkpoint", "export")
"""Kinds named by where things are; what they hold follows from the steps."""


def _index_nodes(graph: Graph) -> dict[tuple[str, str], str]:
    found = {}
    for node in graph.nodes:
        if node.kind in _SINGLE:
            found[node.kind, ""] = node.sha256 or node.name if node.kind != "rlf" else f"{node.name} {node.sha256}"
        elif node.kind == "rows":
            found[node.kind, node.name.partition(" ")[2]] = node.sha256
        elif node.kind not in _PLACES:
            found[node.kind, node.name] = node.sha256
    return found


def read_graph(reader: Reader, run_id: str, step: int | None = None) -> Graph:
    """The graph of a run; with a step also the trajectories, calls and scores of its update."""
    run = reader.get_run(run_id)
    sources = [GraphNode(file.role, file.path, file.sha256, ()) for file in run.record.files]
    plan = GraphNode("plan", run.record.plan_hash[:12], run.record.plan_hash, tuple(node.key for node in sources))
    data, tried = tuple(node.key for node in sources if node.kind == "data"), row_hashes(reader, run_id)
    # The questions that each phase tried, as one node: which of the data's rows the run really saw.
    rows = [GraphNode("rows", f"{len(own)} {phase}", hash_json(list(own)), data) for phase, own in tried.items()]
    surroundings = [*_surrounding_nodes(run), *rows]
    whole_run = GraphNode("run", run.record.id, "", (plan.key, *(node.key for node in surroundings)))
    nodes = (*sources, plan, *surroundings, whole_run, *_walk_products(reader, run.record.id))
    if step is None:
        return Graph(run.record.id, nodes)
    source = f"step:{step - 1}" if step > 1 else f"run:{run_id}"
    summaries = reader.trajectories(run_id, TrajectoryFilter(phase=TRAIN, step=step))
    whole = [(summary.k, reader.whole(run_id, summary)) for summary in summaries]
    collected = (
        node for k, stored in whole if stored is not None for node in _walk_trajectory(step, k, stored, source)
    )
    return Graph(run.record.id, (*nodes, *collected))


def whence(reader: Reader, thing: str) -> list[GraphNode]:
    """A checkpoint, exported model or run, after everything that it was made from."""
    graph, key = _find_node(reader, thing)
    return [*graph.ancestors(key), *([node] if (node := graph.node(key)) else [])]


def _find_node(reader: Reader, thing: str) -> tuple[Graph, str]:
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


def _walk_trajectory(step: int, k: int, stored: StoredTrajectory, source: str) -> Iterator[GraphNode]:
    """A trajectory with its calls and scores; what measures time is no part of their hashes."""
    scored = stored.scored
    trajectory = scored.trajectory
    name = f"{step} {k}"
    parts = [list(trajectory.tokens), list(trajectory.action_mask), list(map(repr, trajectory.rollout_logprobs))]
    whole = GraphNode("trajectory", name, hash_json([*parts, trajectory.stop, trajectory.answer]), (source,))
    yield whole
    for place, record in enumerate(trajectory.calls):
        yield from _walk_call(f"{name} {place}", record.call, record.result, whole.key)
    for score in scored.scores:
        value = [repr(score.value), repr(score.weight), score.state, repr(score.turn_values)]
        yield GraphNode("score", f"{name} {score.term}", hash_json(value), (whole.key,))


def _walk_call(name: str, call: ToolCall, result: ToolResult, caller: str) -> Iterator[GraphNode]:
    """A call, and the turns and calls inside of an agent's."""
    parts = [call.name, repr(dict(call.arguments)), result.outcome, result.text]
    node = GraphNode("call", name, hash_json(parts), (caller,))
    yield node
    for number, turn in enumerate(result.inner):
        inside = f"{name}/{number}"
        inner = GraphNode("inner_turn", inside, hash_json([turn.text, turn.reasoning, turn.failures]), (node.key,))
        yield inner
        for place, made in enumerate(turn.calls):
            yield from _walk_call(f"{inside}.{place}", made.call, made.result, inner.key)


def _surrounding_nodes(run: Run) -> Iterator[GraphNode]:
    record = run.record
    yield GraphNode("rlf", record.code_version, record.patch_sha256 or "", ())
    yield GraphNode("packages", f"{len(record.packages)} packages", hash_json(record.packages), ())
    yield GraphNode("seed", str(record.seed), "", ())
    yield GraphNode("host", str(record.host.get("name", "")), hash_json(record.host), ())
    if record.parent_id is not None:
        step = "" if record.parent_step is None else f"@{record.parent_step}"
        yield GraphNode("parent", f"{record.parent_id}{step} ({record.parent_kind})", "", ())


def _walk_products(reader: Reader, run_id: str) -> Iterator[GraphNode]:
    """The products of a run. Step metrics that measure time are no part of a step's hash."""
    before, key_by_step = f"run:{run_id}", {0: f"run:{run_id}"}
    pending, checkpoints = reader.changes(run_id), reader.checkpoints(run_id)
    for step in reader.steps(run_id):
        accepted = [_change_node(change, before) for change in pending if change.step < step.step]
        pending = [change for change in pending if change.step >= step.step]
        yield from accepted
        made_of = (before, *(change.key for change in accepted))
        node = GraphNode("step", str(step.step), hash_metrics(step.metrics), made_of)
        before = key_by_step[step.step] = node.key
        yield node
    yield from (_change_node(change, before) for change in pending)
    for done in reader.evaluations(run_id):
        made_of = (key_by_step.get(done.step, before),)
        yield GraphNode("evaluation", f"{done.step} {done.mode}", hash_metrics(done.metrics), made_of)
    for saved in checkpoints:
        yield GraphNode("checkpoint", saved.path, saved.sha256, (key_by_step.get(saved.step, before),))
    by_step = {saved.step: f"checkpoint:{saved.path}" for saved in checkpoints}
    for export in reader.exports(run_id):
        source = by_step.get(export.step, key_by_step.get(export.step, before))
        yield GraphNode("export", export.path, export.sha256, (source,))


def _change_node(change: AcceptedChange, before: str) -> GraphNode:
    """An input that was replaced after a step, by its new hash; a package by its new version."""
    name = f"{change.role} {change.path} after step {change.step}"
    return GraphNode("change", name, change.sha256, (before,))


# Of the machine's pace, and of what judges and tools took, which caches and recordings spare: whatever stands behind
# these names differs between equal runs.
_MEASURED = re.compile(
    r"(time|throughput|memory)/|tools/wait_share$|env/world_s$|(rewards|tools)/.+/(cost_usd|tokens|cached)$"
)


def hash_metrics(metrics: dict[str, float]) -> str:
    """sha256 of the metrics that a plan decides, to the last bit."""
    return hash_json({name: repr(value) for name, value in metrics.items() if not _MEASURED.match(name)})


def row_hashes(reader: Reader, run_id: str) -> dict[str, list[str]]:
    """Hashes of the questions that were tried, sorted, by phase."""
    columns = tables.trajectories.c
    counted = (columns.run_id == run_id, columns.phase != INTERRUPTED)
    query = select(columns.phase, columns.task_sha256).where(*counted).distinct()
    found: dict[str, list[str]] = defaultdict(list)
    for row in reader.fetch_all(query.order_by(columns.phase, columns.task_sha256)):
        if row.task_sha256 is not None:
            found[row.phase].append(row.task_sha256)
    return dict(found)
