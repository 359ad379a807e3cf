"""Whether the rows of a run are those that the links of its chain were made for."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, text

from rlf.apps.keep.damage import Progress
from rlf.lineage import chain, tables
from rlf.lineage.chain import SIZE, Link, LinkKind, RowDigest, Values, link_hash
from rlf.lineage.records import INTERRUPTED, TRAIN
from rlf.types import RunStatus

_PARTS = (
    "reward, success, advantage, gold, answer or counts",
    "tokens, mask, log-probabilities or texts",
    "scores",
    "tool calls or parse failures",
)
"""What the digests of a trajectory are of."""
_WIDTH = chain.NUM_PARTS * SIZE
_HANGING = {tables.scores: chain.SCORE, tables.tool_calls: chain.CALL, tables.parse_failures: chain.FAILURE}

Place = tuple[str, int]
"""Phase and step."""


class Collected(NamedTuple):
    """A trajectory's rows as the database has them, each by the columns of its `RowDigest`."""

    row: Values
    payload: bytes | None
    """None where it was thinned."""
    scores: Sequence[Values]


Look = Callable[[Place, Sequence[Collected]], Iterator[str]]
"""Finds faults among the trajectories of a step or an evaluation, in words without the run's id."""


@dataclass(frozen=True, slots=True)
class ChainFindings:
    """What the chain of a run says of its rows."""

    head: Link | None
    """The last link."""
    faults: tuple[str, ...]
    remarks: tuple[str, ...]
    num_unproven: int
    """Trajectories that no link matches in full."""


@dataclass(slots=True)
class _Written:
    """The rows that a run has by its links."""

    source: bytes | None = None
    end: bytes | None = None
    last_step: int = 0
    measured: dict[Place, bytes] = field(default_factory=dict)
    sums: dict[Place, bytes] = field(default_factory=dict)
    parts: dict[Place, list[bytes]] = field(default_factory=dict)
    thinned: set[tuple[str, int, int]] = field(default_factory=set)
    checkpoints: dict[int, bytes] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    events: list[bytes] = field(default_factory=list)
    exports: list[tuple[int, str, bytes]] = field(default_factory=list)
    changes: bytes = field(default_factory=chain.CHANGES)
    costs: str | None = None
    parent: tuple[str, str] | None = None
    """Id and head of the run that it was made from."""
    is_older: bool = False

    def add(self, link: Link) -> None:
        """Follows one link."""
        place, digests = json.loads(link.place), link.digests
        self.costs = place.get("costs", self.costs)
        match link.kind:
            case LinkKind.OLDER:
                self.is_older = True
            case LinkKind.START:
                self.source = digests
                self.parent = (place["parent"], place["head"]) if "parent" in place else None
            case LinkKind.STEP | LinkKind.EVALUATION:
                self._add_collected((place["phase"], place["step"]), digests, link.kind)
            case LinkKind.INTERRUPTED:
                parts = self.parts.setdefault((INTERRUPTED, place["step"]), [])
                parts[place["first"] :] = _split(digests)
            case LinkKind.CHECKPOINT:
                self.checkpoints[place["step"]] = digests
                self.dropped.discard(place["step"])
                if place["kept"] is not None:
                    self.dropped |= self.checkpoints.keys() - set(place["kept"])
            case LinkKind.NOTICE:
                self.events.append(digests)
            case LinkKind.END:
                self.end = digests
            case LinkKind.RESUMED:
                self._resume(place["step"], digests)
            case LinkKind.CHANGED:
                self.changes = digests
            case LinkKind.EXPORTED:
                self.exports = [item for item in self.exports if item[1] != place["name"]]
                self.exports.append((place["step"], place["name"], digests))
            case LinkKind.FORGOTTEN:
                for step in place["steps"]:
                    self.checkpoints.pop(step, None)
            case LinkKind.THINNED:
                self.thinned |= {(place["phase"], int(step), k) for step, ks in place["steps"].items() for k in ks}
            case LinkKind.SALVAGED:
                pass  # what it says is of the findings

    def _add_collected(self, place: Place, digests: bytes, kind: str) -> None:
        self.measured[place], self.sums[place] = digests[:SIZE], digests[SIZE : 2 * SIZE]
        self.parts[place] = _split(digests[2 * SIZE :])
        self.thinned = {item for item in self.thinned if item[:2] != place}
        if kind == LinkKind.STEP:
            self.last_step = place[1]

    def _resume(self, step: int, digests: bytes) -> None:
        self.end, self.last_step = None, step
        self.events.append(digests[:SIZE])
        self.changes = digests[SIZE:]
        places = [place for place in self.parts if place[1] > step and place[0] != INTERRUPTED]
        for place in places:  # each has all three
            del self.measured[place], self.sums[place], self.parts[place]
        self.checkpoints = {saved: each for saved, each in self.checkpoints.items() if saved <= step}
        self.exports = [item for item in self.exports if item[0] <= step]


