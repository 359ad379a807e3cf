"""What was cut off or damaged never passes for a whole archive."""

import json
import random
import sqlite3

import pytest

from rlf.apps.keep.archive import open_archive, write_archive
from rlf.apps.keep.tables import write_tables
from rlf.core import RlfError, RunError, hash_path
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store

from .builders import run_record, step

RUNS = ("20260101-000000-aaaa", "20260101-000000-bbbb")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A lineage with two runs."""
    with open_store(tmp_path_factory.mktemp("source") / "rlf.db") as store:
        for run_id in RUNS:
            with Recorder(store, run_id) as recorder:
                start_run(store, run_record(run_id))
                recorder(step(1, 4))
        yield store


@pytest.fixture
def archive(source, tmp_path):
    write_archive(source, RUNS, tmp_path / "two.db")
    return tmp_path / "two.db"


def runs_of(path):
    with open_archive(str(path)) as store:
        return sorted(run.record.id for run in Reader(store).list_runs())


def test_a_whole_archive_is_one_file_that_reading_does_not_change(archive, caplog):
    before = hash_path(archive)
    assert runs_of(archive) == list(RUNS)
    assert hash_path(archive) == before and [path.name for path in archive.parent.iterdir()] == ["two.db"]
    assert caplog.text == ""


class Killed(BaseException):
    """Stands for a kill: no handler of ours is there for it."""


def test_an_archive_that_is_cut_off_between_two_runs_is_refused(source, tmp_path, monkeypatch):
    from rlf.apps.keep import archive

    copy_run = archive.copy_run

    def copy_first(origin, target, run_id):
        if run_id == RUNS[1]:
            raise Killed
        return copy_run(origin, target, run_id)

    monkeypatch.setattr(archive, "copy_run", copy_first)
    monkeypatch.setattr("rlf.core.files._remove_part", lambda path: None)
    with pytest.raises(Killed):
        write_archive(source, RUNS, tmp_path / "two.db")
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".two.db.") and left.name.endswith(".tmp")
    with pytest.raises(RlfError, match="its writing was interrupted"):
        runs_of(left)


def test_an_archive_that_lost_or_gained_a_row_is_refused(archive):
    for statement, words in (
        ("DELETE FROM trajectories WHERE id = 1", "table trajectories has 7 rows of 8"),
        ("UPDATE steps SET metrics = '{}'", "contents of table steps changed"),
        ("UPDATE rlf_archive SET manifest = 'no JSON'", "its manifest is not JSON"),
    ):
        with sqlite3.connect(archive) as database:
            database.execute(statement)
        with pytest.raises(RunError, match=words):
            runs_of(archive)


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_archive_is_refused_in_words_or_equal(archive, seed):
    rng, data = random.Random(seed), bytearray(archive.read_bytes())
    if seed % 4 == 0:
        del data[rng.randrange(len(data)) :]
    elif seed % 4 == 1:
        data[:100] = rng.randbytes(100)
    else:
        for _ in range(200):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    archive.write_bytes(data)
    with pytest.raises(RlfError, match=str(archive)):
        runs_of(archive)


def test_an_old_archive_without_a_manifest_is_taken_with_a_warning(archive, caplog):
    with sqlite3.connect(archive) as database:
        database.execute("DROP TABLE rlf_archive")
    assert runs_of(archive) == list(RUNS)
    assert "Whether it is complete is not known" in caplog.text


def test_an_archive_of_a_schema_that_was_never_released_is_refused_and_stays(archive):
    with sqlite3.connect(archive) as database:
        database.execute("UPDATE rlf_version SET version_num = '0003'")
    database.close()
    before = hash_path(archive)
    with pytest.raises(RlfError, match="commit 2ca147a2"):
        runs_of(archive)
    assert hash_path(archive) == before


def test_tables_for_other_tools_have_a_manifest_and_appear_whole(source, tmp_path, monkeypatch):
    reader = Reader(source)
    write_tables(reader, RUNS, tmp_path / "tables", parquet=False)
    manifest = json.loads((tmp_path / "tables" / "manifest.json").read_text())
    assert manifest["run_ids"] == list(RUNS) and manifest["files"]["trajectories.jsonl"]["num_rows"] == 8
    for name, said in manifest["files"].items():
        lines = (tmp_path / "tables" / name).read_text().splitlines()
        assert (len(lines), hash_path(tmp_path / "tables" / name)) == (said["num_rows"], said["sha256"])

    def die(*_):
        raise Killed

    monkeypatch.setattr("rlf.apps.keep.tables._trajectory_row", die)
    with pytest.raises(Killed):
        write_tables(reader, RUNS, tmp_path / "more", parquet=False)
    assert not (tmp_path / "more").exists()
