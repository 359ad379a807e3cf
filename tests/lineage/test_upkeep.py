"""Marks, thinning, cleaning, and finding damage."""

import re
from types import SimpleNamespace

import pytest
from sqlalchemy import Boolean, Float, Integer, LargeBinary, insert, text, update

from rlf.apps.keep import archive as transfer
from rlf.apps.keep import damage
from rlf.apps.keep.archive import copy_run
from rlf.apps.keep.damage import find_damage
from rlf.apps.keep.upkeep import drop_unnamed_blobs, remove_run
from rlf.core import RlfError
from rlf.lineage import tables
from rlf.lineage.calls import tool_call_summary
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.lineage.upkeep import Keep, add_note, add_tags, parse_keep, remove_tags, thin
from rlf.types import EvaluationFinished, RunFinished, RunStatus, StepFinished

from .builders import run_record, scored, step


@pytest.fixture
def ended(store, run_id):
    """A finished run of six steps, with an evaluation."""
    with Recorder(store, run_id) as recorder:
        for number in range(1, 7):
            recorder(step(number, 4))
        recorder(EvaluationFinished(6, "greedy", {"success": 1.0}, [scored(8)]))
        recorder(RunFinished(RunStatus.FINISHED, 6))
    return run_id


def whole_steps(reader, run_id):
    found = {row.step: reader.whole(run_id, row) for row in reader.trajectories(run_id) if row.phase == "train"}
    return [number for number, stored in found.items() if stored is not None]


def test_tags_are_given_once_and_taken_off(store, run_id, reader):
    add_tags(store, run_id, ("best",))
    add_tags(store, run_id, ("best", "also"))
    assert reader.tags() == {run_id: ("also", "best")}
    remove_tags(store, run_id, ("best", "never"))
    assert reader.tags() == {run_id: ("also",)}


def test_notes_are_kept_in_order(store, run_id, reader):
    add_note(store, run_id, "first")
    add_note(store, run_id, "second")
    assert [note.text for note in reader.notes(run_id)] == ["first", "second"]


def test_a_running_run_is_not_removed_thinned_or_taken(store, run_id):
    for act in (remove_run, lambda store, run: thin(store, run, Keep())):
        with pytest.raises(RlfError, match="still running"):
            act(store, run_id)


@pytest.mark.parametrize(
    ("words", "left"),
    [(["none"], []), (["last:2"], [5, 6]), (["every:3"], [3, 6]), (["last:1", "every:4"], [4, 6])],
)
def test_thinning_keeps_what_its_rules_name(store, ended, reader, words, left):
    thin(store, ended, parse_keep(words))
    assert whole_steps(reader, ended) == left
    assert reader.trajectory(ended, k=0, phase="greedy").scored == scored(8)
    assert [total.step for total in reader.step_totals(ended)] == [1, 2, 3, 4, 5, 6]
    assert list(find_damage(store)) == []


def test_failures_can_be_kept(store, run_id, reader):
    with Recorder(store, run_id) as recorder:
        recorder(StepFinished(1, {}, [scored(8), scored(9, success=0.0), scored(17, success=None)], [0.0] * 3))
        recorder(RunFinished(RunStatus.FINISHED, 1))
    assert thin(store, run_id, Keep(failed=True)) == 1
    kept = [reader.whole(run_id, row) is not None for row in reader.trajectories(run_id)]
    assert kept == [False, True, True]


def test_a_thinned_trajectory_says_so(store, ended, reader):
    thin(store, ended, Keep(last=1))
    with pytest.raises(RlfError, match="thinned by `rlf runs gc`"):
        reader.trajectory(ended, k=0, step=1)


def test_a_rule_that_there_is_not_is_refused():
    with pytest.raises(RlfError, match="got 'first:3'; expected `last:N`"):
        parse_keep(["first:3"])


def test_cleaning_drops_only_what_nothing_names(store, ended, reader):
    assert drop_unnamed_blobs(store).num_contents == 0
    remove_run(store, ended)
    assert drop_unnamed_blobs(store).num_contents > 0
    with store.read() as connection:
        for table in ("blobs", "trajectories", "tool_calls", "collections", "tool_totals"):
            assert connection.execute(text(f"select count(*) from {table}")).scalar() == 0


def test_damage_is_reported(store, ended):
    assert list(find_damage(store)) == []
    with store.write() as connection:
        connection.execute(insert(tables.blobs), {"sha256": "0" * 64, "size_bytes": 3, "data": b"bad"})
        connection.execute(update(tables.payloads).where(tables.payloads.c.trajectory_ref == 1).values(data=b"bad"))
        connection.execute(text("delete from blobs where sha256 in (select task_sha256 from trajectories limit 1)"))
        connection.execute(update(tables.collections).where(tables.collections.c.step == 2).values(num_trajectories=9))
    found = "\n".join(find_damage(store))
    assert "blob 000000000000: its content does not match its hash" in found
    assert "its tokens cannot be read" in found
    assert "a row names it, but it is missing" in found
    assert "train step 2 has 4 trajectories and says 9" in found


