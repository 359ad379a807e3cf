"""Every algorithm on the three tasks where something has to be found: how much is learned, how soon, and how surely.

Run: `python benchmarks/learning.py [--quick] [--runs runs/learning] [--workers 2] [--table]`. Each setting is a sweep
of rlf's over seeds; started again, the command continues what is unfinished. `--quick` is four settings, three seeds
and half of the steps; `--table` prints what is there without running anything. The curve is the success of each
step's own rollouts, on questions that come once in many steps; `after` is the held-out success after the last step.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader
    from rlf.lineage.records import Run

ROOT = Path(__file__).parents[1]
STEPS_BY_TASK = {"rooms": 50, "bisect": 80, "compose": 60}
NUM_SEEDS, QUICK_SEEDS = 5, 3
HALF = 0.5
WINDOW = 3
"""Steps whose mean success has to reach a half."""
THREAD = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(10**11)}


def name_settings() -> dict[str, tuple[str, ...]]:
    """Overrides by the name of the setting: each estimator as it is, then other rates, bounds and normalisations."""
    from rlf.algo import ESTIMATORS

    settings = {name: (f"train.algorithm={name}",) for name in ESTIMATORS.names()}
    grpo = "train.algorithm=grpo"
    return settings | {
        "gae": ("train.algorithm=gae", "train.critic.learning_rate=1e-3"),
        "grpo, rate 1e-4": (grpo, "train.learning_rate=1e-4"),
        "grpo, rate 3e-4": (grpo, "train.learning_rate=3e-4"),
        "grpo, clip 0.28": (grpo, "train.loss.clip_high=0.28"),
        "reinforce_baseline, no deviation": ("train.algorithm={kind: reinforce_baseline, std_norm: false}",),
    }


SLOW = "grpo, rate 1e-4"
QUICK = ("grpo", "reinforce_baseline")
"""Settings of the quick mode, which has `SLOW` on compose too: a tenth of the rate of that spec."""
TURNS = "turn credit"
"""rooms_turns.yaml and bisect_turns.yaml as they are: what outcomes alone are held against."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One setting on one task: a sweep over seeds."""

    task: str
    setting: str
    seeds: int
    steps: int

    @property
    def folder(self) -> str:
        return f"{self.task}/{self.setting.replace(', ', '-').replace(' ', '_')}-{self.steps}"

    def command(self, runs: Path) -> list[str]:
        """What starts it."""
        spec = f"{self.task}_turns" if self.setting == TURNS else self.task
        own = () if self.setting == TURNS else name_settings()[self.setting]
        fixed = (
            f"train.steps={self.steps}",
            "checkpoint.every=1000",
            "eval.every=null",
            "eval.limit=128",
            "lineage.keep=[none]",
        )
        seeds = "seed=" + ",".join(map(str, range(self.seeds)))
        files = [str(ROOT / f"specs/{spec}.yaml"), *fixed, *own, seeds]
        return [sys.executable, "-m", "rlf", "run", *files, "-m", "--runs", str(runs / self.folder)]


