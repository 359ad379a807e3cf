"""Tags and notes of runs, as commands and pages give them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlf.core.errors import RlfError
from rlf.lineage.reader import Reader
from rlf.lineage.upkeep import add_note, add_tags, remove_tags


@dataclass(frozen=True, slots=True)
class RunTags:
    """A run with all of its tags."""

    run_id: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunNote:
    """A run with its new note."""

    run_id: str
    num_notes: int


def tag(reader: Reader, name: str, tags: Sequence[str], *, remove: bool) -> RunTags:
    """Gives a run tags, or takes them off."""
    for word in tags:
        if not word.strip() or not word.isprintable():
            raise RlfError(f"got the tag {word[:80]!r}; expected a word. Write e.g. `rlf runs tag latest best`.")
    run_id = reader.get_run(name).record.id
    change = remove_tags if remove else add_tags
    change(reader.store, run_id, tuple(dict.fromkeys(tags)))
    return RunTags(run_id, reader.tags().get(run_id, ()))


def note(reader: Reader, name: str, text: str) -> RunNote:
    """Adds a note to a run."""
    run_id = reader.get_run(name).record.id
    add_note(reader.store, run_id, text)
    return RunNote(run_id, len(reader.notes(run_id)))
