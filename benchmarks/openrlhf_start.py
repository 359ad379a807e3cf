"""What rlf adds to the start of a job on OpenRLHF: a run in the environment of rehearsals, and its job by hand.

    python benchmarks/openrlhf_start.py [--rounds 1]       (needs `rlf rehearse --setup`)

First the stages of the run: seconds since the command by the clock, CPU seconds of rlf's own process, and those of its
children that have ended. Then the same job is started by hand from its folder: Ray with the same options, and
`launch.sh`. Both end with their first record of a trajectory; the last line has the seconds until then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from rlf.apps.openrlhf.job import Job, read_place  # noqa: E402
from rlf.apps.openrlhf.process import LOOPBACK_ONLY, local_ray, logged  # noqa: E402
from rlf.apps.openrlhf.rehearsal_place import rehearsal_environment  # noqa: E402

SIZES = ["train.steps=1", "train.prompts_per_step=4", "~data.eval", "~eval"]
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> tuple[float, float]:
    """CPU seconds of a process, and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own_user, own_system, user, system = (int(field) / TICKS for field in fields[11:15])
    return own_user + own_system, user + system


def has_record(spool: Path) -> bool:
    return any(file.stat().st_size for file in spool.rglob("*") if file.is_file())


def by_rlf(runs: Path) -> float:
    """Seconds until the first record; the run is stopped then."""
    command = [rehearsal_environment().command, "run", ROOT / "specs" / "search_openrlhf.yaml", *SIZES, "--runs", runs]
    started = time.monotonic()
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def show() -> None:
        for line in run.stdout:
            if ("info: " in line or "warning: " in line) and run.poll() is None:
                own_s, children_s = cpu_s(run.pid)
                print(f"{time.monotonic() - started:7.1f} {own_s:6.2f} {children_s:9.2f}  {line.strip()[:90]}")

    shown = threading.Thread(target=show)
    shown.start()
    while not any(map(has_record, runs.glob("*/job/spool"))):
        if run.poll() is not None:
            sys.exit(f"the run ended before it had sampled: exit code {run.returncode}")
        time.sleep(0.05)
    taken_s = time.monotonic() - started
    run.send_signal(signal.SIGINT)
    run.wait()
    shown.join()
    return taken_s


async def by_hand(job: Job) -> float:
    """Seconds until the first record."""
    for left in (job.spool, job.checkpoints):
        shutil.rmtree(left, ignore_errors=True)
    place = read_place(job)
    environment = place.environment(json.loads(job.env.read_text())["set"] | LOOPBACK_ONLY)
    started = time.monotonic()
    shared = {"environment": environment, "folder": job.folder}
    async with local_ray(place, log=job.folder / "logs" / "ray-hand.log", **shared) as (address, _):
        environment["RAY_ADDRESS"] = address
        async with logged(["bash", str(job.launch)], log=job.folder / "logs" / "hand.log", **shared) as process:
            while not has_record(job.spool):
                if process.returncode is not None:
                    sys.exit((job.folder / "logs" / "hand.log").read_text()[-2000:])
                await asyncio.sleep(0.05)
            return time.monotonic() - started


def main(rounds: int) -> None:
    ours, hands = [], []
    print(f"{'s':>7} {'CPU s':>6} {'children':>9}")
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as runs:
            ours.append(by_rlf(Path(runs)))
            (folder,) = Path(runs).glob("*/job")
            hands.append(asyncio.run(by_hand(Job.of_run(folder.parent, None))))
        print(f"until the first record: rlf {ours[-1]:.1f}, by hand {hands[-1]:.1f}", flush=True)
    added = [one - other for one, other in zip(ours, hands, strict=True)]
    print(f"rlf {median(ours):.1f}, by hand {median(hands):.1f}, rlf adds {median(added):.1f} s   medians of {rounds}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=1)
    main(parser.parse_args().rounds)
