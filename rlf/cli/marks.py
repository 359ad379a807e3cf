"""`rlf runs tag|note|rm`: tags, notes, and removal of runs."""

from __future__ import annotations

from typing import Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunName, RunNames, RunsFolder
from rlf.cli.completion import complete_run
from rlf.cli.envelope import print_result
from rlf.reports.sheets import counted


def tag_run(
    name: RunName,
    tags: Annotated[list[str], typer.Argument(metavar="TAG...", help="Tags to add; with --remove, to remove.")],
    remove: Annotated[bool, typer.Option("--remove", help="Remove the tags.")] = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Give a run tags; `rlf runs list "'best' in tags"` finds it by them."""
    from rlf.api.lineage import open_reader
    from rlf.api.runs.marks import tag

    with open_reader(runs_folder) as reader:
        done = tag(reader, name, tags, remove=remove)
    print_result("runs tag", done, as_json, f"{done.run_id}: {' '.join(done.tags) or 'no tags'}")


def note_run(
    name: RunName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The remark.")],
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Add a note to a run; `rlf runs show` prints it."""
    from rlf.api.lineage import open_reader
    from rlf.api.runs.marks import note

    with open_reader(runs_folder) as reader:
        done = note(reader, name, text)
    print_result("runs note", done, as_json, f"{done.run_id}: {counted(done.num_notes, 'note')}")


def remove_runs(
    names: RunNames,
    keep_files: Annotated[
        bool, typer.Option("--keep-files", help="Keep the run's folder with its checkpoints.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Remove stopped runs from the lineage, with their folders; `rlf runs gc` then frees the room."""
    from rlf.api.lineage import open_reader
    from rlf.api.runs.removal import remove_with_folders

    with open_reader(runs_folder) as reader:
        runs = [reader.get_run(name) for name in names]
        what = ", ".join(f"{run.record.id} ({run.record.name})" for run in runs)
        if not yes and not typer.confirm(f"Remove {what}?", err=as_json):
            raise typer.Exit(1)
        done = remove_with_folders(reader, runs, runs_folder, keep_files=keep_files)
    lines = [f"removed {item.run_id}" + ("" if item.folder is None else f" and {item.folder}") for item in done.removed]
    print_result("runs rm", done, as_json, "\n".join(lines))


def thin_runs(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN...]", help="Runs to thin.", autocompletion=complete_run)
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="RULE",
            help="Training trajectories to keep whole: `last:N` steps, `every:N` steps, `failed`, or `none`.",
        ),
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Free room: thin runs by rule, and drop contents that nothing names any more.

    Thinned trajectories lose tokens, calls and scores. Metrics, sums, evaluations, checkpoints and the rows of the
    trajectories stay, so that every report keeps working.
    """
    from rlf.api.lineage import open_reader
    from rlf.api.runs.marks import free_room

    with open_reader(runs_folder) as reader:
        done = free_room(reader, names or (), keep or ())
    contents = f"{done.num_contents:,} contents dropped, {done.size_bytes:,} bytes"
    lines = [f"{done.num_trajectories:,} trajectories thinned; {contents}"]
    if not done.is_compact:
        lines.append("The file keeps its size while a run is running: run `rlf runs gc` again after it.")
    print_result("runs gc", done, as_json, "\n".join(lines))
