"""A process that runs a run: `-m tests.lineage.writer DATABASE RUN_ID NUM_STEPS NUM_TRAJECTORIES`.

It continues where the run stands, prints the number of each step once it is flushed, and waits at the end for its input
to close.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

from rlf.core import RlfError
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.lineage.upkeep import begin_resume

from .builders import run_record, step


def write(database, run_id, num_steps, num_trajectories, wait=lambda: None):
    with open_store(Path(database)) as store:
        try:
            first = Reader(store).get_run(run_id).last_step
            begin_resume(store, run_id, first)
        except RlfError:
            first = 0
            start_run(store, run_record(run_id))
        done = step(1, num_trajectories, text_bytes=100)
        with Recorder(store, run_id) as recorder:
            for number in range(first + 1, first + num_steps + 1):
                recorder(replace(done, step=number))
                recorder.flush()
                print(number, flush=True)
        wait()


def write_and_stay(*values):
    write(*values, wait=lambda: time.sleep(600))


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), wait=sys.stdin.read)