def wrong_values(table, column):
    """Values, as SQL, that no row of a sound lineage has in a column."""
    kind = column.type
    if isinstance(kind, LargeBinary):
        return ["'text'"]
    if isinstance(kind, (Integer, Float, Boolean)):
        return ["'text'", "x'00'"] + (["7"] if isinstance(kind, Boolean) else [])
    wrong = ["x'00'", "CAST(x'41ff42' AS TEXT)"]
    kind = damage._JSON.get(table.name, {}).get(column.name)
    wrong += ["'{\"cut'"] if kind else []
    wrong += ["'[7]'"] if kind is dict else ["'{}'"] if kind is list or column.name == "plan" else []
    return wrong + (["'no such word'"] if (table.name, column.name) in damage._WORDS else [])


@pytest.mark.parametrize("name", ["runs", "steps", "trajectories", "tool_calls", "scores", "parse_failures", "files"])
def test_a_wrong_value_in_any_column_is_damage(store, ended, name):
    table = tables.metadata.tables[name]
    for column in table.columns:
        if column.foreign_keys or column.primary_key or column.name in ("phase", "step", "k"):
            continue  # SQLite itself keeps what is unique, or refers to another row
        for value in wrong_values(table, column):
            with store.read() as connection:
                changed = connection.exec_driver_sql(f'UPDATE "{name}" SET "{column.name}" = {value}').rowcount
                found = "\n".join(damage._run_look(damage._check_rows, connection, lambda _: None))
                connection.rollback()
            what = column.name if "ff" in value or "x'" in value or "text" in value else ""
            assert changed == 0 or (what in found and ("is damaged" in found or "UTF-8" in found)), (column, value)
    assert list(find_damage(store)) == []


def test_progress_names_what_is_read(store, ended):
    seen = []
    assert list(find_damage(store, seen.append)) == []
    assert seen[0] == "the file and its indexes" and "table tool_calls" in seen
    assert re.fullmatch(r"trajectory 0 of \d+", seen[-1])


def test_a_run_is_copied_whole_and_once(store, ended, tmp_path):
    add_tags(store, ended, ("best",))
    with open_store(tmp_path / "other.db") as other:
        start_run(other, run_record("before"))
        with Recorder(other, "before") as recorder:
            recorder(step(1, 2))
        assert copy_run(store, other, ended)
        assert not copy_run(store, other, ended)
        here, there = Reader(store), Reader(other)
        assert there.get_run(ended) == here.get_run(ended)
        for what in ("steps", "evaluations", "step_totals", "events", "trajectories"):
            assert getattr(there, what)(ended) == getattr(here, what)(ended)
        assert tool_call_summary(there, ended) == tool_call_summary(here, ended)
        for row in here.trajectories(ended):
            assert there.whole(ended, row) == here.whole(ended, row)
        assert list(find_damage(other)) == []
        assert there.tags() == {ended: ("best",)}


def test_another_state_of_a_run_is_not_mixed_in(store, ended, tmp_path):
    with open_store(tmp_path / "other.db") as other:
        start_run(other, run_record(ended))
        with pytest.raises(RlfError, match="another state of it, at step 0 instead of 6"):
            copy_run(store, other, ended)


def test_another_writer_gets_its_turn_while_a_run_is_imported(store, ended, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "_BATCH", 8)
    path, seen = tmp_path / "other.db", []

    def write_in_between(_):
        with open_store(path) as training:
            seen.extend(run.record.id for run in Reader(training).list_runs())
            start_run(training, run_record(f"training-{len(seen)}"))

    monkeypatch.setattr(transfer, "time", SimpleNamespace(sleep=write_in_between))
    with open_store(path) as other:
        assert copy_run(store, other, ended)
        assert {run.record.id for run in Reader(other).list_runs()} > {ended, "training-0"}
    assert ended not in seen  # shown once all of it is there


def test_an_import_that_was_cut_off_is_hidden_named_replaced_and_freed(store, ended, tmp_path, monkeypatch):
    def killed(_):
        raise KeyboardInterrupt

    with open_store(tmp_path / "other.db") as other:
        for finish in (lambda: copy_run(store, other, ended), lambda: drop_unnamed_blobs(other)):
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(transfer, "time", SimpleNamespace(sleep=killed))
                copy_run(store, other, ended)
            assert Reader(other).list_runs() == []
            assert [line for line in find_damage(other) if "named by" not in line] == [
                f"run {ended}: its import was interrupted. Import it again, or free the space with `rlf runs gc`"
            ]
            finish()
            assert list(find_damage(other)) == []
            for run in Reader(other).list_runs():
                remove_run(other, run.record.id)


def test_the_file_is_not_compacted_while_a_run_is_running(store, ended, tmp_path, monkeypatch):
    compacted = []
    monkeypatch.setattr(type(store), "compact", lambda self: compacted.append(self))
    start_run(store, run_record("training"))
    assert not drop_unnamed_blobs(store).is_compact
    with Recorder(store, "training") as recorder:
        recorder(RunFinished(RunStatus.FINISHED, 0))
    assert drop_unnamed_blobs(store).is_compact
    assert compacted == [store]