def _split(digests: bytes) -> list[bytes]:
    return [digests[at : at + _WIDTH] for at in range(0, len(digests), _WIDTH)]


def check_chain(connection: Connection, run_id: str, look: Look, progress: Progress = lambda _: None) -> ChainFindings:
    """Follows the chain of a run and compares its rows with it, all of them once.

    Args:
        look: finds more in the trajectories of each step and evaluation, which are read anyway.
    """
    links = [Link(*row) for row in _fetch(connection, _LINKS, run=run_id)]
    written, broken = _Written(), [f"its chain is broken: {words}" for words in _broken_links(links)]
    if not broken:
        for link in links:
            written.add(link)
    comparison = _Comparison(connection, run_id, written, look, progress)
    found = [*broken, *comparison.find(compares=not broken)]
    is_salvaged = any(link.kind == LinkKind.SALVAGED for link in links)
    lost = [words for words in found if is_salvaged and (words.endswith(_IS_MISSING) or _OF_SUMS in words)]
    remarks = [f"run {run_id}: {_WHAT_IS_OLDER}"] if written.is_older else []
    remarks += [f"run {run_id}: salvaged: {len(lost)} parts of it are missing"] if lost else []
    faults = tuple(f"run {run_id}: {words}" for words in found if words not in lost)
    return ChainFindings(links[-1] if links else None, faults, tuple(remarks), comparison.num_unproven)


_LINKS = "SELECT number, kind, place, digests, sha256 FROM links WHERE run_id = :run ORDER BY number"
_IS_MISSING = "is missing"
_OF_SUMS = ": its row of sums "
_CHANGED = "changed after it was written"
_ADDED = "was added: no link of the chain has it"
_WHAT_IS_OLDER = (
    "written before chains: edits of what it held when this lineage was first opened by an rlf that has them are not "
    "seen. That says nothing against it"
)


def _broken_links(links: Sequence[Link]) -> Iterator[str]:
    if not links or links[0].kind not in (LinkKind.START, LinkKind.OLDER):
        yield f"its beginning {_IS_MISSING}"
    before = ""
    for number, link in enumerate(links, 1):
        if link.number != number:
            yield f"link {number} {_IS_MISSING}"
            return
        if link.sha256 != link_hash(before, *link[:-1]):
            yield f"link {number} ({link.kind} {link.place}) was {_CHANGED.removesuffix(' after it was written')}"
            return
        before = link.sha256


def _iterate(connection: Connection, query: str, **values: Any) -> Iterator[Values]:
    """Rows of a query, past SQLAlchemy where that is SQLite's: its rows cost more than reading."""
    driver = connection.connection.dbapi_connection
    if isinstance(driver, sqlite3.Connection):
        return iter(driver.execute(query, values))
    return map(tuple, connection.execute(text(query), values).all())


def _fetch(connection: Connection, query: str, **values: Any) -> list[Values]:
    return list(_iterate(connection, query, **values))


