"""A task that needs three windows, with `rollout.context` and without: `python benchmarks/contexts.py [--seeds 3]`.

`specs/rooms.yaml` in a window of 156 tokens, which four of its five rooms fill. With old results left out after the
third room and after the fourth, what is left is the last call, to the token; one new context is not enough. The last
arm has a window of 240 tokens, of which 77 are the request of a summary, and the policy writes summaries. Prints
held-out success before and after, and in how many windows the last evaluation succeeded.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

from rlf.lineage.records import TrajectoryFilter
from rlf.runs.place import open_reader

_SPEC = Path(__file__).parents[1] / "specs" / "rooms.yaml"
ARMS = {
    "one window": ["rollout.max_total_tokens=156"],
    "drop_results": ["rollout.max_total_tokens=156", "+rollout.context={limit: 127, keep_last: 1}"],
    "summarize": [
        "rollout.max_total_tokens=240",
        "rollout.max_turns=12",
        "+rollout.context={limit: 110, keep_last: 1, when_full: summarize}",
    ],
}
"""Overrides of the spec, by arm."""


def run_arm(arm: str, seed: int, folder: Path, steps: int) -> str:
    """Trains an arm, and describes what it came to."""
    settings = ["rollout.max_new_tokens=16", f"train.steps={steps}", f"eval.every={steps // 2}", f"seed={seed}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "rlf", "run", str(_SPEC), *settings, *ARMS[arm], "--runs", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with open_reader(folder) as reader:
        run_id = reader.get_run("latest").record.id
        found = reader.evaluations(run_id)
        rows = reader.trajectories(run_id, TrajectoryFilter(phase="sampled", step=steps))
        played = [reader.trajectory(run_id, k=each.k, phase="sampled", step=steps).scored for each in rows]
    success = ", ".join(f"{100 * one.metrics['success']:.1f} % after {one.step}" for one in found)
    windows = Counter(len(one.trajectory.stretches) for one in played if one.success)
    counted = ", ".join(f"{number} in {size}" for size, number in sorted(windows.items())) or "none"
    return f"{arm:13} seed {seed}: {success} (n = {len(played)}); successes by windows: {counted}; {cpu_s:.0f} s of CPU"


def main() -> None:
    """Runs all arms with each seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--arms", default=",".join(ARMS), help="With commas.")
    parser.add_argument("--runs", type=Path, default=Path("build/contexts"))
    asked = parser.parse_args()
    for seed in range(asked.seeds):
        for arm in asked.arms.split(","):
            print(run_arm(arm, seed, asked.runs / arm.replace(" ", "_"), asked.steps), flush=True)


if __name__ == "__main__":
    main()