def list_units(*, quick: bool, seeds: int | None, only: Sequence[str]) -> list[Unit]:
    """Every unit whose `task, setting` is in `only`, or all; the quick mode has fewer and shorter ones."""
    names = QUICK if quick else tuple(name_settings())
    pairs = [(task, name) for name in names for task in STEPS_BY_TASK]
    pairs += [("rooms", TURNS), ("bisect", TURNS), *([("compose", SLOW)] if quick else [])]
    num_seeds = seeds or (QUICK_SEEDS if quick else NUM_SEEDS)
    units = [Unit(task, name, num_seeds, STEPS_BY_TASK[task] // (2 if quick else 1)) for task, name in pairs]
    return [unit for unit in units if not only or f"{unit.task}, {unit.setting}" in only]


def run_unit(unit: Unit, runs: Path) -> None:
    """Starts a unit, continues it, or leaves it as it is where it is finished."""
    from rlf.types.events import RunStatus

    sweep = find_sweep(runs / unit.folder)
    if sweep is not None and sweep.status is RunStatus.FINISHED:
        return
    folder = str(runs / unit.folder)
    command = (
        [sys.executable, "-m", "rlf", "resume", sweep.record.id, "--runs", folder] if sweep else unit.command(runs)
    )
    (runs / unit.folder).mkdir(parents=True, exist_ok=True)
    with (runs / unit.folder / "output.txt").open("ab") as output:
        ended = subprocess.run(command, env=os.environ | THREAD, stdout=output, stderr=output, check=False, cwd=ROOT)
    print(f"{unit.task}, {unit.setting}: exit {ended.returncode}", file=sys.stderr, flush=True)


def find_sweep(folder: Path) -> Run | None:
    """The unit's sweep; None where it was not begun."""
    from rlf.api.lineage import open_reader
    from rlf.lineage.records import SWEEP

    if not (folder / "rlf.db").exists():
        return None
    with open_reader(folder) as reader:
        return next((run for run in reader.list_runs() if run.record.engine == SWEEP), None)


@dataclass(frozen=True, slots=True)
class Curve:
    """What one seed came to."""

    area: float
    """Mean success over the steps."""
    steps_to_half: int | None
    seconds_to_half: float | None
    after: float | None


def read_curve(reader: Reader, run: Run) -> Curve | None:
    """The curve of one run; None before its second step."""
    from rlf.reports.statistics import area_under

    steps = reader.steps(run.record.id)
    if len(steps) < WINDOW:
        return None
    success = [step.metrics["success"] for step in steps]
    seconds = [step.metrics["time/generate_s"] + step.metrics["time/update_s"] for step in steps]
    area = area_under([float(step.step) for step in steps], success)
    half = next((k for k in range(WINDOW, len(steps) + 1) if fmean(success[k - WINDOW : k]) >= HALF), None)
    after = [found.metrics["success"] for found in reader.evaluations(run.record.id) if found.mode == "sampled"]
    return Curve(area or 0.0, half, None if half is None else sum(seconds[:half]), after[-1] if after else None)


def read_unit(folder: Path) -> list[Curve]:
    """The curves of a unit's seeds."""
    from rlf.api.lineage import open_reader
    from rlf.lineage.records import SWEEP

    if not (folder / "rlf.db").exists():
        return []
    with open_reader(folder) as reader:
        runs = [run for run in reversed(reader.list_runs()) if run.record.engine != SWEEP]
        return [curve for run in runs if (curve := read_curve(reader, run)) is not None]


def write_interval(values: Sequence[float], digits: int = 2, most: float = 1.0) -> str:
    """The mean and Student's interval over seeds, within what the values may be: 0 to `most`."""
    from rlf.reports.statistics import mean_interval

    if not values:
        return "-"
    interval = mean_interval(values)
    mean = f"{fmean(values):.{digits}f}"
    if interval is None:
        return mean
    return f"{mean} [{max(interval.low, 0):.{digits}f}, {min(interval.high, most):.{digits}f}]"


def write_table(units: Sequence[Unit], runs: Path) -> str:
    """Markdown: a row for each unit, each figure with its interval over seeds, greatest area first."""
    lines = [
        "| task | setting | seeds | area | steps to 50 % | seconds to 50 % | after |",
        "|---|---|---|---|---|---|---|",
    ]
    found = [(unit, read_unit(runs / unit.folder)) for unit in units]
    order = {task: place for place, task in enumerate(STEPS_BY_TASK)}
    found = [(unit, curves) for unit, curves in found if curves]
    found.sort(key=lambda pair: (order[pair[0].task], -fmean(curve.area for curve in pair[1])))
    for unit, curves in found:
        reached = [curve for curve in curves if curve.steps_to_half is not None]
        steps = write_interval([float(curve.steps_to_half or 0) for curve in reached], 0, unit.steps)
        seconds = write_interval([curve.seconds_to_half or 0.0 for curve in reached], 0, inf)
        note = "" if len(reached) == len(curves) else f" ({len(reached)} of {len(curves)})"
        after = write_interval([curve.after for curve in curves if curve.after is not None])
        area = write_interval([curve.area for curve in curves])
        lines.append(f"| {unit.task} | {unit.setting} | {len(curves)} | {area} | {steps}{note} | {seconds} | {after} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--seeds", type=int, help="how many, 2 or more; 5, or 3 of the quick mode")
    parser.add_argument("--only", action="append", default=[], metavar="TASK, SETTING", help="may be repeated")
    parser.add_argument("--runs", type=Path, default=Path("runs/learning"))
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    if asked.seeds == 1:
        parser.error("--seeds 1: a sweep needs two or more")
    units, runs = list_units(quick=asked.quick, seeds=asked.seeds, only=asked.only), asked.runs.resolve()
    if not asked.table:
        with ThreadPoolExecutor(asked.workers) as workers:
            list(workers.map(lambda unit: run_unit(unit, runs), units))
    print(write_table(units, runs))


if __name__ == "__main__":
    main()
