"""A runs folder may be moved or copied: what the lineage says lies in it is found where the folder is now."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from rlf.apps.keep.archive import copy_run
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.types import CheckpointSaved

from .builders import run_record


def recorded(base: Path) -> None:
    """A run with a checkpoint in its own folder."""
    with open_store(base / "rlf.db") as store:
        start_run(store, run_record("r", folder=str(base / "r")))
        with Recorder(store, "r") as recorder:
            recorder(CheckpointSaved(2, str(base / "r/checkpoints/step-000002"), "c"))


def places(base: Path) -> list[str]:
    with open_store(base / "rlf.db") as store:
        reader = Reader(store)
        return [reader.get_run("r").record.folder, *(saved.path for saved in reader.checkpoints("r"))]


@pytest.mark.parametrize("relocate", [shutil.move, shutil.copytree])
def test_paths_of_a_moved_or_copied_runs_folder_are_in_the_new_place(relocate, tmp_path):
    recorded(tmp_path / "runs")
    relocate(tmp_path / "runs", tmp_path / "elsewhere")
    here = tmp_path / "elsewhere" / "r"
    assert places(tmp_path / "elsewhere") == [str(here), str(here / "checkpoints/step-000002")]


def test_a_path_that_was_recorded_from_another_folder_is_stored_from_the_lineage_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recorded(Path("runs"))
    rows = sqlite3.connect("runs/rlf.db").execute("SELECT folder, path FROM runs, checkpoints").fetchall()
    assert rows == [("r", "r/checkpoints/step-000002")]


def test_a_copied_run_keeps_the_places_of_its_files(tmp_path):
    recorded(tmp_path / "runs")
    (tmp_path / "archive").mkdir()
    with open_store(tmp_path / "runs/rlf.db") as source, open_store(tmp_path / "archive/rlf.db") as target:
        copy_run(source, target, "r")
    assert places(tmp_path / "archive") == places(tmp_path / "runs")
