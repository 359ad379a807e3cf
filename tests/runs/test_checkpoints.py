"""Every kept checkpoint is read; a run goes back past damaged ones only where that was asked for."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from rlf.apps.keep.verification import damaged_checkpoints
from rlf.core import RlfError, hash_path
from rlf.engines.saved_model import find_file_damage
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.runs.exports import choose_model
from rlf.runs.place import open_lineage
from rlf.runs.restore import choose_start
from rlf.types import CheckpointSaved

from ..lineage.builders import run_record


def checkpoint(folder: Path, step: int, kept: tuple[int, ...]) -> CheckpointSaved:
    path = folder / "r" / "checkpoints" / f"step-{step:06d}"
    path.mkdir(parents=True)
    (path / "weights.safetensors").write_bytes(bytes([step] * 100))
    (path / "manifest.json").write_text(json.dumps({"weights.safetensors": hash_path(path / "weights.safetensors")}))
    return CheckpointSaved(step, str(path), hash_path(path / "manifest.json"), kept)


@pytest.fixture
def runs(tmp_path):
    """A run that keeps its checkpoints of steps 4, 6 and 8; that of step 2 was dropped by rule."""
    plan = {"spec": {"engine": {"kind": "local"}, "model": {"path": "builtin:tiny"}, "train": {"steps": 8}}}
    with open_lineage(tmp_path, create=True) as store, Recorder(store, "r") as recorder:
        start_run(store, run_record("r", plan=plan, folder=str(tmp_path / "r")))
        for step, kept in ((2, (2,)), (4, (4,)), (6, (4, 6)), (8, (4, 6, 8))):
            recorder(checkpoint(tmp_path, step, kept))
    return tmp_path


def weights(runs: Path, step: int) -> Path:
    return runs / "r" / "checkpoints" / f"step-{step:06d}" / "weights.safetensors"


def start(runs: Path, wanted: int | None = None):
    with open_lineage(runs) as store:
        reader = Reader(store)
        return choose_start(reader, reader.get_run("r").record, wanted)


def test_every_kept_checkpoint_is_read_and_each_damaged_one_is_named(runs):
    weights(runs, 8).write_bytes(bytes(100))
    weights(runs, 6).write_bytes(weights(runs, 6).read_bytes()[:50])
    with open_lineage(runs) as store:
        found = list(damaged_checkpoints(Reader(store)))
    assert ["step 6 is damaged: weights" in found[0], "step 8 is damaged: weights" in found[1]] == [True, True]
    assert len(found) == 2, "the dropped one is no damage"


def test_one_damaged_checkpoint_is_skipped_by_name(runs):
    weights(runs, 8).unlink()
    found = start(runs)
    assert (found.step, found.checkpoint) == (6, weights(runs, 6).parent)
    assert found.skipped == (f"step 8: weights.safetensors is gone: {weights(runs, 8).parent}",)


def test_a_damaged_checkpoint_is_named_where_the_newest_model_is_of_an_earlier_one(runs, caplog):
    weights(runs, 8).write_bytes(b"")
    with open_lineage(runs) as store:
        reader = Reader(store)
        assert choose_model(reader, reader.get_run("r"), runs, "newest", "--step").step == 6
    assert "damaged checkpoint skipped: step 8: weights.safetensors differs from what was written" in caplog.text


def test_several_damaged_checkpoints_are_refused_unless_the_step_is_named(runs):
    for step in (6, 8):
        weights(runs, step).unlink()
    with pytest.raises(RlfError, match=r"2 damaged checkpoints are refused:\n  step 8.*\n  step 6.*\n.*\n?.*--from 4"):
        start(runs)
    assert start(runs, 4).step == 4


def test_a_run_without_a_whole_checkpoint_does_not_begin_again_by_itself(runs):
    for step in (4, 6, 8):
        weights(runs, step).unlink()
    with pytest.raises(RlfError, match=r"the beginning of the run, step 0.*--from 0"):
        start(runs)
    assert (start(runs, 0).step, start(runs, 0).checkpoint) == (0, None)


@pytest.mark.parametrize("step", [2, 5])
def test_a_named_step_without_a_whole_checkpoint_is_a_fault_with_those_there_are(step, runs):
    with pytest.raises(RlfError, match=rf"step {step}: there is none. Checkpoints are kept of steps: 4, 6, 8"):
        start(runs, step)


def test_no_checkpoint_is_read_outside_of_its_run(runs, tmp_path_factory):
    """The lineage may come from a stranger: neither a stored path nor a link leads out of the run's folder."""
    outside = tmp_path_factory.mktemp("outside")
    for step in (6, 8):
        shutil.move(weights(runs, step).parent, outside / str(step))
    weights(runs, 6).parent.symlink_to(outside / "6")
    with sqlite3.connect(runs / "rlf.db") as database:
        database.execute("UPDATE checkpoints SET path = ? WHERE step = 8", [str(outside / "8")])
    database.close()
    with open_lineage(runs) as store:
        found = list(damaged_checkpoints(Reader(store)))
    assert [("leads out of" in line) for line in found] == [True, True]
    with pytest.raises(RlfError, match=r"step 8: .* leads out of"):
        start(runs)
    with pytest.raises(RlfError, match="leads out of"):
        start(runs, 8)


def test_a_manifest_names_files_of_its_own_checkpoint_alone(runs):
    manifest = weights(runs, 8).with_name("manifest.json")
    manifest.write_text(json.dumps({"../step-000006/weights.safetensors": hash_path(weights(runs, 6))}))
    assert "not a file of the checkpoint" in str(find_file_damage(manifest.parent))