class _Hanging:
    """Rows that hang on trajectories, in the order of these: a step's calls never lie in memory together."""

    def __init__(self, rows: Iterator[Values]) -> None:
        self._rows = rows
        self._next = next(rows, None)

    def take(self, ref: int) -> list[Values]:
        """The rows of a trajectory, without its number. To be called for numbers that rise."""
        found = []
        while self._next is not None and self._next[0] <= ref:
            if self._next[0] == ref:
                found.append(self._next[1:])
            self._next = next(self._rows, None)
        return found


def _names(digest: RowDigest) -> str:
    return ", ".join(f'"{name}"' for name in digest.columns)


class _Comparison:
    """The rows of one run beside what its chain says."""

    def __init__(self, connection: Connection, run_id: str, written: _Written, look: Look, progress: Progress) -> None:
        self._connection = connection
        self._run_id = run_id
        self._written = written
        self._look = look
        self._progress = progress
        self.num_unproven = 0

    def find(self, *, compares: bool) -> Iterator[str]:
        """Faults in words. Without a whole chain only what the rows say of each other."""
        if compares:
            yield from self._check_source()
            yield from self._check_end()
            yield from self._check_places()
            yield from self._check_events()
            yield from self._check_checkpoints()
            yield from self._check_exports()
            yield from self._check_rest()
        places = [(str(phase), int(step)) for phase, step in self._rows(_PLACES)]
        for place in dict.fromkeys([*places, *(self._written.parts if compares else ())]):
            yield from self._check_trajectories(place, compares=compares)

    def _rows(self, query: str, **values: Any) -> list[Values]:
        return _fetch(self._connection, query, run=self._run_id, **values)

    def _rows_of(self, table: Table, digest: RowDigest, first: str = "", order: str = "1") -> list[Values]:
        return self._rows(f'SELECT {first}{_names(digest)} FROM "{table.name}" WHERE run_id = :run ORDER BY {order}')

    def _check_source(self) -> Iterator[str]:
        if self._written.source is None:
            return
        digests = []
        for name, part in chain.RUN.items():
            (row,) = self._rows(f"SELECT {_names(part)} FROM runs WHERE id = :run")
            digests.append((f"its {name}", part(row)))
        files = self._rows_of(tables.files, chain.FILES, order="role, path")
        digests.append(("the list of its files", chain.FILES(*sorted(files, key=lambda row: (row[0], row[1])))))
        for at, (name, found) in enumerate(digests):
            if found != self._written.source[at * SIZE : (at + 1) * SIZE]:
                yield f"{name} {_CHANGED}"
        if self._written.parent is not None:
            parent, head = self._written.parent
            known = _fetch(self._connection, "SELECT sha256 FROM links WHERE run_id = :run", run=parent)
            if known and (head,) not in [tuple(row) for row in known]:
                yield f"its parent {parent} is another one than it was made from: link {head[:12]} is not in its chain"

    def _check_end(self) -> Iterator[str]:
        (row,) = self._rows(f"SELECT {_names(chain.END)} FROM runs WHERE id = :run")
        running = (RunStatus.RUNNING, None, None, self._written.last_step)
        is_right = chain.END(row) == self._written.end if self._written.end else tuple(row) == running
        if not is_right and not (self._written.is_older and self._written.end is None):
            yield f"its status, end, error or last step {_CHANGED}: {row[0]} at step {row[3]}"

    def _check_places(self) -> Iterator[str]:
        """Metrics and sums of steps and evaluations."""
        found = {
            (TRAIN, row[0]): chain.MEASURED(row[1:]) for row in self._rows_of(tables.steps, chain.MEASURED, "step, ")
        }
        rows = self._rows_of(tables.evaluations, chain.MEASURED, "mode, step, ")
        found |= {(row[0], row[1]): chain.MEASURED(row[2:]) for row in rows}
        yield from self._compare(
            self._written.measured, found, lambda place: f"{_show_place(place)}: its row of metrics"
        )
        totals = defaultdict[Place, list[dict[str, Any]]](list)
        for row in self._rows_of(tables.tool_totals, chain.TOTALS, "phase, step, "):
            totals[row[0], row[1]].append(dict(zip(chain.TOTALS.columns, row[2:], strict=True)))
        sums = {
            (row[0], row[1]): dict(zip(chain.SUMS.columns, row[2:], strict=True))
            for row in self._rows_of(tables.collections, chain.SUMS, "phase, step, ")
        }
        digests = {place: chain.digest_sums([row], totals.pop(place, [])) for place, row in sums.items()}
        digests |= {place: chain.digest_sums((), rows) for place, rows in totals.items()}
        empty = chain.digest_sums((), ())
        filled = {place: each for place, each in self._written.sums.items() if each != empty}
        yield from self._compare(filled, digests, lambda place: f"{_show_place(place)}{_OF_SUMS.rstrip()}")

    def _compare(
        self, written: Mapping[Any, bytes], found: Mapping[Any, bytes], show: Callable[[Any], str]
    ) -> Iterator[str]:
        for key in sorted(written.keys() | found.keys()):
            if key not in found:
                yield f"{show(key)} {_IS_MISSING}"
            elif key not in written and not self._written.is_older:
                yield f"{show(key)} {_ADDED}"
            elif key in written and written[key] != found[key]:
                yield f"{show(key)} {_CHANGED}"

    def _check_events(self) -> Iterator[str]:
        rows = self._rows_of(tables.events, chain.NOTICE, order="id")
        found, written = [chain.NOTICE(row) for row in rows], self._written.events
        if self._written.is_older:
            found = found[max(0, len(found) - len(written)) :]
        if len(found) == len(written):
            for number, (one, other) in enumerate(zip(found, written, strict=True), 1):
                if one != other:
                    yield f"event {number} {_CHANGED}: {rows[number - 1][2][:60]!r}"
            return
        yield from (f"event {number} {_IS_MISSING}" for number, each in enumerate(written, 1) if each not in found)
        for row, each in zip(rows, found, strict=False):
            if each not in written:
                yield f"an event {_ADDED}: {row[2][:60]!r}"

    def _check_checkpoints(self) -> Iterator[str]:
        rows = self._rows_of(tables.checkpoints, chain.CHECKPOINT, "dropped, ")
        named = [(row[0], dict(zip(chain.CHECKPOINT.columns, row[1:], strict=True))) for row in rows]
        found = {row["step"]: chain.digest_placed(chain.CHECKPOINT, row) for _, row in named}
        yield from self._compare(self._written.checkpoints, found, lambda step: f"the checkpoint of step {step}")
        for dropped, row in named:
            step = row["step"]
            if step in self._written.checkpoints and (dropped is not None) != (step in self._written.dropped):
                yield f"the checkpoint of step {step}: whether it is kept {_CHANGED}"

    def _check_exports(self) -> Iterator[str]:
        rows = self._rows_of(tables.exports, chain.EXPORT)
        named = [dict(zip(chain.EXPORT.columns, row, strict=True)) for row in rows]
        found = {chain.digest_placed(chain.EXPORT, row): row for row in named}
        written = {each: name for _, name, each in self._written.exports}
        for each, name in written.items():
            if each not in found:
                yield f"the export {name} {_IS_MISSING}"
        for each, row in found.items():
            if each not in written and not self._written.is_older:
                yield f"the export {row['path']} {_ADDED}"

    def _check_rest(self) -> Iterator[str]:
        if chain.digest_changes(self._connection, self._run_id) != self._written.changes and not self._written.is_older:
            yield f"the list of accepted changes {_CHANGED}"
        costs = chain.digest_costs(self._connection, self._run_id)
        expected = chain.COSTS().hex() if self._written.costs is None else self._written.costs
        if costs != expected and not (self._written.is_older and self._written.costs is None):
            yield f"the costs of its tools and judges {_CHANGED}"

    def _check_trajectories(self, place: Place, *, compares: bool) -> Iterator[str]:
        self._progress(f"run {self._run_id}, {_show_place(place)}")
        collected, digests = self._read_trajectories(place)
        if compares:
            yield from self._compare_trajectories(place, collected, digests)
        else:
            self.num_unproven += len(collected)
        yield from (f"{_show_place(place)}: {words}" for words in self._look(place, collected))

    def _compare_trajectories(
        self, place: Place, collected: Sequence[Collected], digests: Sequence[bytes]
    ) -> Iterator[str]:
        if place not in self._written.parts and self._written.is_older:
            self.num_unproven += len(collected)
            return
        written = dict(enumerate(self._written.parts.get(place, [])))
        found = {one.row[0]: (one, parts) for one, parts in zip(collected, digests, strict=True)}
        for k in sorted(written.keys() | found.keys()):
            where = f"{_show_place(place)}: trajectory {k}"
            if k not in found:
                yield f"{where} {_IS_MISSING}"
            elif k not in written:
                self.num_unproven += 1
                yield f"{where} {_ADDED}"
            else:
                one, parts = found[k]
                is_thinned = (*place, k) in self._written.thinned
                expected = written[k][:SIZE] + _THINNED if is_thinned else written[k]
                if parts != expected:
                    self.num_unproven += 1
                    yield from (f"{where} {words}" for words in _name_parts(one, expected, parts))

    def _read_trajectories(self, place: Place) -> tuple[list[Collected], list[bytes]]:
        """The trajectories of a step or an evaluation, with the digests of each."""
        heads = sorted(self._rows(_HEADS, phase=place[0], step=place[1]))
        # By a range of numbers, which those of a step are: a query for each of them would cost more than all rows.
        there = {"first": heads[0][0], "last": heads[-1][0]} if heads else {"first": 0, "last": -1}
        queries = map(_hanging, (tables.payloads, *_HANGING))
        parts = [_Hanging(_iterate(self._connection, query, **there)) for query in queries]
        found = []
        for head in heads:
            row, (payload, *rows) = head[1:], [part.take(head[0]) for part in parts]
            if self._connection.dialect.name != "sqlite":  # which gives exact types anyway
                row = chain.TRAJECTORY.plain(row)
                rows = [list(map(kind.plain, each)) for kind, each in zip(_HANGING.values(), rows, strict=True)]
            data = bytes(payload[0][0]) if payload else None
            digests = chain.digest_plain([row]) + chain.digest_parts(data or b"", *rows)
            found.append((Collected(row, data, rows[0]), digests))
        found.sort(key=lambda one: one[0].row[0])
        return [one for one, _ in found], [digests for _, digests in found]


