"""The recorder waits for nothing, loses nothing and hides no failure."""

import pickle
import threading
import time
from dataclasses import replace

import pytest
from sqlalchemy import func, select

from rlf.apps.keep.verification import verify_folder
from rlf.core import RlfError
from rlf.lineage import tables
from rlf.lineage.calls import tool_call_summary
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import INTERRUPTED, FileRecord, FilesRead, TrajectoryFilter
from rlf.lineage.rows import encode_whole
from rlf.lineage.run import start_run
from rlf.lineage.upkeep import begin_resume
from rlf.types import CheckpointSaved, EvaluationFinished, Interrupted, Notice, RunFinished, RunStatus, StepFinished

from .builders import run_record, scored, step


def test_the_caller_does_not_wait_for_the_writer(store, run_id):
    event = step(1, 128)
    elapsed_s = []
    with Recorder(store, run_id) as recorder:
        with store.write():  # Nothing can be written meanwhile.
            for _ in range(3):
                started = time.perf_counter()
                recorder(event)
                elapsed_s.append(time.perf_counter() - started)
        recorder.flush()
    assert max(elapsed_s) < 1.0  # waiting for the writer would take the busy timeout of 5 s


def test_flush_returns_when_everything_is_committed(store, run_id, reader):
    with Recorder(store, run_id) as recorder:
        for number in range(1, 21):
            recorder(step(number, 2))
        recorder.flush()
        assert len(reader.steps(run_id)) == 20


def test_close_writes_what_is_queued(store, run_id, reader):
    recorder = Recorder(store, run_id)
    for number in range(1, 6):
        recorder(step(number, 2))
    recorder.close()
    assert len(reader.steps(run_id)) == 5


def test_a_full_queue_makes_the_caller_wait(store, run_id, reader):
    with Recorder(store, run_id) as recorder:
        done = threading.Event()

        def emit():
            for number in range(1, 41):
                recorder(StepFinished(number, {}, [], []))
            done.set()

        thread = threading.Thread(target=emit)
        with store.write():
            thread.start()
            assert not done.wait(0.1)
        thread.join(10)
        recorder.flush()
        assert len(reader.steps(run_id)) == 40


def test_a_failure_is_raised_on_the_calling_thread_and_nothing_follows_it(store, run_id, reader):
    recorder = Recorder(store, run_id)
    recorder(step(1, 1))
    recorder(StepFinished(2, {"reward": 1.0}, [scored(1)], [None, None]))
    recorder(step(3, 1))
    with pytest.raises(ValueError, match="longer"):
        recorder.flush()
    with pytest.raises(ValueError, match="longer"):
        recorder(step(4, 1))
    with pytest.raises(ValueError, match="longer"):
        recorder.close()
    assert [found.step for found in reader.steps(run_id)] == [1]


def test_a_failed_event_leaves_no_row(store, run_id, reader):
    with pytest.raises(ValueError, match="longer"), Recorder(store, run_id) as recorder:
        recorder(StepFinished(2, {"reward": 1.0}, [scored(1)], [None, None]))
    assert reader.steps(run_id) == []
    assert reader.trajectories(run_id) == []


def test_a_run_whose_lineage_fails_ends_as_failed_with_the_reason_and_no_other_run_does(store, run_id, path):
    start_run(store, run_record("other"))
    with pytest.raises(ValueError, match="longer"), Recorder(store, run_id) as recorder:
        recorder(StepFinished(2, {"reward": 1.0}, [scored(1)], [None, None]))
    columns = (tables.runs.c.id, tables.runs.c.status, tables.runs.c.error)
    with store.read() as connection:
        found = {name: (status, error) for name, status, error in connection.execute(select(*columns))}
    assert found["other"] == (RunStatus.RUNNING, None)
    assert found[run_id][0] == RunStatus.FAILED and "longer" in found[run_id][1]
    assert verify_folder(path.parent).faults == (), "the chain says how it ended, as the row does"


def test_an_error_of_the_run_is_not_hidden_by_one_of_the_lineage(store, run_id, caplog):
    with pytest.raises(KeyError, match="mine"), Recorder(store, run_id) as recorder:
        recorder(StepFinished(1, {}, [scored(1)], []))
        raise KeyError("mine")
    assert "the lineage is incomplete" in caplog.text


def test_events_of_a_run_that_this_process_does_not_own_are_refused(store):
    with pytest.raises(KeyError, match="nobody"), Recorder(store, "nobody") as recorder:
        recorder(Notice("info", "hello", {}))


