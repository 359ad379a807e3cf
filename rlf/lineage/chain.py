"""The chain of a run: a link for each write of its lineage, made in the transaction that writes the rows.

A link has digests of the rows that were written with it, and a hash of these and of the link before it. A row that is
changed, added or deleted later does not match its link, and a link that is does not match the next one. The last one,
the head, stands for all before it: an edit shows to anyone who kept it. `rlf runs verify` reads the chain. Tags, notes
and what requests cost that belong to no trajectory are in no link.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from sqlalchemy import Boolean, Connection, Float, Table, insert, select

from rlf.lineage import tables

SIZE = 16
"""Bytes of a digest: half of a sha256, which nobody finds a second text for."""
NUM_PARTS = 4
"""Digests of a trajectory: its row with its advantage; its payload; its scores; its calls and parse failures."""


class LinkKind(StrEnum):
    """What was written, and what the digests of the link are of."""

    OLDER = "older"
    """The run was written before there were chains: of nothing."""
    START = "start"
    """The run's row, part by part; its files. The place names the parent's head."""
    STEP = "step"
    """Metrics; sums; each trajectory's parts, by position."""
    EVALUATION = "evaluation"
    """The same."""
    INTERRUPTED = "interrupted"
    """Each trajectory's parts, from position `first` on."""
    CHECKPOINT = "checkpoint"
    """Its row. `kept` has the steps whose checkpoints stay; None: all do."""
    NOTICE = "notice"
    """Its row."""
    END = "end"
    """How the run ended: the columns of its row that say so."""
    RESUMED = "resumed"
    """The notice of how it had ended; the accepted changes that stay. What is of later steps than `step` went."""
    CHANGED = "changed"
    """All accepted changes."""
    EXPORTED = "exported"
    """Its row. The place has the `name` of the folder."""
    FORGOTTEN = "forgotten"
    """Nothing: checkpoints of the `steps` went."""
    THINNED = "thinned"
    """Nothing: of the trajectories in `steps`, positions by step, all but the row went."""
    SALVAGED = "salvaged"
    """Nothing: what of the rows is missing was lost before."""


Values = tuple[Any, ...]
"""Of a row, by its columns: read and written in half the time of what has names."""


class Link(NamedTuple):
    """One link as it is stored."""

    number: int
    """Counts from 1."""
    kind: str
    place: str
    """JSON: where in the run, and what the kind describes."""
    digests: bytes
    sha256: str


def link_hash(before: str, number: int, kind: str, place: str, digests: bytes) -> str:
    """sha256 of a link: of its content and of the hash of the one before, empty for the first."""
    return sha256(json.dumps([before, number, kind, place]).encode() + digests).hexdigest()


def append_link(connection: Connection, run_id: str, kind: LinkKind, place: Mapping[str, Any], *digests: bytes) -> None:
    """Adds a link for rows that are written in the same transaction."""
    if connection.dialect.name != "sqlite":  # whose writers wait for each other from the beginning of a transaction
        connection.execute(select(tables.runs.c.id).where(tables.runs.c.id == run_id).with_for_update())
    head = read_link(connection, run_id)
    number, before = (1, "") if head is None else (head.number + 1, head.sha256)
    text, data = json.dumps(place, sort_keys=True), b"".join(digests)
    link = Link(number, kind, text, data, link_hash(before, number, kind, text, data))
    connection.execute(insert(tables.links), {"run_id": run_id, **link._asdict()})


def read_link(connection: Connection, run_id: str, sha256: str | None = None) -> Link | None:
    """The last link of a run, or the one with a hash; None where there is none."""
    columns = [column for column in tables.links.c if column.name != "run_id"]
    newest = select(*columns).where(tables.links.c.run_id == run_id).order_by(tables.links.c.number.desc()).limit(1)
    row = connection.execute(newest if sha256 is None else newest.where(tables.links.c.sha256 == sha256)).one_or_none()
    return None if row is None else Link(*row)


