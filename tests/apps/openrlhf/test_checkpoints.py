"""DeepSpeed's checkpoints are held against what was told of them, and against their own checksums."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rlf.apps.keep.verification import damaged_checkpoints
from rlf.apps.openrlhf.job import (
    Job,
    best_checkpoint,
    checkpoint_hash,
    drop_surplus,
    kept_folders,
    latest_checkpoint,
    mark_best,
    step_of,
    whole_checkpoints,
)
from rlf.lineage.records import Checkpoint

SHARDS = ("mp_rank_00_model_states.pt", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "r" / "job" / "ckpt" / "step"
    folder.mkdir(parents=True)
    for name in SHARDS:
        torch.save({"module": torch.arange(1000.0)}, folder / name)
    return folder


def damage(folder, sha256, engine="openrlhf", **keys):
    """What `rlf runs verify` says of a run with this checkpoint and an older one that was dropped."""
    home = next(str(path) for path in folder.parents if path.name == "r")
    record = SimpleNamespace(id="r", folder=home, engine=engine, plan={"spec": {"engine": {"kind": engine, **keys}}})
    saved = [Checkpoint(1, "/gone", "", 0.0, dropped=1.0), Checkpoint(2, str(folder), sha256, 0.0)]
    reader = SimpleNamespace(list_runs=lambda: [SimpleNamespace(record=record)], checkpoints=lambda run: saved)
    return list(damaged_checkpoints(reader))


def test_a_checkpoint_is_whole_whatever_else_lies_beside_its_shards(folder):
    sha256 = checkpoint_hash(folder)
    (folder / "metric.json").write_text("{}")
    assert damage(folder, sha256) == []


def test_a_checkpoint_that_was_recorded_by_its_policy_alone_is_whole_with_its_critic_and_not_with_a_damaged_one(folder):
    of_policy = checkpoint_hash(folder)
    critic = folder.parents[1] / "_critic" / folder.name
    critic.mkdir(parents=True)
    torch.save({"module": torch.arange(1000.0)}, critic / SHARDS[0])
    of_both = checkpoint_hash(folder)
    assert damage(folder, of_policy) == damage(folder, of_both) == []
    flip(critic, SHARDS[0])
    assert len(damage(folder, of_policy)) == len(damage(folder, of_both)) == 1
    lose(critic, SHARDS[0])
    assert len(damage(folder, of_both)) == 1


def cut(folder):
    path = folder / SHARDS[0]
    path.write_bytes(path.read_bytes()[:-100])


def flip(folder, name=SHARDS[1]):
    path = folder / name
    data = bytearray(path.read_bytes())
    data[data.index(torch.arange(1000.0).numpy().tobytes()) + 7] ^= 1
    path.write_bytes(data)


def lose(folder, name=SHARDS[1]):
    (folder / name).unlink()


def overwrite(folder):
    path = folder / SHARDS[0]
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("hurt", [cut, flip, lose, overwrite])
def test_a_hurt_checkpoint_is_reported(hurt, folder):
    sha256 = checkpoint_hash(folder)
    hurt(folder)
    what = "a shard is missing or not what was written"
    assert damage(folder, sha256) == [f"run r: the checkpoint of step 2 is damaged: {what}: {folder}"]


def test_one_that_is_gone_is_reported_unless_it_is_on_disks_of_the_nodes(folder):
    gone = folder / "gone"
    assert len(damage(gone, "")) == 1
    assert damage(gone, "", ingest={"host": "driver"}) == []


@pytest.mark.parametrize(("tag", "found"), [("", None), ("global_st", None), ("global_step2", "global_step2")])
def test_a_name_of_the_latest_that_is_being_written_is_none_yet(tag, found, tmp_path):
    job = Job(tmp_path / "job", tmp_path / "job")
    folder = job.checkpoints / "_actor"
    (folder / "global_step2").mkdir(parents=True)
    (folder / "latest").write_text(tag)
    latest = latest_checkpoint(job)
    assert (latest and latest.name) == found


@pytest.mark.parametrize("tag", ["", "global_st"])
def test_a_name_of_the_latest_that_is_being_written_takes_no_older_checkpoint_and_no_mark(tag, tmp_path):
    job = saved(tmp_path, 2, 4, 6)
    mark_best(job, 2, 0.5)
    (job.checkpoints / "_actor" / "latest").write_text(tag)
    assert [step_of(path) for path in whole_checkpoints(job)] == [2, 4]
    assert [step_of(path) for path in kept_folders(job, 1)] == [2, 4]
    assert best_checkpoint(job) == (job.checkpoints / "_actor" / "global_step2", 0.5)
    mark_best(job, 6, 0.75)
    assert best_checkpoint(job) == (job.checkpoints / "_actor" / "global_step6", 0.75)


def saved(tmp_path, *steps):
    """A job with whole checkpoints of these steps, each written later than the one before."""
    job = Job(tmp_path / "job", tmp_path / "job")
    for step in steps:
        path = job.checkpoints / "_actor" / f"global_step{step}"
        path.mkdir(parents=True)
        (path / "metric.json").write_text('{"metric_key": null, "metric_value": null}')
        os.utime(path, (step, step))
        (path.parent / "latest").write_text(path.name)
    return job


def test_one_checkpoint_is_marked_as_the_best_and_no_folder_seems_newer_for_it(tmp_path):
    job = saved(tmp_path, 2, 4, 6, 8)
    assert best_checkpoint(job) is None
    for step, success in ((2, 0.25), (4, 0.5), (5, 0.75)):  # of 5 there is no checkpoint
        mark_best(job, step, success)
    path, success = best_checkpoint(job)
    assert (path.name, success) == ("global_step4", 0.5)
    assert [step_of(path) for path in kept_folders(job, 1)] == [4, 8]
    assert [step_of(path) for path in kept_folders(job, 3)] == [4, 6, 8]
    assert [path.stat().st_mtime for path in whole_checkpoints(job)] == [2, 4, 6, 8]
    drop_surplus(job, 1)
    assert [step_of(path) for path in whole_checkpoints(job)] == [4, 8]


def test_a_checkpoint_that_goes_while_it_is_marked_stops_nothing(tmp_path, monkeypatch):
    job = saved(tmp_path, 2, 4)

    def stat(path, **keys):
        if path.name == "global_step4" and os.path.isdir(path):  # noqa: PTH112 - is_dir asks stat
            shutil.rmtree(path)  # what OpenRLHF does at that moment
        return os.stat(path, **keys)  # noqa: PTH116 - what is replaced here

    monkeypatch.setattr(Path, "stat", stat)
    mark_best(job, 4, 0.5)
    assert best_checkpoint(job) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"metric_value": "best"}', '{"metric_value": null}'])
def test_a_file_that_marks_nothing_makes_no_checkpoint_the_best(text, tmp_path):
    job = saved(tmp_path, 2)
    (job.checkpoints / "_actor" / "global_step2" / "metric.json").write_text(text)
    assert best_checkpoint(job) is None
