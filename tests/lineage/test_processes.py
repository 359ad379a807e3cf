"""Real processes: killed at any moment, writing side by side, read while they write."""

import random
import time
from contextlib import ExitStack

import pytest

from rlf.core import RlfError
from rlf.lineage.reader import Reader
from rlf.lineage.store import open_store
from rlf.lineage.upkeep import begin_resume
from rlf.types import RunStatus

from ..processes import Process
from .writer import write, write_and_stay


def writing(path, run_id, *, num_steps, num_trajectories=16):
    return Process(write_and_stay, path, run_id, num_steps, num_trajectories)


def check_whole(store, run_id, num_trajectories):
    """Every step there is has all of its rows, and there are rows of no other step."""
    reader = Reader(store)
    steps = [step.step for step in reader.steps(run_id)]
    assert steps == list(range(1, len(steps) + 1))
    assert reader.get_run(run_id).last_step == len(steps)
    assert [(row.step, row.k) for row in reader.trajectories(run_id)] == [
        (step, k) for step in steps for k in range(num_trajectories)
    ]
    with store.read() as connection:
        count = lambda table: connection.exec_driver_sql(f"select count(*) from {table}").scalar()  # noqa: E731
        num_rows = len(steps) * num_trajectories
        assert [count("payloads"), count("tool_calls"), count("scores")] == [num_rows, 3 * num_rows, 2 * num_rows]
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
        assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
    return len(steps)


def test_a_writer_killed_at_any_moment_leaves_whole_steps_and_no_flushed_one_is_lost(path):
    rng = random.Random(0)
    flushed = 0
    for _ in range(6):
        with writing(path, "r", num_steps=10_000) as process:
            assert process.stdout.readline(), process.stderr.read()
            time.sleep(rng.uniform(0, 0.08))
            process.kill()
            flushed = max([flushed, *map(int, process.stdout.read().split())])
        with open_store(path) as store:
            assert check_whole(store, "r", 16) >= flushed
    assert flushed >= 6


def test_a_killed_run_is_shown_as_interrupted_and_a_living_one_is_not_taken_over(path):
    with writing(path, "r", num_steps=1) as process:
        process.stdout.readline()
        with open_store(path) as store:
            run = Reader(store).get_run("r")
            assert (run.status, run.process_gone) == (RunStatus.RUNNING, False)
            with pytest.raises(RlfError, match=f"still running as process {process.pid}"):
                begin_resume(store, "r", 0)
    with open_store(path) as store:
        run = Reader(store).get_run("r")
        assert (run.status, run.process_gone) == (RunStatus.INTERRUPTED, True)
        begin_resume(store, "r", 1)
        assert Reader(store).get_run("r").status is RunStatus.RUNNING


def test_eight_processes_write_one_database(path):
    with ExitStack() as stack:
        processes = [stack.enter_context(Process(write, path, f"r{i}", 20, 4)) for i in range(8)]
        for process in processes:
            _, errors = process.communicate(timeout=60)
            assert (process.returncode, errors) == (0, "")
    with open_store(path) as store:
        reader = Reader(store)
        assert [len(reader.steps(f"r{i}")) for i in range(8)] == [20] * 8
        assert [len(reader.trajectories(f"r{i}")) for i in range(8)] == [80] * 8


def test_a_run_is_read_while_it_writes(path):
    with writing(path, "r", num_steps=10_000) as process:
        process.stdout.readline()
        seen = []
        with open_store(path, create=False) as store:
            reader = Reader(store)
            deadline = time.monotonic() + 10
            while len(set(seen)) < 5 and time.monotonic() < deadline:
                assert len(reader.trajectories("r")) % 16 == 0
                stored = reader.trajectory("r", k=15)
                assert len(stored.scored.trajectory.calls) == 3
                seen.append(stored.summary.step)
                assert reader.get_run("latest").status is RunStatus.RUNNING
        assert process.poll() is None
    assert seen == sorted(seen)
    assert len(set(seen)) >= 5
