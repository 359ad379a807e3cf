"""Removal of runs and freeing of room: what `rlf runs rm` and `rlf runs gc` do, and what an export leaves behind."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath

from sqlalchemy import Connection, delete, func, insert, select

from rlf.apps.keep.damage import cut_imports, read_named
from rlf.core.errors import RlfError
from rlf.core.files import run_folder
from rlf.lineage import tables
from rlf.lineage.chain import EXPORT, LinkKind, append_link, digest_placed
from rlf.lineage.lease import forget_lock, has_owner
from rlf.lineage.reader import Reader
from rlf.lineage.records import Export, Run
from rlf.lineage.store import Store
from rlf.lineage.upkeep import check_stopped, parse_keep, thin
from rlf.runs.place import remove_marked

_BATCH = 500
_OF_A_RUN = re.compile(r"\d{8}-\d{6}-[a-z0-9]{4}")


def free_room(reader: Reader, names: Sequence[str], keep: Sequence[str]) -> Thinning:
    """Thins runs by rules, and drops contents that nothing names."""
    if bool(names) != bool(keep):
        raise RlfError(
            "runs and a rule go together. Write e.g. `rlf runs gc RUN --keep last:5`, or "
            "`rlf runs gc` alone, which removes only contents that no run refers to."
        )
    rules = parse_keep(keep)
    ids = [reader.get_run(name).record.id for name in names]
    num_thinned = sum(thin(reader.store, run_id, rules) for run_id in ids)
    return replace(drop_unnamed_blobs(reader.store), num_trajectories=num_thinned)


@dataclass(frozen=True, slots=True)
class Removal:
    """A run that was removed from the lineage."""

    run_id: str
    name: str
    folder: Path | None
    """Its folder, which was deleted; None where it had none or was to keep it."""


@dataclass(frozen=True, slots=True)
class Removals:
    """The runs that were removed."""

    removed: tuple[Removal, ...]


def remove_with_folders(reader: Reader, runs: Sequence[Run], runs_folder: Path, *, keep_files: bool) -> Removals:
    """Removes stopped runs from the lineage, and their folders.

    Raises:
        RlfError: a run is still running; or an id or a link leads out of the runs folder, and nothing was removed.
    """
    removed = []
    for run in runs:
        folder = None if keep_files else run_folder(runs_folder, run.record.id)
        there = folder if folder is not None and folder.is_dir() else None
        removed.append(Removal(run.record.id, run.record.name, there))
    if keep_files:  # no mark: who finishes a marked removal deletes the folder too
        for item in removed:
            remove_run(reader.store, item.run_id)
    else:
        remove_marked(reader.store, {item.run_id: item.folder for item in removed})
    return Removals(tuple(removed))


def stray_folders(runs_folder: Path, run_ids: Collection[str]) -> list[Path]:
    """Folders with the name of a run that the lineage does not have: of another database, or kept by a removal."""
    if not runs_folder.is_dir():  # a lineage elsewhere, by RLF_DB
        return []
    folders = sorted(path for path in runs_folder.iterdir() if path.is_dir() and not path.is_symlink())
    return [path for path in folders if _OF_A_RUN.fullmatch(path.name) and path.name not in run_ids]


@dataclass(frozen=True, slots=True)
class Thinning:
    """Room that was freed."""

    num_trajectories: int
    """That lost tokens, calls and scores."""
    num_contents: int
    """Dropped, since no row named them any more."""
    size_bytes: int
    """Of those contents, as stored."""
    is_compact: bool = field(metadata={"json": None})
    """Whether the file is smaller too: it is not while a run is running."""


def drop_unnamed_blobs(store: Store) -> Thinning:
    """Deletes incomplete imports and the contents that no row names any more.

    The room goes back to the disk when nothing runs: to copy the file would keep a run's writer waiting for long.
    """
    with store.read() as connection:
        cut_off = cut_imports(store, connection)
        some = bool(cut_off) or bool(_measure_unnamed(connection))
    unnamed: dict[str, int] = {}
    if some:
        with store.write() as connection:
            connection.execute(delete(tables.runs).where(tables.runs.c.id.in_(cut_off)))
            unnamed = _measure_unnamed(connection)
            names = list(unnamed)
            for start in range(0, len(names), _BATCH):
                batch = names[start : start + _BATCH]
                connection.execute(delete(tables.blobs).where(tables.blobs.c.sha256.in_(batch)))
    if cut_off:
        store.drop_index()
    with store.read() as connection:
        is_used = any(has_owner(row, store.lease_folder) for row in connection.execute(select(tables.runs)))
    if not is_used:
        store.compact()
    return Thinning(0, len(unnamed), sum(unnamed.values()), is_compact=not is_used)


def _measure_unnamed(connection: Connection) -> dict[str, int]:
    """Sizes of the contents that no row refers to, by name."""
    named = read_named(connection)
    sizes = select(tables.blobs.c.sha256, func.length(tables.blobs.c.data).label("size"))
    return {row.sha256: row.size for row in connection.execute(sizes) if row.sha256 not in named}


def add_export(store: Store, run_id: str, export: Export) -> None:
    """Records an exported model; replaces a record with the same path."""
    table, path = tables.exports, store.redactor.text(store.relative(export.path))
    with store.write() as connection:
        connection.execute(delete(table).where(table.c.run_id == run_id, table.c.path == path))
        row = asdict(export) | {"path": path}
        connection.execute(insert(table), {"run_id": run_id, **row})
        place = {"step": export.step, "name": PurePosixPath(path).name}
        append_link(connection, run_id, LinkKind.EXPORTED, place, digest_placed(EXPORT, row))


def remove_run(store: Store, run_id: str) -> None:
    """Deletes a run and all that belongs to it; other runs keep it as the name of their parent.

    Raises:
        RlfError: no such run, or it is still running.
    """
    with store.write() as connection:
        check_stopped(store, connection, run_id)
        connection.execute(delete(tables.runs).where(tables.runs.c.id == run_id))
    forget_lock(store.lease_folder, run_id)
    store.drop_index()
