"""DeepSpeed's checkpoints are held against what was told of them, and against their own checksums."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from rlf.api.running.checkpoints import damaged_checkpoints
from rlf.engines.openrlhf.job.checkpoints import checkpoint_hash, latest_checkpoint
from rlf.engines.openrlhf.job.folder import Job
from rlf.lineage import Checkpoint

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


def cut(folder):
    path = folder / SHARDS[0]
    path.write_bytes(path.read_bytes()[:-100])


def flip(folder):
    path = folder / SHARDS[1]
    data = bytearray(path.read_bytes())
    data[data.index(torch.arange(1000.0).numpy().tobytes()) + 7] ^= 1
    path.write_bytes(data)


def lose(folder):
    (folder / SHARDS[1]).unlink()


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