def test_resume_supersedes_the_steps_after_its_checkpoint(store, run_id, reader):
    with Recorder(store, run_id) as recorder:
        recorder(EvaluationFinished(0, "sampled", {}, [scored(1)]))
        for number in range(1, 7):
            recorder(step(number, 2))
            recorder(EvaluationFinished(number, "sampled", {}, [scored(1)]))
            recorder(CheckpointSaved(number, f"step-{number}", "c"))
        recorder(Notice("info", "kept", {}))
        recorder(RunFinished(RunStatus.INTERRUPTED, 6, "stopped"))
    start_run(store, run_record("other"))
    with Recorder(store, "other") as recorder:
        recorder(step(9, 1))

    begin_resume(store, run_id, 4)

    run = reader.get_run(run_id)
    assert (run.status, run.last_step, run.finished, run.error) == (RunStatus.RUNNING, 4, None, None)
    assert [found.step for found in reader.steps(run_id)] == [1, 2, 3, 4]
    assert [found.step for found in reader.evaluations(run_id)] == [0, 1, 2, 3, 4]
    assert [found.step for found in reader.checkpoints(run_id)] == [1, 2, 3, 4]
    assert {found.step for found in reader.trajectories(run_id)} == {0, 1, 2, 3, 4}
    assert tool_call_summary(reader, run_id)[0].num_calls == 4 * 2 * 3 + 5 * 3
    assert [event.text for event in reader.events(run_id)] == ["kept", "interrupted after step 6: stopped"]
    with store.read() as connection:
        assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
    assert len(Reader(store).steps("other")) == 1


def test_resuming_an_unknown_run_is_the_users_fault(store):
    with pytest.raises(RlfError, match="not in the lineage"):
        begin_resume(store, "nobody", 0)


def test_the_same_rows_are_stored_of_what_another_process_encoded(store, run_id):
    event = step(1, 40)  # enough for statements that SQLAlchemy does not make row by row
    encoded = [encode_whole(one, store.redactor) for one in event.trajectories]
    stored = []
    for made in ((), pickle.loads(pickle.dumps(encoded))):
        with Recorder(store, run_id) as recorder:
            recorder(replace(event, encoded=made))
        stored.append(_rows(store))
    assert stored[0] == stored[1]
    assert [len(rows) for rows in stored[0][:2]] == [40, 40]
    assert all(stored[0])


def test_what_stops_of_one_step_cut_off_adds_up_and_stays_when_the_step_is_done(store, run_id, reader, path):
    with Recorder(store, run_id) as recorder:
        recorder(Interrupted(1, [scored(1), scored(2)]))
        recorder(Interrupted(1, []))
        recorder(Interrupted(1, [scored(3)]))
        recorder(Interrupted(2, [scored(4)]))
        recorder(step(1, 2))
    cut = reader.trajectories(run_id, TrajectoryFilter(phase=INTERRUPTED))
    assert [(each.step, each.k, each.trajectory_id) for each in cut] == [
        *((1, 0, "t1"), (1, 1, "t2"), (1, 2, "t3"), (2, 0, "t4")),
    ]
    assert verify_folder(path.parent).faults == ()


def test_a_file_that_a_runs_code_has_read_is_recorded_once_and_forgotten_when_it_changes(store, run_id, reader):
    with Recorder(store, run_id) as recorder:
        recorder(FilesRead(new=(read_file("a", "1"), read_file("b", "2")), changed=()))
        recorder(FilesRead(new=(read_file("a", "3"),), changed=()))
        recorder(FilesRead(new=(), changed=(read_file("b", "4"),)))
    files = reader.get_run(run_id).record.files
    assert [(each.role, each.path) for each in files if each.role != "read"] == [
        ("spec", "specs/search.yaml"),
        ("tool", "tools/s.yaml"),
    ]
    assert [each for each in files if each.role == "read"] == [read_file("a", "1")]


def read_file(path, sha256):
    return FileRecord("read", path, sha256)


def test_checkpoints_that_are_not_kept_are_marked_as_dropped_in_the_order_of_time(store, run_id, reader):
    with Recorder(store, run_id) as recorder:
        for number, kept in enumerate([None, (1, 2), (3,), (3, 4)], start=1):
            recorder(CheckpointSaved(number, f"step-{number}", "c", kept))
    assert [(each.step, each.dropped is None) for each in reader.checkpoints(run_id)] == [
        *((1, False), (2, False), (3, True), (4, True)),
    ]


def _rows(store):
    """Every row of trajectories and what hangs on them, but for numbers, and how many contents there are."""
    with store.read() as connection:
        rows = []
        for table in (tables.trajectories, *tables.OF_TRAJECTORY):
            columns = [column for column in table.c if column.name not in ("id", "trajectory_ref")]
            rows.append(sorted(map(repr, connection.execute(select(*columns)))))
        rows.append([(connection.execute(select(func.count()).select_from(tables.blobs)).scalar(),)])
    return rows