_HERE = "run_id = :run AND phase = :phase AND step = :step"
_HEADS = f"SELECT id, {_names(chain.TRAJECTORY)} FROM trajectories WHERE {_HERE} ORDER BY k"
_PLACES = "SELECT DISTINCT phase, step FROM trajectories WHERE run_id = :run"
_THINNED = chain.digest_parts(b"", [], [], [])


def _name_parts(one: Collected, expected: bytes, found: bytes) -> Iterator[str]:
    """What of a trajectory is not as it was written."""
    wrong = [
        name for at, name in enumerate(_PARTS) if expected[at * SIZE : (at + 1) * SIZE] != found[at * SIZE :][:SIZE]
    ]
    if one.payload is None and expected[SIZE:] != _THINNED:
        yield f"({one.row[2]}): what hangs on it {_IS_MISSING}"
        wrong = [name for name in wrong if name == _PARTS[0]]
    yield from (f"({one.row[2]}): its {name} changed after they were written" for name in wrong)


def _hanging(table: Table) -> str:
    names, key = (
        ", ".join(f'"{column.name}"' for column in table.c),
        ", ".join(column.name for column in table.primary_key),
    )
    return f'SELECT {names} FROM "{table.name}" WHERE trajectory_ref BETWEEN :first AND :last ORDER BY {key}'


def _show_place(place: Place) -> str:
    phase, step = place
    return f"step {step}" if phase == TRAIN else f"{phase} step {step}"
