"""The lineage at size: how fast steps are written, how fast commands read, bytes by trajectory.

    python benchmarks/lineage.py --steps 400          # a million tool calls: 400 steps x 512 trajectories x 5 calls

Writes one run into a temporary database through the recorder that runs use, then times what `rlf runs list`,
`rlf runs show` and the first trajectory read, and how fast `rlf runs verify` reads all of it. Prints medians of 5
readings, each from a newly opened database; the last is read once.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from rlf.apps.keep.verification import check_rows
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import RunRecord
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.reports.overview import read_overviews
from rlf.reports.report import read_report
from rlf.types import (
    Attempt,
    CallRecord,
    Message,
    Outcome,
    Score,
    Scored,
    StepFinished,
    StopReason,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)

CALLS = 5
RUN = "20260101-000000-made"


def trajectory(rng, task, sample, passages):
    """Six turns of 40 sampled tokens, with 60 observation tokens after each of five calls."""
    turns, mask, start = [], [False] * 100, 100
    for number in range(CALLS + 1):
        end = start + 40
        last = number == CALLS
        text = f"<tool_call>{rng.random()}</tool_call>" if not last else "The answer."
        result = ToolResult(
            Outcome.OK, rng.choice(passages), (Attempt(Outcome.OK, 0.01),), run_s=0.01, isolation="thread"
        )
        calls = () if last else (CallRecord(ToolCall("search", {"query": f"q{rng.randrange(9999)}"}), result),)
        turns.append(Turn(start, end, end if last else end + 60, text, calls, sample_s=0.1, tools_s=0.01))
        mask += [True] * 40 + ([] if last else [False] * 60)
        start = end + 60
    logprobs = [-rng.random() if sampled else 0.0 for sampled in mask]
    tokens = [rng.randrange(150_000) for _ in mask]
    return Trajectory(
        f"{task.id}/{sample}", task, sample, tokens, mask, logprobs, tuple(turns), StopReason.ANSWERED, "x"
    )


def made(num_trajectories, group):
    rng = random.Random(0)
    passages = ["".join(rng.choices("abcdefghij klmnop", k=600)) for _ in range(2000)]
    columns = {"source": "benchmark"}
    tasks = [
        Task(f"q{i}", (Message("system", "Tools: " * 100), Message("user", f"Who is {i}?")), "x", None, columns)
        for i in range(num_trajectories // group)
    ]
    score = Score("exact_match", 1.0, 1.0, "right", 0.0001)
    return [Scored(trajectory(rng, t, s, passages), (score,), 1.0, 1.0) for t in tasks for s in range(group)]


def timed(path, read):
    spent = []
    for _ in range(5):
        started = time.perf_counter()
        with open_store(path, create=False) as store:
            read(Reader(store))
        spent.append(time.perf_counter() - started)
    return median(spent)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--trajectories", type=int, default=512)
    arguments = parser.parse_args()
    items = made(arguments.trajectories, 8)
    metrics = {f"metric/{i}": 0.5 for i in range(40)} | {"success": 0.5, "reward/mean": 0.5, "time/step_s": 1.0}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rlf.db"
        with open_store(path) as store:
            start_run(store, RunRecord(RUN, "benchmark", "local", 0, {"spec": {}}, "p", "0", {}, {}, "c", "f"))
            started = time.perf_counter()
            with Recorder(store, RUN) as recorder:
                for step in range(1, arguments.steps + 1):
                    recorder(StepFinished(step, metrics, [replace(item) for item in items], [0.1] * len(items)))
            write_s = time.perf_counter() - started
        num = arguments.steps * len(items)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        print(f"{num:,} trajectories, {num * CALLS:,} tool calls")
        print(f"write         {num / write_s:,.0f} trajectories/s, {num * CALLS / write_s:,.0f} calls/s")
        num_tokens = len(items[0].trajectory.tokens)
        print(f"size          {size / 2**20:,.0f} MiB, {size / num:,.0f} bytes a trajectory of {num_tokens} tokens")
        print(f"runs list     {timed(path, read_overviews) * 1000:.0f} ms")
        print(f"runs show     {timed(path, lambda reader: read_report(reader, RUN)) * 1000:.0f} ms")
        first = timed(path, lambda reader: reader.trajectory(RUN, k=0, step=1))
        print(f"trajectory    {first * 1000:.0f} ms")
        started = time.process_time()
        with open_store(path) as store:
            assert check_rows(Reader(store)).faults == ()
        spent_s = time.process_time() - started
        print(f"runs verify   {size / 1e6 / spent_s:.0f} MB a CPU second")


if __name__ == "__main__":
    main()
