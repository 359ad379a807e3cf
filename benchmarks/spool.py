"""What records of OpenRLHF's agents take on their way into the lineage, part by part, and their size on disk.

Trajectories of 2,100 tokens with two calls and log-probabilities: a record to its frame (the agents' writer thread), a
frame to its record (the driver), and records into SQLite (the lineage's writer). CPU time of one process, medians of
rounds, beside the lines of JSON that frames replaced. A second table is of 64 nodes x 8 agents x 4,096 trajectories a
step by these rates: which part limits.

    python benchmarks/spool.py [TRAJECTORIES] [ROUNDS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from rlf.core.redact import Redactor  # noqa: E402
from rlf.engines.openrlhf.job.dataset import Purpose  # noqa: E402
from rlf.engines.openrlhf.spool.frames import Record, from_line, read_frames, to_frame  # noqa: E402
from rlf.lineage import Recorder, open_store, start_run  # noqa: E402
from rlf.types import Score, Scored, StepFinished  # noqa: E402
from rlf.types.written import VERSION, write  # noqa: E402
from tests.lineage.builders import run_record, trajectory  # noqa: E402

NUM_TOKENS = 2_100
AGENTS, NODES, STEP = 8 * 64, 64, 4_096


def made(number: int) -> Record:
    """Two calls with results of 500 characters, and a log-probability of each sampled token."""
    played = trajectory(number, num_tokens=NUM_TOKENS, num_calls=2)
    scored = Scored(played, (Score("right", 1.0, 1.0),), reward=1.0, success=1.0)
    return Record(Purpose.TRAIN, number // 8, number % 8, 1, float(number), scored)


def to_line(record: Record, redactor: Redactor) -> bytes:
    """A record as it was written before frames."""
    head = [VERSION, record.purpose, record.row, record.sample, record.step, record.time, record.again]
    return redactor.json({"head": head, "scored": write(record.scored)}).encode() + b"\n"


def cpu_ms(work: Callable[[], object], num: int, rounds: int) -> float:
    """CPU milliseconds of one of `num` items."""
    taken = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        taken.append((time.process_time() - started) * 1000 / num)
    return statistics.median(taken)


def into_lineage(records: list[Record], folder: Path) -> None:
    """One step of all records, into a new database."""
    folder.mkdir()
    run = run_record()
    scored = [one.scored for one in records]
    with open_store(folder / "rlf.db") as store, Recorder(store, run.id) as recorder:
        start_run(store, run)
        recorder(StepFinished(1, {"loss/policy": 0.0}, scored, [0.0] * len(scored)))


def main() -> None:
    num, rounds = (int(word) for word in [*sys.argv[1:], *("200", "5")[len(sys.argv) - 1 :]])
    redactor = Redactor({})
    records = [made(number) for number in range(num)]
    frames = b"".join(to_frame(one, redactor) for one in records)
    lines = [to_line(one, redactor) for one in records]
    with tempfile.TemporaryDirectory() as name:
        folders = (Path(name) / str(number) for number in range(1_000))
        parts = {
            "write a frame": cpu_ms(lambda: [to_frame(one, redactor) for one in records], num, rounds),
            "write a line (before)": cpu_ms(lambda: [to_line(one, redactor) for one in records], num, rounds),
            "read a frame": cpu_ms(lambda: list(read_frames(frames)), num, rounds),
            "read a line (before)": cpu_ms(lambda: [from_line(line) for line in lines], num, rounds),
            "into SQLite": cpu_ms(lambda: into_lineage(records, next(folders)), num, rounds),
        }
    print(
        f"a record of {NUM_TOKENS:,} tokens: {len(frames) / num:,.0f} bytes; {sum(map(len, lines)) / num:,.0f} before"
    )
    print(f"{'part':<24}{'CPU ms':>8}{'a second':>10}   medians of {rounds} rounds of {num}")
    for part, ms in parts.items():
        print(f"{part:<24}{ms:>8.3f}{1000 / ms:>10,.0f}")
    write_s, read_s, store_s = (parts[part] / 1000 for part in ("write a frame", "read a frame", "into SQLite"))
    print(f"\n{NODES} nodes, {AGENTS} agents, {STEP:,} trajectories a step: CPU seconds a step")
    print(f"each agent writes  {write_s * STEP / AGENTS:8.3f}")
    print(f"the driver reads   {read_s * STEP:8.3f}")
    print(f"the driver stores  {store_s * STEP:8.3f}")
    print(f"network            {len(frames) / num * STEP / 1e6:8.1f} MB a step")


if __name__ == "__main__":
    main()
