"""Whether `rlf climb` takes the cheapest rung that is enough: `python -m benchmarks.climbs [SPEC ...] [--runs DIR]`.

Three things for each spec. The climb to 80 %; then a climb to 100 %, which tries the rungs that are left too; then the
spec's rewards alone, from its base. Prints what each rung came to, which was taken, which is the cheapest that is
enough, and the tokens that were sampled to teach, beside those of rewards alone. Continues after a stop.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from rlf.lineage.records import TRAIN, TrajectoryFilter
from rlf.reports.evaluations import interval_of
from rlf.runs.place import open_reader

_ROOT = Path(__file__).parents[1]
SPECS = (
    "specs/shop.yaml",
    "specs/rooms.yaml",
    "specs/search.yaml",
    "specs/sql.yaml",
    "specs/code.yaml",
    "specs/cold_start.yaml",
    "specs/cold_start.yaml data.demonstrations=null",
    "benchmarks/specs/bisect.yaml",
    "benchmarks/specs/compose.yaml",
)
TARGET, SAMPLES, LIMIT = 0.8, 2, 128
_ALONE = ("data.demonstrations=null", "eval.every=null", "eval.greedy=false", f"eval.num_samples={SAMPLES}")


def climb(spec: str, target: float, runs: Path, *more: str) -> list[dict[str, Any]]:
    """The rungs of a climb, tried or left out."""
    asked = ["--target", str(target), "-k", str(SAMPLES), f"eval.limit={LIMIT}", "--json", "--runs", str(runs), *more]
    file, *changes = spec.split()
    command = [sys.executable, "-m", "rlf", "climb", str(_ROOT / file), *changes, *asked]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}")
    rungs: list[dict[str, Any]] = json.loads(done.stdout)["data"]["rungs"]
    return [rung for rung in rungs if rung["run_id"] is not None]


def train_alone(spec: str, runs: Path) -> tuple[float, float, int]:
    """Success of the spec's rewards alone, the lower end of its interval, and the tokens sampled to teach."""
    folder = runs / "alone"
    if not (folder / "done").exists():
        file, *changes = spec.split()
        command = [sys.executable, "-m", "rlf", "run", str(_ROOT / file), *changes, *_ALONE, f"eval.limit={LIMIT}"]
        command += ["--runs", str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        (folder / "done").touch()
    with open_reader(folder) as reader:
        run_id = reader.get_run("latest").record.id
        last = max(reader.evaluations(run_id), key=lambda one: one.step).metrics
        played = reader.trajectories(run_id, TrajectoryFilter(phase=TRAIN))
    interval = interval_of(last)
    return last["success"], 0.0 if interval is None else interval.low, sum(one.num_sampled for one in played)


def find_enough(rungs: list[dict[str, Any]]) -> str:
    """The first rung whose interval lies above the target."""
    return next((rung["name"] for rung in rungs if rung["low"] >= TARGET), "none")


def show_climb(spec: str, runs: Path, *more: str) -> str:
    """What a spec's climbs came to, in a few lines.

    Args:
        spec: its file, and changes to it.
        more: further arguments of `rlf climb`.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken, every = climb(spec, TARGET, runs, *more), climb(spec, 1.0, runs, *more)
    success, low, alone = train_alone(spec, runs)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    tokens = sum(rung["num_sampled"] for rung in taken)
    lines = [f"{spec}: took {find_enough(taken)}, the cheapest that is enough is {find_enough(every)}"]
    lines += [
        f"  {rung['name']:15}{rung['success']:7.1%} ({rung['low']:.1%} to {rung['high']:.1%}), "
        f"{rung['num_rollouts']:,} rollouts, {rung['num_sampled']:,} tokens"
        for rung in every
    ]
    lines.append(f"  rewards alone {success:8.1%} (from {low:.1%}), {alone:,} tokens")
    lines.append(
        f"  sampled to teach: {tokens:,} tokens, {tokens / max(1, alone):.0%} of rewards alone; {cpu_s:.0f} s of CPU"
    )
    return "\n".join(lines)


def main() -> None:
    """Climbs with each spec."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("specs", nargs="*", default=SPECS, metavar="SPEC")
    parser.add_argument("--runs", type=Path, default=Path("build/climbs"))
    asked = parser.parse_args()
    for spec in asked.specs:
        file, *changes = spec.split()
        print(show_climb(spec, (asked.runs / "-".join([Path(file).stem, *changes])).resolve()), flush=True)


if __name__ == "__main__":
    main()
