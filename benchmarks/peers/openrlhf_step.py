"""Whole training steps: rlf's local engine beside OpenRLHF with vLLM for CPUs.

Both sides are a whole `rlf run` from the same weights, with the same questions, tools, limits, batch and learning rate,
in float32: `specs/search_openrlhf.yaml` as a job of OpenRLHF, from the environment that `rlf rehearse --setup --vllm`
makes, and `specs/search.yaml` on the local engine. They take turns step by step: one side is stopped (SIGSTOP to all of
its processes) while the other makes a step. A step is the time that its side was running between two reports of steps;
CPU seconds are those of all of its processes. Start-up and first steps are left out.

    rlf rehearse --setup --vllm
    python benchmarks/peers/openrlhf_step.py --model runs/ID/model [--steps 6] [--threads 1]
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from rlf.apps.openrlhf.rehearsal_place import rehearsal_environment

ROOT = Path(__file__).parents[2]
MARK = "RLF_PEER_SIDE"
STEP = re.compile(r"step +(\d+)/\d+ .* reward ([\d.]+)")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SHARED = ["~eval", "~data.eval", "rollout.max_new_tokens=72", "checkpoint.every=1000"]
AS_NICE = {"RAY_worker_niceness": "0"}
"""Ray's workers are nicer than rlf by default, which costs them time on cores that others use too."""
THREADS = """
import sys
from rlf.cli.start import main
from rlf.apps.openrlhf.rehearsal_place import RehearsalEnvironment
threads, variables = sys.argv.pop(1), RehearsalEnvironment.variables
RehearsalEnvironment.variables = lambda self: variables(self) | {"OMP_NUM_THREADS": threads}
main()
"""
"""`rlf` whose jobs have so many threads in each process."""


class Step(NamedTuple):
    """One step of one side."""

    wall_s: float
    cpu_s: float
    reward: float


class Side:
    """A run in processes of its own, which are marked by a variable of their environment."""

    def __init__(self, rlf: list[str], spec: str, overrides: list[str], variables: dict[str, str], runs: Path) -> None:
        self.mark = f"{MARK}={secrets.token_hex(8)}".encode()
        name, value = self.mark.decode().split("=")
        self.log = runs.with_suffix(".log").open("w+")
        self.child = subprocess.Popen(
            [*rlf, "run", str(ROOT / "specs" / spec), *SHARED, *overrides, "--runs", str(runs)],
            env=os.environ | {"PYTHONPATH": str(ROOT), name: value} | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self.known = {self.child.pid}

    def processes(self) -> set[int]:
        """All processes of this side, also those that Ray detached."""
        found = set()
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdecimal() and self.mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(int(folder.name))
            except OSError:  # it ended meanwhile
                continue
        return found

    def send(self, number: int) -> None:
        """Sends a signal to all processes: to those that are known at once, then to those that were started since."""
        reached: set[int] = set()
        while new := self.known - reached:
            for pid in new:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue
            reached |= new
            self.known = self.processes()

    def cpu_s(self) -> float:
        """CPU seconds of all processes, with those of their children that ended."""
        total = 0
        for pid in self.known:
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            total += sum(map(int, fields[11:15]))
        return total / TICKS_PER_S

    def run_step(self) -> Step:
        """Lets the side run until it reports a step, and stops it again."""
        cpu_s, began = self.cpu_s(), time.perf_counter()
        self.send(signal.SIGCONT)
        for line in self.child.stdout:
            if found := STEP.search(line):
                took_s = time.perf_counter() - began
                self.send(signal.SIGSTOP)
                return Step(took_s, self.cpu_s() - cpu_s, float(found[2]))
        self.log.seek(0)
        sys.exit(f"a run ended before its last step; its last words:\n{self.log.read()[-2000:]}")

    def end(self) -> None:
        """Ends the run and all of its processes."""
        self.send(signal.SIGCONT)
        self.child.terminate()
        try:
            self.child.wait(60)
        finally:
            self.send(signal.SIGKILL)


def report(steps: dict[str, list[Step]]) -> None:
    print(f"{'':9} {'wall s':>7} {'range':>14} {'mean':>6} {'CPU s':>7} {'range':>14} {'reward':>7}   medians")
    for name, of in steps.items():
        walls, cpus = [step.wall_s for step in of], [step.cpu_s for step in of]
        wall_range, cpu_range = (f"{min(column):.2f} to {max(column):.2f}" for column in (walls, cpus))
        reward = fmean(step.reward for step in of)
        line = f"{median(walls):7.2f} {wall_range:>14} {fmean(walls):6.2f} {median(cpus):7.2f} {cpu_range:>14}"
        print(f"{name:9} {line} {reward:7.3f}")
    for place, name in ((0, "wall"), (1, "CPU")):
        ratios = sorted(b[place] / a[place] for a, b in zip(steps["rlf"], steps["OpenRLHF"], strict=True))
        print(f"OpenRLHF / rlf, {name}: median {median(ratios):.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f}")


def main(arguments: argparse.Namespace) -> None:
    environment = rehearsal_environment()
    if not environment.is_ready(vllm=True):
        sys.exit("there is no vLLM: run `rlf rehearse --setup --vllm`")
    shared = [f"model.path={Path(arguments.model).resolve()}", f"train.steps={arguments.steps + 10}"]
    sides: dict[str, Side] = {}
    steps: dict[str, list[Step]] = {"rlf": [], "OpenRLHF": []}
    with tempfile.TemporaryDirectory() as folder:
        try:
            sides["OpenRLHF"] = Side(
                [str(environment.python), "-c", THREADS, str(arguments.threads)],
                "search_openrlhf.yaml",
                [*shared, *arguments.openrlhf],
                AS_NICE,
                Path(folder) / "openrlhf",
            )
            sides["OpenRLHF"].run_step()
            sides["rlf"] = Side(
                [sys.executable, "-m", "rlf"], "search.yaml", [*shared, *arguments.rlf], {}, Path(folder) / "rlf"
            )
            sides["rlf"].run_step()
            for _ in range(arguments.steps + 1):
                for name, side in sides.items():
                    steps[name].append(side.run_step())
        finally:
            for side in sides.values():
                side.end()
    report({name: of[1:] for name, of in steps.items()})  # the first warms both up


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder with a trained model")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1, help="of each of OpenRLHF's processes")
    parser.add_argument("--openrlhf", nargs="*", default=[], help="overrides of OpenRLHF's spec")
    parser.add_argument("--rlf", nargs="*", default=[], help="overrides of rlf's spec")
    main(parser.parse_args())