class RowDigest:
    """Digests rows of a table by some of its columns: equal for what is written and what any database gives back."""

    def __init__(self, table: Table, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        kinds = [table.c[name].type for name in columns]
        self._floats = tuple(at for at, kind in enumerate(kinds) if isinstance(kind, Float))
        self._flags = tuple(at for at, kind in enumerate(kinds) if isinstance(kind, Boolean))

    def plain(self, row: Iterable[Any]) -> Values:
        """A row of what databases give back: of exact types, whatever it was written from."""
        values: list[Any] = [str(value) if isinstance(value, str) else value for value in row]
        for at in self._floats:
            values[at] = plain_number(values[at])
        for at in self._flags:
            values[at] = None if values[at] is None else int(values[at])
        return tuple(values)

    def __call__(self, *rows: Iterable[Any]) -> bytes:
        return digest_plain([self.plain(row) for row in rows])

    def of(self, *rows: Mapping[str, Any]) -> bytes:
        """The digest of rows by name."""
        return self(*([row[name] for name in self.columns] for row in rows))


def plain_number(value: float | None) -> float | None:
    """What a column of floats gives back: no NaN, no sign of a zero, no whole number."""
    return None if value is None or value != value else value + 0.0


def digest(data: bytes) -> bytes:
    """Of bytes."""
    return sha256(data).digest()[:SIZE]


def digest_plain(rows: list[Values]) -> bytes:
    """Of rows whose values are of exact types. In this version of its format marshal names types and lengths, knows no
    references, and is the same in every Python; as JSON rows cost fifteen times as much."""
    return digest(marshal.dumps(rows, 2))


# A column that a later version adds is to be left out here, and to come with a digest of its own.
def _all_but(table: Table, *names: str) -> RowDigest:
    return RowDigest(table, [column.name for column in table.c if column.name not in names])


RUN = {
    "name, start, engine or seed": RowDigest(tables.runs, ("id", "name", "started", "engine", "seed")),
    "parent": RowDigest(tables.runs, ("parent_id", "parent_kind", "parent_step")),
    "plan": RowDigest(tables.runs, ("plan",)),
    "plan's hash": RowDigest(tables.runs, ("plan_hash",)),
    "code, packages, machine or command": RowDigest(
        tables.runs, ("code_version", "host", "packages", "command", "patch_sha256", "home", "cwd")
    ),
}
"""What of a run's row never changes, by name: all but the folder, which is another one after an import, and its end."""
END = RowDigest(tables.runs, ("status", "finished", "error", "last_step"))
MEASURED = RowDigest(tables.steps, ("metrics", "finished"))
"""Of a step or an evaluation."""
FILES, CHANGES, NOTICE, SUMS, TOTALS = (
    _all_but(table, "id", "run_id", "phase", *place)
    for table, place in (
        (tables.files, ()),
        (tables.changes, ()),
        (tables.events, ()),
        (tables.collections, ("step",)),
        (tables.tool_totals, ("step",)),
    )
)
COSTS = _all_but(tables.costs, "run_id")
CHECKPOINT, EXPORT = _all_but(tables.checkpoints, "run_id", "dropped"), _all_but(tables.exports, "run_id")
HEAD = _all_but(tables.trajectories, "id", "run_id", "phase", "step", "k", "advantage").columns
"""What is known of a trajectory's row before its place."""
TRAJECTORY = RowDigest(tables.trajectories, ("k", "advantage", *HEAD))
CALL, SCORE, FAILURE = (
    _all_but(table, "trajectory_ref") for table in (tables.tool_calls, tables.scores, tables.parse_failures)
)


def digest_sums(sums: Sequence[Mapping[str, Any]], totals: Sequence[Mapping[str, Any]]) -> bytes:
    """Of the sums of a step or an evaluation."""
    return digest(SUMS.of(*sums) + TOTALS.of(*sorted(totals, key=lambda row: (row["name"], row["outcome"]))))


def digest_parts(payload: bytes, scores: list[Values], calls: list[Values], failures: list[Values]) -> bytes:
    """Of all that hangs on a trajectory: payload; scores; calls and parse failures. Plain rows by their columns."""
    return digest(payload) + digest_plain(scores) + digest(marshal.dumps([calls, failures], 2))


def digest_placed(kind: RowDigest, row: Mapping[str, Any]) -> bytes:
    """Of a checkpoint or an export, whose path has another beginning after an import."""
    return kind.of({**row, "path": PurePosixPath(row["path"]).name})


def digest_changes(connection: Connection, run_id: str) -> bytes:
    """Of the accepted changes of a run as they are."""
    columns = [tables.changes.c[name] for name in CHANGES.columns]
    rows = connection.execute(select(*columns).where(tables.changes.c.run_id == run_id))
    return CHANGES(*sorted(map(tuple, rows), key=lambda row: row[:3]))


def digest_costs(connection: Connection, run_id: str) -> str:
    """Of the costs of a run's trajectories as they are, in hex."""
    table = tables.costs
    columns = [table.c[name] for name in COSTS.columns]
    rows = connection.execute(select(*columns).where(table.c.run_id == run_id, table.c.kind.in_(("tool", "judge"))))
    return COSTS(*sorted(map(tuple, rows))).hex()
