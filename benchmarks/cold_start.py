"""From a base that never writes a call to one that serves: `python benchmarks/cold_start.py [--seeds 3] [--runs DIR]`.

Three arms of `specs/cold_start.yaml`, seed by seed: demonstrations and then reinforcement learning, demonstrations
alone, reinforcement learning alone. Prints held-out success, greedy and sampled, and each arm's CPU time.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from pathlib import Path

from rlf.runs.place import open_reader

_SPEC = Path(__file__).parents[1] / "specs" / "cold_start.yaml"
ARMS = {
    "both": [],
    "demonstrations alone": ["data.demonstrations.steps=null", "train.algorithm=supervised"],
    "reinforcement learning alone": ["data.demonstrations=null"],
}
"""Overrides of the spec, by arm."""


def run_arm(arm: str, seed: int, folder: Path) -> str:
    """Trains an arm, and describes what it came to."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "rlf", "run", str(_SPEC), *ARMS[arm], f"seed={seed}", "--runs", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with open_reader(folder) as reader:
        found = reader.evaluations(reader.get_run("latest").record.id)
    success = ", ".join(f"{one.mode} {100 * one.metrics['success']:.1f} % after {one.step}" for one in found)
    return f"{arm:30} seed {seed}: {success}; {cpu_s:.0f} s of CPU"


def main() -> None:
    """Runs all arms with each seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=Path("build/cold_start"))
    asked = parser.parse_args()
    for seed in range(asked.seeds):
        for arm in ARMS:
            print(run_arm(arm, seed, asked.runs / arm.replace(" ", "_")), flush=True)


if __name__ == "__main__":
    main()
