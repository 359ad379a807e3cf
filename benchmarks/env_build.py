"""20,000 tasks of the offline builder over all shapes, dials and levels of noise: gates, drops, CPU time, same bytes.

python benchmarks/env_build.py [--tasks 1000]

Each line is one build; the last ones are the sums, tasks a CPU second, and whether a second process with other hashes
made the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rlf.apps.build import BuildSettings
from rlf.apps.build.folder import BuildTally

DIALS = ("function", "parameters", "types", "toolset")
NOISE = ("slight", "medium", "heavy", "union")
_COLUMNS = ("gold", "null", "random", "spam", "guess")
HEADER = f"{'build':16} {'tasks':>6} {' '.join(f'{name:>6}' for name in _COLUMNS)} {'dropped':>8} {'us/task':>8}"


def builds(num_tasks: int) -> dict[str, dict[str, Any]]:
    """Every level of each dial and of noise, each build of the four shapes in equal parts."""
    keys: dict[str, dict[str, Any]] = {
        f"{dial} {level}": {"complexity": {dial: level}} for dial in DIALS for level in range(4)
    }
    keys |= {f"noise {level}": {"noise": level} for level in NOISE}
    return {
        name: {"build": {"kind": "graph", "count": num_tasks, "seed": seed}, "out": "none", **own}
        for seed, (name, own) in enumerate(keys.items())
    }


def made(name: str, keys: dict[str, Any], digest: Any) -> tuple[BuildTally, float, bool]:
    """The sums of a build, its CPU seconds, and whether its gates hold."""
    settings, tally, started = BuildSettings.model_validate(keys), BuildTally(), time.process_time()
    with settings.build.open(settings, Path()) as maker:
        parts = [maker.make(part) for part in maker.names]
    cpu_s = time.process_time() - started
    for part in parts:
        tally.add(part)
        digest.update(json.dumps(part.to_json()).encode())
    return tally, cpu_s, tally.certificate(settings, {}).holds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--digest", action="store_true", help="Print the hash of all bytes alone.")
    arguments = parser.parse_args()
    digest, sums = hashlib.sha256(), [0, 0.0, 0]
    all_hold = True
    if not arguments.digest:
        print(HEADER)
    for name, keys in builds(arguments.tasks).items():
        tally, cpu_s, holds = made(name, keys, digest)
        means = tally.certificate(BuildSettings.model_validate(keys), {}).figures["all"]
        dropped = sum(tally.dropped.values())
        sums = [sums[0] + tally.num_tasks, sums[1] + cpu_s, sums[2] + dropped]
        all_hold &= holds
        if not arguments.digest:
            shown = " ".join(f"{means[key]:6.3f}" for key in ("gold/f1", "null/f1", "random/f1", "spam/f1", "no_tool"))
            print(f"{name:16} {tally.num_tasks:6} {shown} {dropped:8} {1e6 * cpu_s / tally.num_tasks:8.0f}", flush=True)
    if arguments.digest:
        print(digest.hexdigest())
        return
    verdict, rate = "hold" if all_hold else "are BROKEN", sums[0] / sums[1]
    print(f"{sums[0]} tasks, gates {verdict}, {sums[2]} dropped, {rate:.0f} tasks a CPU second")
    command = [sys.executable, __file__, "--digest", "--tasks", str(arguments.tasks)]
    environment = {**os.environ, "PYTHONHASHSEED": "7", "LC_ALL": "C", "TZ": "Asia/Tokyo"}
    other = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    print("a second process made", "the same bytes" if other == digest.hexdigest() else "OTHER BYTES")


if __name__ == "__main__":
    main()
