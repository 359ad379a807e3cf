"""What records of OpenRLHF's agents take on their way into the lineage, part by part, and their size on disk.

Trajectories of 2,100 tokens, or others, with two calls and log-probabilities: a record to its frame (the agents'
writer thread), a frame to its record and to the rows that are stored of it (the processes that read), and what is left
for the process that follows the job: taking the records, metrics and advantages of a step, writing the rows. CPU time
on one core, the least of all rounds; the rate with 8 cores is that of the slowest part. A second table is of 64 nodes
with 8 agents each by these rates, with 4,096 trajectories a step or another number.

    python benchmarks/spool.py [TRAJECTORIES] [ROUNDS] [--tokens 2100] [--calls 2] [--step 4096]
"""

from __future__ import annotations

import argparse
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from rlf.algo.advantages.grpo import Grpo  # noqa: E402
from rlf.apps.openrlhf.dataset import Purpose  # noqa: E402
from rlf.apps.openrlhf.ingest import sampled_advantages  # noqa: E402
from rlf.apps.openrlhf.spool_pool import Record, cut, pack_all, read_span, to_frames, unpack_answer  # noqa: E402
from rlf.core.redact import Redactor  # noqa: E402
from rlf.lineage.recorder import Recorder  # noqa: E402
from rlf.lineage.rows import encode_whole  # noqa: E402
from rlf.lineage.run import start_run  # noqa: E402
from rlf.lineage.store import open_store  # noqa: E402
from rlf.spec.models import TrainSpec  # noqa: E402
from rlf.training.evaluation import step_metrics  # noqa: E402
from rlf.types import Score, Scored, StepFinished  # noqa: E402
from tests.lineage.builders import run_record, trajectory  # noqa: E402

NUM_TOKENS = 2_100
AGENTS, NODES = 8 * 64, 64
CORES = 8


def made(number: int, num_tokens: int = NUM_TOKENS, num_calls: int = 2) -> Record:
    """Calls with results of 500 characters, and a log-probability of each sampled token."""
    played = trajectory(number, num_tokens=num_tokens, num_calls=num_calls)
    reward = float(number % 3 == 0)
    scored = Scored(played, (Score("right", reward, 1.0),), reward=reward, success=reward)
    return Record(Purpose.TRAIN, number // 8, number % 8, 1, float(number), scored)


def cpu_ms(work: Callable[[], object], num: int, rounds: int) -> float:
    """CPU milliseconds of one of `num` items: the least, for others on the machine add to it."""
    taken = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        taken.append((time.process_time() - started) * 1000 / num)
    return min(taken)


def step_of(records: list[Record], encoded: bool) -> StepFinished:
    """The event of one step of all records."""
    scored = [one.scored for one in records]
    made = [one.encoded for one in records] if encoded else []
    return StepFinished(1, {"loss/policy": 0.0}, scored, [0.0] * len(scored), made)


def write_ms(event: StepFinished, folder: Path, rounds: int) -> float:
    """CPU milliseconds of writing one trajectory of a step, without opening the database."""
    taken = []
    run = run_record()
    with open_store(folder / "rlf.db") as store, Recorder(store, run.id) as recorder:
        start_run(store, run)
        for step in range(1, rounds + 1):
            started = time.process_time()
            recorder(replace(event, step=step))
            recorder.flush()
            taken.append((time.process_time() - started) * 1000 / len(event.trajectories))
    return min(taken)


def measure(records: list[Record], rounds: int) -> tuple[dict[str, float], float]:
    """CPU milliseconds of each part, and bytes of a record."""
    redactor, train, num = Redactor({}), TrainSpec(algorithm=Grpo(), steps=1), len(records)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "agent.spool"
        path.write_bytes(to_frames(records, redactor))
        spans = cut(path, 0, path.stat().st_size)
        encode = partial(encode_whole, redactor=redactor)
        packed = [pack_all(read_span(span, encode)) for span in spans]
        light = [record for part in packed for record in pickle.loads(part)]
        scored = [record.scored for record in light]
        parts = {
            "an agent: record to frame": cpu_ms(lambda: to_frames(records, redactor), num, rounds),
            "a reader: frame to rows": cpu_ms(
                lambda: [pack_all(read_span(span, encode)) for span in spans], num, rounds
            ),
            "driver: takes records": cpu_ms(lambda: list(map(unpack_answer, packed)), num, rounds),
            "driver: metrics": cpu_ms(lambda: step_metrics(scored, scored, num_groups=1, own={}), num, rounds),
            "driver: advantages": cpu_ms(lambda: sampled_advantages(light, train), num, rounds),
            "driver: writes rows": write_ms(step_of(light, encoded=True), folder / "ahead", rounds),
            "(makes and writes rows)": write_ms(step_of(records, encoded=False), folder / "here", rounds),
        }
        return parts, path.stat().st_size / num


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("num", 512), ("rounds", 7)):
        parser.add_argument(name, type=int, default=default, nargs="?")
    for name, default in (("tokens", NUM_TOKENS), ("calls", 2), ("step", 4_096)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    num, rounds, step = options.num, options.rounds, options.step
    import torch

    torch.set_num_threads(1)
    parts, size = measure([made(number, options.tokens, options.calls) for number in range(num)], rounds)
    print(f"a record of {options.tokens:,} tokens: {size:,.0f} bytes")
    print(f"{'part':<28}{'CPU ms':>8}{'a second':>10}   least of {rounds} rounds of {num}")
    for part, ms in parts.items():
        print(f"{part:<28}{ms:>8.3f}{1000 / ms:>10,.0f}")
    driver = sum(ms for part, ms in parts.items() if part.startswith("driver"))
    reader = parts["a reader: frame to rows"]
    print(f"{'the driver in all':<28}{driver:>8.3f}{1000 / driver:>10,.0f}   one core, were it all in one thread")
    num_readers = min(8, CORES - 2)
    readers = num_readers * 1000 / reader
    print(f"{num_readers} readers{readers:>37,.0f}")
    print(f"{CORES} cores{min(readers, 1000 / driver):>39,.0f} trajectories a second")
    print(f"\n{NODES} nodes, {AGENTS} agents, {step:,} trajectories a step")
    print(f"each agent writes  {parts['an agent: record to frame'] * step / AGENTS / 1000:8.3f} CPU seconds")
    print(f"{num_readers} readers          {reader * step / num_readers / 1000:8.3f} CPU seconds each")
    print(f"the driver         {driver * step / 1000:8.3f} CPU seconds")
    print(f"network            {size * step / 1e6:8.1f} MB")


if __name__ == "__main__":
    main()
