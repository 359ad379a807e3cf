"""What `rlf --help` and `rlf check` of each shipped spec take, beside Python starting with what a check must load.

Run: `python benchmarks/check.py [--rounds 5]`. Prints medians of wall and processor seconds, children included, and the
ratio to the start of Python with pydantic and PyYAML alone, measured in turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

SPECS = Path(__file__).parents[1] / "specs"
BARE = [sys.executable, "-c", "import pydantic, yaml"]
RLF = [sys.executable, "-m", "rlf"]


def seconds(command: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of a command."""
    before, started = os.times(), time.perf_counter()
    subprocess.run(command, capture_output=True, check=False)
    wall, after = time.perf_counter() - started, os.times()
    return wall, (after.children_user - before.children_user) + (after.children_system - before.children_system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    commands = {"python, pydantic, yaml": BARE, "rlf --help": [*RLF, "--help"]}
    commands |= {f"rlf check specs/{path.name}": [*RLF, "check", str(path)] for path in sorted(SPECS.glob("*.yaml"))}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            taken[name].append(seconds(command))
    bare = statistics.median(wall for wall, _ in taken["python, pydantic, yaml"])
    print(f"{'command':<48}{'wall s':>8}{'cpu s':>8}{'ratio':>8}   medians of {rounds}")
    for name, pairs in taken.items():
        wall, cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"{name:<48}{wall:>8.3f}{cpu:>8.3f}{wall / bare:>8.2f}")


if __name__ == "__main__":
    main()
