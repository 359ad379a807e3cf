"""Tags and notes on recorded runs, and removal of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rlf.core.errors import RlfError
from rlf.lineage.marks import add_note, add_tags, remove_tags
from rlf.lineage.reader import Reader
from rlf.lineage.upkeep import drop_unnamed_blobs, parse_keep, thin


@dataclass(frozen=True, slots=True)
class Tagged:
    """A run with all of its tags."""

    run_id: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Noted:
    """A run with its new note."""

    run_id: str
    num_notes: int


@dataclass(frozen=True, slots=True)
class Thinned:
    """Room that was freed."""

    num_trajectories: int
    """That lost tokens, calls and scores."""
    num_contents: int
    """Dropped, since no row named them any more."""
    size_bytes: int
    """Of those contents, as stored."""
    is_compact: bool = field(metadata={"json": None})
    """Whether the file is smaller too: it is not while a run is running."""


def tag(reader: Reader, name: str, tags: Sequence[str], *, remove: bool) -> Tagged:
    """Gives a run tags, or takes them off."""
    for word in tags:
        if not word.strip() or not word.isprintable():
            raise RlfError(f"got the tag {word[:80]!r}; expected a word. Write e.g. `rlf runs tag latest best`.")
    run_id = reader.get_run(name).record.id
    change = remove_tags if remove else add_tags
    change(reader.store, run_id, tuple(dict.fromkeys(tags)))
    return Tagged(run_id, reader.tags().get(run_id, ()))


def note(reader: Reader, name: str, text: str) -> Noted:
    """Adds a note to a run."""
    run_id = reader.get_run(name).record.id
    add_note(reader.store, run_id, text)
    return Noted(run_id, len(reader.notes(run_id)))


def free_room(reader: Reader, names: Sequence[str], keep: Sequence[str]) -> Thinned:
    """Thins runs by rules, and drops contents that nothing names."""
    if bool(names) != bool(keep):
        raise RlfError(
            "runs and a rule go together. Write e.g. `rlf runs gc RUN --keep last:5`, or "
            "`rlf runs gc` alone, which removes only contents that no run refers to."
        )
    rules = parse_keep(keep)
    ids = [reader.get_run(name).record.id for name in names]
    num_thinned = sum(thin(reader.store, run_id, rules) for run_id in ids)
    freed = drop_unnamed_blobs(reader.store)
    return Thinned(num_thinned, freed.num_blobs, freed.size_bytes, freed.is_compact)
