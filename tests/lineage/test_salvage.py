"""A damaged lineage is named in words, and what is readable of it is saved."""

import random
import sqlite3

import pytest
from typer.testing import CliRunner

from rlf.apps.keep.damage import find_damage
from rlf.apps.keep.salvage import salvage
from rlf.cli import app
from rlf.core import RlfError, hash_path
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.runs.place import open_lineage

from .builders import run_record, step

RUNS = ("20260101-000000-aaaa", "20260101-000000-bbbb", "20260101-000000-cccc")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The file of a lineage with three runs of three steps."""
    folder = tmp_path_factory.mktemp("whole")
    with open_lineage(folder, create=True) as store:
        for run_id in RUNS:
            with Recorder(store, run_id) as recorder:
                start_run(store, run_record(run_id))
                for number in range(1, 4):
                    recorder(step(number, 8))
    return (folder / "rlf.db").read_bytes()


@pytest.fixture
def runs(tmp_path):
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def damage(data, seed):
    """As disks and people do it: 200 bytes flipped, the end gone, the header gone, a page gone."""
    rng, data = random.Random(seed), bytearray(data)
    match seed % 4:
        case 0:
            for _ in range(200):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 1:
            del data[rng.randrange(4096, len(data)) :]
        case 2:
            data[:100] = rng.randbytes(100)
        case 3:
            page = rng.randrange(1, len(data) // 4096)
            data[page * 4096 : page * 4096 + 4096] = bytes(4096)
    return bytes(data)


def rlf(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("seed", range(8))
def test_commands_on_a_damaged_lineage_end_in_a_message(whole, runs, seed):
    (runs / "rlf.db").write_bytes(damage(whole, seed))
    for words in (["list"], ["show", "latest"], ["verify"], ["show", "latest", "--trajectory", "0"]):
        result = rlf("runs", *words, "--runs", runs)
        assert isinstance(result.exception, SystemExit | None), (words, result.exception)
        assert "sqlalche" not in result.output.lower() and "Traceback" not in result.output
    assert rlf("runs", "verify", "--runs", runs).exit_code == 3


@pytest.mark.parametrize("seed", range(8))
def test_what_is_salvaged_is_a_sound_lineage(whole, runs, seed):
    path = runs / "rlf.db"
    path.write_bytes(damage(whole, seed))
    before = hash_path(path)
    done = salvage(path, runs / "saved" / "rlf.db")
    assert hash_path(path) == before
    with open_lineage(runs / "saved") as store:
        reader = Reader(store)
        assert [fault for fault in find_damage(store) if "a row names it" not in fault] == []
        assert {run.record.id for run in reader.list_runs()} == set(done.run_ids) <= set(RUNS)
        for run_id in done.run_ids:
            assert "salvaged from" in reader.notes(run_id)[-1].text
            for summary in reader.trajectories(run_id):
                reader.whole(run_id, summary)


def test_only_what_is_on_a_lost_page_is_lost(whole, runs):
    path = runs / "rlf.db"
    path.write_bytes(whole)
    with sqlite3.connect(path) as database:
        root = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'scores'").fetchone()[0]
    data = bytearray(whole)
    data[(root - 1) * 4096 : root * 4096] = bytes(4096)
    path.write_bytes(data)
    done = salvage(path, runs / "saved.db")
    assert done.run_ids == RUNS
    assert {item.table: item.num_gaps for item in done.tables if item.num_gaps} == {"scores": 1}
    saved = {item.table: item.num_rows for item in done.tables}
    assert (saved["trajectories"], saved["payloads"], saved["steps"]) == (72, 72, 9)


def test_verify_names_what_is_readable_and_salvage_saves_it(whole, runs):
    (runs / "rlf.db").write_bytes(b"\0" * 100 + whole[100:])
    verified = rlf("runs", "verify", "--runs", runs)
    assert verified.exit_code == 3 and "readable: runs: 3 rows" in verified.stdout, verified.output
    saved = rlf("runs", "salvage", "-o", runs / "new" / "rlf.db", "--runs", runs)
    assert saved.exit_code == 0 and "3 runs" in saved.stdout, saved.output
    assert rlf("runs", "list", "--runs", runs / "new").exit_code == 0
    assert rlf("runs", "salvage", "-o", runs / "new" / "rlf.db", "--runs", runs).exit_code == 2


def test_another_programs_database_is_not_salvaged(tmp_path):
    with sqlite3.connect(tmp_path / "rlf.db") as database:
        database.execute("CREATE TABLE theirs (a)")
    database.close()
    with pytest.raises(RlfError, match="belongs to another program: it holds theirs"):
        salvage(tmp_path / "rlf.db", tmp_path / "new.db")
