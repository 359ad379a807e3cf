"""Kill -9 in the middle of a migration and of `rlf runs gc`: nothing is lost, and the next attempt finishes.

A forked child kills itself after a given amount of SQLite's work, so that every kill lies inside of it.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Engine, event

from rlf.apps.keep.upkeep import drop_unnamed_blobs
from rlf.apps.keep.verification import verify_folder
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.lineage.upkeep import Keep, thin
from rlf.types import RunFinished, RunStatus

from .builders import run_record, step
from .test_migrations import DUMPS, database_of, rows_of

INSTRUCTIONS = 50
"""Of SQLite's virtual machine between two looks whether the time has come."""
NUM_KILLS = 6


@contextmanager
def killing_after(num_looks: int) -> Iterator[list[int]]:
    """Kills this process after SQLite has done so much; counts the looks."""
    looks = [0]

    def look() -> int:
        looks[0] += 1
        if looks[0] == num_looks:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def watch(connection: sqlite3.Connection, _record: object) -> None:
        connection.set_progress_handler(look, INSTRUCTIONS)

    event.listen(Engine, "connect", watch)
    try:
        yield looks
    finally:
        event.remove(Engine, "connect", watch)


def is_killed(action: Callable[[], None], num_looks: int) -> bool:
    """Whether a child that does `action` was killed on the way."""
    child = os.fork()
    if child == 0:
        try:
            with killing_after(num_looks):
                action()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def kill_points(action: Callable[[], None]) -> list[int]:
    """Looks after which a child is to be killed, over the whole of `action`, which is done once."""
    with killing_after(-1) as looks:
        action()
    assert looks[0] > NUM_KILLS, "too little work to be killed in"
    return sorted(random.Random(0).sample(range(1, looks[0]), NUM_KILLS))


def test_a_migration_killed_anywhere_loses_nothing_and_is_finished_by_the_next(
    tmp_path: Path, next_version: Callable[[], None]
) -> None:
    dump = DUMPS[0]
    next_version()
    (tmp_path / "whole").mkdir()
    whole = database_of(dump, tmp_path / "whole")
    before = rows_of(whole)
    points = kill_points(lambda: open_store(whole).close())
    after = rows_of(whole)
    for point in points:
        folder = tmp_path / str(point)
        folder.mkdir()
        path = database_of(dump, folder)
        assert is_killed(lambda path=path: open_store(path).close(), point)
        shutil.copytree(folder, folder.with_suffix(".seen"))
        assert rows_of(folder.with_suffix(".seen") / "rlf.db") in (before, after), "no half of it is seen"
        open_store(path).close()
        assert rows_of(path) == after
        assert verify_folder(folder).faults == ()


def test_housekeeping_killed_anywhere_leaves_a_whole_lineage_and_is_finished_by_the_next(tmp_path: Path) -> None:
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    with open_store(recorded / "rlf.db") as store:
        start_run(store, run_record("r", folder="r"))
        with Recorder(store, "r") as recorder:
            for number in range(1, 9):
                recorder(replace(step(number, 8, text_bytes=100), step=number))
            recorder(RunFinished(RunStatus.FINISHED, 8))

    def clean(folder: Path) -> None:
        with open_store(folder / "rlf.db") as store:
            thin(store, "r", Keep(last=2))
            drop_unnamed_blobs(store)

    whole = Path(shutil.copytree(recorded, tmp_path / "whole"))
    points = kill_points(lambda: clean(whole))
    assert seen_of(whole) == seen_of(recorded)
    for point in points:
        folder = Path(shutil.copytree(recorded, tmp_path / str(point)))
        assert is_killed(lambda folder=folder: clean(folder), point)
        assert verify_folder(folder).faults == ()
        assert seen_of(folder) == seen_of(recorded)
        clean(folder)
        assert rows_of(folder / "rlf.db") == rows_of(whole / "rlf.db")


def seen_of(folder: Path) -> tuple[object, ...]:
    """What thinning keeps: steps, rows of trajectories, and whole trajectories of the newest steps."""
    with open_store(folder / "rlf.db") as store:
        reader = Reader(store)
        newest = [reader.trajectory("r", k=k, step=number).scored for number in (7, 8) for k in range(8)]
        rows = [(row.step, row.k, row.reward, row.success, row.num_tokens) for row in reader.trajectories("r")]
        return reader.steps("r"), rows, newest
