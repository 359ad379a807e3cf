"""`rlf runs tag|note|rm`: what people add to runs, and taking runs away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunName, RunsFolder
from rlf.cli.completion import complete_run
from rlf.cli.envelope import print_envelope
from rlf.cli.lineage import open_reader
from rlf.core.errors import RlfError

if TYPE_CHECKING:
    from rlf.api.runs.removal import Leftover, Removed


@dataclass(frozen=True, slots=True)
class Tagged:
    """A run with all of its tags."""

    run_id: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Noted:
    """A run that has one more note."""

    run_id: str
    num_notes: int


@dataclass(frozen=True, slots=True)
class RemovedRuns:
    """The runs that were removed."""

    removed: tuple[Removed, ...]


@dataclass(frozen=True, slots=True)
class Thinned:
    """What was freed."""

    num_trajectories: int
    """That lost tokens, calls and scores."""
    num_contents: int
    """Dropped, since no row named them any more."""
    size_bytes: int
    """Of those contents, as stored."""
    leftovers: tuple[Leftover, ...]
    """Removals that a kill had cut off, finished or undone now."""


def tag_run(
    name: RunName,
    tags: Annotated[list[str], typer.Argument(metavar="TAG...", help="Tags to give, or to take with --remove.")],
    remove: Annotated[bool, typer.Option("--remove", help="Take the tags off.")] = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Give a run tags; `rlf runs list "'best' in tags"` finds it by them."""
    from rlf.lineage.marks import add_tags, remove_tags

    if any(not tag.strip() for tag in tags):
        raise RlfError("got an empty tag. Write a word, e.g. `rlf runs tag latest best`.")
    with open_reader(runs_folder) as reader:
        run_id = reader.get_run(name).record.id
        change = remove_tags if remove else add_tags
        change(reader.store, run_id, tuple(dict.fromkeys(tags)))
        done = Tagged(run_id, reader.tags().get(run_id, ()))
    if as_json:
        print_envelope("runs tag", done)
    else:
        print(f"{run_id}: {' '.join(done.tags) or 'no tags'}")


def note_run(
    name: RunName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The remark.")],
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Add a note to a run; `rlf runs show` prints it."""
    from rlf.lineage.marks import add_note

    with open_reader(runs_folder) as reader:
        run_id = reader.get_run(name).record.id
        add_note(reader.store, run_id, text)
        done = Noted(run_id, len(reader.notes(run_id)))
    if as_json:
        print_envelope("runs note", done)
    else:
        print(f"{run_id}: {done.num_notes} {'note' if done.num_notes == 1 else 'notes'}")


def remove_runs(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs to remove.", autocompletion=complete_run)],
    keep_files: Annotated[
        bool, typer.Option("--keep-files", help="Leave the run's folder with its checkpoints.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Remove stopped runs from the lineage, with their folders; `rlf runs gc` then frees the room."""
    from rlf.api.runs.removal import remove_with_folders

    with open_reader(runs_folder) as reader:
        runs = [reader.get_run(name) for name in names]
        what = ", ".join(f"{run.record.id} ({run.record.name})" for run in runs)
        if not yes and not typer.confirm(f"Remove {what}?", err=as_json):
            raise typer.Exit(1)
        removed = remove_with_folders(reader, runs, runs_folder, keep_files=keep_files)
    if as_json:
        print_envelope("runs rm", RemovedRuns(tuple(removed)))
        return
    for item in removed:
        print(f"removed {item.run_id}" + ("" if item.folder is None else f" and {item.folder}"))


def thin_runs(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN...]", help="Runs to thin.", autocompletion=complete_run)
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="RULE",
            help="Training trajectories that stay whole: `last:N` steps, `every:N` steps, `failed`, or `none`.",
        ),
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Free room: thin runs by rule, and drop contents that nothing names any more.

    Thinned trajectories lose tokens, calls and scores. Metrics, sums, evaluations, checkpoints and the rows of the
    trajectories stay, so that every report goes on working.
    """
    from rlf.api.runs.removal import finish_removals
    from rlf.lineage.upkeep import drop_unnamed_blobs, parse_keep, thin

    if bool(names) != bool(keep):
        raise RlfError(
            "runs are thinned by a rule, and a rule needs runs. Write e.g. `rlf runs gc RUN --keep last:5`, or "
            "`rlf runs gc` alone, which drops only what nothing names."
        )
    rules = parse_keep(keep or ())
    with open_reader(runs_folder) as reader:
        ids = [reader.get_run(name).record.id for name in names or ()]
        num_thinned = sum(thin(reader.store, run_id, rules) for run_id in ids)
        leftovers = finish_removals(reader, runs_folder)
        freed = drop_unnamed_blobs(reader.store)
    if as_json:
        print_envelope("runs gc", Thinned(num_thinned, freed.num_blobs, freed.size_bytes, tuple(leftovers)))
        return
    print(f"{num_thinned:,} trajectories thinned; {freed.num_blobs:,} contents dropped, {freed.size_bytes:,} bytes")
    if not freed.is_compact:
        print("The file keeps its size while a run is running: run `rlf runs gc` again after it.")
    for item in leftovers:
        print(f"{item.run_id}: " + ("its folder is back in its place" if item.restored else "its removal is finished"))
