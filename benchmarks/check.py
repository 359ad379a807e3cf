"""What `rlf --help`, `rlf check` of each shipped spec and the first page of `rlf web` take, beside Python's own start.

Run: `python benchmarks/check.py [--rounds 5] [--only WORDS]`. Prints medians of wall and processor seconds, children
included, and the ratio by the clock to the start of Python with what such a command must load, measured in turns:
pydantic and PyYAML for a check, FastAPI and uvicorn for the page, which is asked for as soon as its address is printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

SPECS = Path(__file__).parents[1] / "specs"
BARE, BARE_WEB = "python, pydantic, yaml", "python, fastapi, uvicorn"
RLF = [sys.executable, "-m", "rlf"]


def seconds(command: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of a command."""
    before, started = os.times(), time.perf_counter()
    subprocess.run(command, capture_output=True, check=False)
    return _since(started, before)


def first_page_seconds() -> tuple[float, float]:
    """Wall and processor seconds from the command to the first page of a project without runs, and its end."""
    before, started = os.times(), time.perf_counter()
    with tempfile.TemporaryDirectory() as runs:
        command = [*RLF, "web", str(SPECS.parent), "--port", "0", "--token", "", "--runs", runs]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            assert server.stdout is not None
            try:
                urllib.request.urlopen(server.stdout.readline().split()[-1], timeout=60).read()
                wall = time.perf_counter() - started
            finally:
                server.terminate()
    return wall, _since(started, before)[1]


def _since(started: float, before: os.times_result) -> tuple[float, float]:
    wall, after = time.perf_counter() - started, os.times()
    return wall, (after.children_user - before.children_user) + (after.children_system - before.children_system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="commands that contain this")
    asked = parser.parse_args()
    commands: dict[str, Callable[[], tuple[float, float]]] = {
        BARE: lambda: seconds([sys.executable, "-c", "import pydantic, yaml"]),
        BARE_WEB: lambda: seconds([sys.executable, "-c", "import fastapi, uvicorn"]),
        "rlf --help": lambda: seconds([*RLF, "--help"]),
        "rlf web, first page": first_page_seconds,
    }
    for path in sorted(SPECS.glob("*.yaml")):
        commands[f"rlf check specs/{path.name}"] = partial(seconds, [*RLF, "check", str(path)])
    commands = {name: one for name, one in commands.items() if asked.only in name or name in (BARE, BARE_WEB)}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(asked.rounds):
        for name, command in commands.items():
            taken[name].append(command())
    print(f"{'command':<48}{'wall s':>8}{'cpu s':>8}{'ratio':>8}   medians of {asked.rounds}")
    for name, pairs in taken.items():
        wall, cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
        bare = statistics.median(wall for wall, _ in taken[BARE_WEB if "web" in name else BARE])
        print(f"{name:<48}{wall:>8.3f}{cpu:>8.3f}{wall / bare:>8.2f}")


if __name__ == "__main__":
    main()
