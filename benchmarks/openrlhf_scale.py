"""A cluster scaled down: agents in processes of their own write trajectories, and a driver takes them into a lineage.

Each process stands for agents of one node: it writes a step's trajectories of 2,100 tokens as fast as it can, with two
calls and log-probabilities. The driver follows them as `rlf run` does: files that it sees, or bytes that the agents
send over HTTP or TLS (`--http`, `--tls`); processes read, metrics and advantages are computed, rows are written, files
are removed.
What each part takes a trajectory, in CPU time, gives the rate at which it limits 64 nodes x 8 agents with 4,096
trajectories a step. `--curve` does it with 1, 2, 4, ... up to 64 nodes, each with 64 trajectories a step.

    python benchmarks/openrlhf_scale.py [--http|--tls] [--nodes 4] [--agents 8] [--trajectories 512] [--steps 3]
    python benchmarks/openrlhf_scale.py --curve
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.spool import made  # noqa: E402
from rlf.apps.openrlhf import spool_pool as pool_module  # noqa: E402
from rlf.apps.openrlhf.ingest import Ingest  # noqa: E402
from rlf.apps.openrlhf.job import Job, JobAttempt, new_attempt  # noqa: E402
from rlf.apps.openrlhf.settings import INGEST_TOKEN, IngestSpec  # noqa: E402
from rlf.apps.openrlhf.spool import SpoolWriter  # noqa: E402
from rlf.apps.openrlhf.spool_pool import SpoolPool  # noqa: E402
from rlf.apps.openrlhf.transfer import Sender, receiving  # noqa: E402
from rlf.lineage.recorder import Recorder  # noqa: E402
from rlf.lineage.rows import encode_whole  # noqa: E402
from rlf.lineage.run import start_run  # noqa: E402
from rlf.lineage.store import open_store  # noqa: E402
from rlf.plan import compile as compile_plan  # noqa: E402
from rlf.spec import load_spec  # noqa: E402
from tests.lineage.builders import run_record  # noqa: E402

GROUP = 8
NODES, AGENTS, STEP = 64, 512, 4_096


def node(orders: Connection, folder: Path, number: int, options: argparse.Namespace) -> None:
    """One process of agents: writes a step's trajectories when it is ordered, and answers with its CPU seconds."""
    orders.recv()  # the attempt is written
    job = Job(folder, folder)
    attempt = JobAttempt.model_validate_json((folder / "attempt.json").read_text())
    share = options.trajectories // options.nodes
    records = [made(number * share + at) for at in range(share)]

    async def run() -> None:
        ingest = ingest_of(folder, options)
        sender = None if ingest is None else partial(Sender, ingest, attempt, job.certificate)
        writers = [SpoolWriter(Path(attempt.spool), sender=sender) for _ in range(options.agents)]
        started = time.process_time()
        while step := await asyncio.to_thread(orders.recv):
            mine = [replace(record, step=step, row=step * 10_000 + record.row) for record in records]
            await asyncio.gather(*(writers[at // GROUP % len(writers)].append(one) for at, one in enumerate(mine)))
            orders.send(time.process_time() - started)
        for writer in writers:
            await writer.close()

    asyncio.run(run())


async def follow(folder: Path, nodes: list[Connection], options: argparse.Namespace) -> dict[str, float]:
    """Follows the nodes through all steps; CPU seconds and memory of each part."""
    job, num_groups = Job(folder, folder), options.trajectories // GROUP
    keys = ["engine.kind=openrlhf", f"train.prompts_per_step={num_groups}", f"rollout.num_generations={GROUP}"]
    spec = compile_plan(load_spec([ROOT / "specs" / "search.yaml"], keys)).spec
    ingest_spec = ingest_of(folder, options)
    spec = spec.model_copy(update={"engine": spec.engine.model_copy(update={"ingest": ingest_spec})})
    attempt = new_attempt(job, 1, first_step=1)
    (folder / "attempt.json").write_text(attempt.model_dump_json())
    job.log(1).parent.mkdir(parents=True)
    job.log(1).touch()
    for one in nodes:
        one.send(0)
    run, totals = run_record(), list[tuple[float, float, float, float]]()
    pool_module._HERE_BYTES = 0  # so few trajectories would be read by the driver
    async with AsyncExitStack() as stack:
        store = stack.enter_context(open_store(folder / "rlf.db"))
        recorder = stack.enter_context(Recorder(store, run.id))
        start_run(store, run)
        pool = SpoolPool(partial(encode_whole, redactor=store.redactor), options.readers)
        stack.callback(pool.close)
        ingest = Ingest(spec, job, attempt, emit=recorder, pool=pool)
        if ingest_spec is not None:
            await stack.enter_async_context(receiving(ingest_spec, job))
        for step in range(1, options.steps + 2):  # the first one warms up
            for one in nodes:
                one.send(step)
            waiting = asyncio.ensure_future(asyncio.to_thread(lambda: [one.recv() for one in nodes]))
            while not waiting.done():
                await asyncio.wait([waiting], timeout=0.25)
                await asyncio.to_thread(ingest.poll)
            with job.log(1).open("a") as log:
                log.write(f"Global step {step}: {{'policy_loss': 0.0}}\n")
            while ingest.step < step:
                await asyncio.to_thread(ingest.poll)
            await asyncio.to_thread(ingest.drop_recorded, recorder.flush)
            recorder.flush()
            agents_s = sum(waiting.result())
            totals.append((agents_s, sum(map(cpu_s, pool.pids)), time.process_time(), time.perf_counter()))
        memory = {"driver_mb": peak_mb(os.getpid()), "reader_mb": max(map(peak_mb, pool.pids))}
    for one in nodes:
        one.send(0)
    left = await asyncio.to_thread(lambda: sum(file.stat().st_size for file in folder.rglob("*.spool")))
    spent = [last - first for first, last in zip(totals[0], totals[-1], strict=True)]
    return dict(zip(("agents", "readers", "driver", "wall"), spent, strict=True)) | {"left_mb": left / 1e6} | memory


def peak_mb(pid: int) -> float:
    """The most memory that a process had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1000


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def ingest_of(folder: Path, options: argparse.Namespace) -> IngestSpec | None:
    """Where the nodes send records; None where the driver sees their files."""
    files = {"certificate": str(Job(folder, folder).certificate), "key": str(folder / "driver.key")}
    return IngestSpec(host="127.0.0.1", port=8791, **(files if options.tls else {})) if options.http else None


def make_certificate(folder: Path) -> None:
    """As the guide makes one; the nodes have a copy of it in their job folder."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=rlf"
    files = ["-keyout", str(folder / "driver.key"), "-out", str(Job(folder, folder).certificate)]
    named = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command.split(), *named, *files], check=True, capture_output=True)


def run(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Starts the nodes, which share what is imported here, and follows them."""
    if options.tls:
        make_certificate(folder)
    context: Any = multiprocessing.get_context("fork")
    ends = [context.Pipe() for _ in range(options.nodes)]
    processes = [
        context.Process(target=node, args=(there, folder, number, options)) for number, (_, there) in enumerate(ends)
    ]
    for process in processes:
        process.start()
    found = asyncio.run(follow(folder, [here for here, _ in ends], options))
    for process in processes:
        process.join()
    return found


def curve() -> None:
    """The same work for each node, with more and more of them."""
    print("| nodes | agents | trajectories a step | driver, CPU ms | trajectories a second | its memory | a reader's |")
    print("|---|---|---|---|---|---|---|")
    for nodes in (1, 2, 4, 8, 16, 32, NODES):
        num = nodes * STEP // NODES
        command = [sys.executable, __file__, "--json", "--nodes", str(nodes), "--trajectories", str(num)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        found = json.loads(done.stdout)
        ms = found["driver"] * 1000 / (num * 3)
        memory = f"{found['driver_mb']:.0f} MB | {found['reader_mb']:.0f} MB"
        print(f"| {nodes} | {nodes * 8} | {num:,} | {ms:.2f} | {1000 / ms:,.0f} | {memory} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("http", "tls", "curve", "json"):
        parser.add_argument(f"--{name}", action="store_true")
    for name, default in (("nodes", 4), ("agents", 8), ("trajectories", 512), ("steps", 3), ("readers", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    options.http |= options.tls
    os.environ.setdefault(INGEST_TOKEN, "of-the-benchmark")
    if options.curve:
        return curve()
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        found = run(Path(name), options)
    if options.json:
        return print(json.dumps(found))
    num = options.trajectories * options.steps
    how = "over TLS" if options.tls else "over HTTP" if options.http else "through files"
    print(f"{options.nodes} processes with {options.agents} agents each, {options.steps} steps, {how}")
    print(f"{num:,} trajectories in {found['wall']:.1f} s; {found['left_mb']:.1f} MB of records left")
    print(f"memory at most: driver {found['driver_mb']:.0f} MB, a reader {found['reader_mb']:.0f} MB")
    print(f"{'part':<12}{'CPU ms':>8}{'of a core/s':>13}{'at full size, trajectories/s':>32}")
    for part, cores in (("agents", AGENTS), ("readers", 6), ("driver", 1)):
        ms = found[part] * 1000 / num
        print(f"{part:<12}{ms:>8.3f}{1000 / ms:>13,.0f}{cores * 1000 / ms:>26,.0f} on {cores} cores")
    return None


if __name__ == "__main__":
    main()
