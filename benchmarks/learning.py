"""Every algorithm on the three tasks where something has to be found: how much is learned, how soon, and how surely.

Run: `python benchmarks/learning.py [--quick] [--only TASK] [--runs runs/learning] [--workers 2] [--table]`. Each
setting is a sweep of rlf's over seeds; started again, the command continues what is unfinished. `--quick` is four
settings with three of the five seeds, which the complete table continues; `--only` takes a task or one setting of it,
with `--quick` each with three seeds, and units run in the order in which they are asked for; `--table` prints what is
there without running anything. The curve is the success of each step's own rollouts, on questions that come once in
many steps; `after` is the held-out success after the last step.
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
STEPS_BY_TASK = {"rooms": 25, "bisect": 40, "compose": 30}
NUM_SEEDS, QUICK_SEEDS = 5, 3
HALF = 0.5
WINDOW = 3
"""Steps whose mean success has to reach a half."""
THREAD = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(10**11)}


def name_settings() -> dict[str, tuple[str, ...]]:
    """Overrides by the name of the setting: each estimator as it is, then other rates, bounds and normalisations.

    With one update for each step no ratio leaves 1, so bounds are compared with two.
    """
    from rlf.algo import ESTIMATORS

    names = [name for name in ESTIMATORS.names() if not ESTIMATORS.get(name).needs_teacher]
    settings = {name: (f"train.algorithm={name}",) for name in names}
    grpo, twice = "train.algorithm=grpo", "train.epochs=2"
    return settings | {
        "gae": ("train.algorithm=gae", "train.critic.learning_rate=1e-3"),
        "grpo, rate 1e-4": (grpo, "train.learning_rate=1e-4"),
        "grpo, rate 3e-4": (grpo, "train.learning_rate=3e-4"),
        "grpo, two epochs": (grpo, twice),
        "grpo, two epochs, clip 0.28": (grpo, twice, "train.loss.clip_high=0.28"),
        "reinforce_baseline, no deviation": ("train.algorithm={kind: reinforce_baseline, std_norm: false}",),
    }


BASE = "grpo"
"""What each setting is compared with, seed by seed: equal seeds begin with the same rollouts."""
SLOW = "grpo, rate 1e-4"
QUICK = (BASE, "reinforce_baseline")
"""Settings of the quick mode, which has `SLOW` on compose too: a tenth of the rate of that spec."""
TURNS = "turn credit"
"""rooms_turns.yaml and bisect_turns.yaml as they are: what outcomes alone are held against."""


def _find_spec(name: str) -> Path:
    """A spec that ships, or one of the benchmarks' own."""
    shipped = ROOT / "specs" / f"{name}.yaml"
    return shipped if shipped.exists() else ROOT / "benchmarks" / "specs" / f"{name}.yaml"


@dataclass(frozen=True, slots=True)
class Unit:
    """One setting on one task: a sweep over seeds."""

    task: str
    setting: str
    num_seeds: int

    @property
    def label(self) -> str:
        return f"{self.task}, {self.setting}"

    @property
    def folder(self) -> str:
        return f"{self.task}/{self.setting.replace(', ', '-').replace(' ', '_')}"

    def command(self, folder: Path, first_seed: int) -> list[str]:
        """What starts it from a seed on."""
        spec = f"{self.task}_turns" if self.setting == TURNS else self.task
        own = () if self.setting == TURNS else name_settings()[self.setting]
        fixed = (
            f"train.steps={STEPS_BY_TASK[self.task]}",
            "checkpoint.every=1000",
            "eval.every=null",
            "eval.limit=128",
            "lineage.keep=[none]",
        )
        seeds = "seed=" + ",".join(map(str, range(first_seed, self.num_seeds)))
        files = [str(_find_spec(spec)), *fixed, *own, seeds]
        return [sys.executable, "-m", "rlf", "run", *files, "-m", "--runs", str(folder)]


def list_units(*, quick: bool, only: Sequence[str]) -> list[Unit]:
    """Every unit, or those whose task or `task, setting` is in `only`, in its order; the quick mode has fewer."""
    names = QUICK if quick and not only else tuple(name_settings())
    pairs = [("rooms", TURNS), ("bisect", TURNS), *((task, name) for task in STEPS_BY_TASK for name in names)]
    pairs += [("compose", SLOW)] if quick else []
    units = [Unit(task, name, QUICK_SEEDS if quick else NUM_SEEDS) for task, name in pairs]
    asked = [unit for name in only for unit in units if name in (unit.task, unit.label)]
    return list(dict.fromkeys(asked)) if only else units


def run_unit(unit: Unit, runs: Path) -> None:
    """Starts a unit, continues it, or leaves it as it is where it is finished."""
    folder = runs / unit.folder
    folder.mkdir(parents=True, exist_ok=True)
    unfinished, num_begun = find_begun(folder)
    commands = [[sys.executable, "-m", "rlf", "resume", name, "--runs", str(folder)] for name in unfinished]
    if num_begun < unit.num_seeds:
        commands.append(unit.command(folder, num_begun))
    for command in commands:
        with (folder / "output.txt").open("ab") as output:
            ended = subprocess.run(
                command, env=os.environ | THREAD, stdout=output, stderr=output, check=False, cwd=ROOT
            )
        print(f"{unit.label}: exit {ended.returncode}", file=sys.stderr, flush=True)


def find_begun(folder: Path) -> tuple[list[str], int]:
    """A unit's unfinished sweeps and the number of seeds in all of its sweeps."""
    from rlf.lineage.records import SWEEP
    from rlf.runs.place import open_reader
    from rlf.types.events import RunStatus

    if not (folder / "rlf.db").exists():
        return [], 0
    with open_reader(folder) as reader:
        sweeps = [run for run in reader.list_runs() if run.record.engine == SWEEP]
    unfinished = [sweep.record.id for sweep in sweeps if sweep.status is not RunStatus.FINISHED]
    return unfinished, sum(len(sweep.record.plan["members"]) for sweep in sweeps)


@dataclass(frozen=True, slots=True)
class Curve:
    """What one seed came to."""

    area: float
    """Mean success over the steps."""
    steps_to_half: int | None
    tokens_to_half: float | None
    """Of all trajectories: what sampling and training cost, whatever else the machine does."""
    after: float | None


def read_curve(reader: Reader, run: Run) -> Curve:
    """The curve of one run."""
    from rlf.reports.graded import area_under

    steps = reader.steps(run.record.id)
    success = [step.metrics["success"] for step in steps]
    spec = run.record.plan["spec"]
    trajectories = spec["train"]["prompts_per_step"] * spec["rollout"]["num_generations"]
    tokens = [step.metrics["tokens/total"] * trajectories for step in steps]
    area = area_under([float(step.step) for step in steps], success)
    half = next((k for k in range(WINDOW, len(steps) + 1) if fmean(success[k - WINDOW : k]) >= HALF), None)
    after = [found.metrics["success"] for found in reader.evaluations(run.record.id) if found.mode == "sampled"]
    return Curve(area or 0.0, half, None if half is None else sum(tokens[:half]), after[-1] if after else None)


def read_unit(folder: Path) -> dict[int, Curve]:
    """The curves of a unit's finished runs by their seed."""
    from rlf.lineage.records import SWEEP
    from rlf.runs.place import open_reader
    from rlf.types.events import RunStatus

    if not (folder / "rlf.db").exists():
        return {}
    with open_reader(folder) as reader:
        finished = [run for run in reader.list_runs() if run.status is RunStatus.FINISHED]
        return {run.record.seed: read_curve(reader, run) for run in finished if run.record.engine != SWEEP}


def write_interval(values: Sequence[float], digits: int = 2, least: float = 0.0, most: float = 1.0) -> str:
    """The mean and Student's interval over seeds, within what the values may be."""
    from rlf.reports.graded import mean_interval

    if not values:
        return "-"
    interval = mean_interval(values)
    mean = f"{fmean(values):z.{digits}f}"
    if interval is None:
        return mean
    return f"{mean} [{max(interval.low, least):z.{digits}f}, {min(interval.high, most):z.{digits}f}]"


def write_table(units: Sequence[Unit], runs: Path) -> str:
    """Markdown: a row for each unit, each figure with its interval over seeds, greatest area first."""
    lines = [
        "| task | setting | seeds | area | less the area of grpo | steps to 50 % | thousand tokens to 50 % | after |",
        "|---|---|---|---|---|---|---|---|",
    ]
    found = [(unit, read_unit(runs / unit.folder)) for unit in units]
    bases = {task: read_unit(runs / Unit(task, BASE, NUM_SEEDS).folder) for task in STEPS_BY_TASK}
    order = {task: place for place, task in enumerate(STEPS_BY_TASK)}
    found = [(unit, curves) for unit, curves in found if curves]
    found.sort(key=lambda pair: (order[pair[0].task], -fmean(curve.area for curve in pair[1].values())))
    return "\n".join([*lines, *(write_row(unit, curves, bases[unit.task]) for unit, curves in found)])


def write_row(unit: Unit, curve_by_seed: dict[int, Curve], base_by_seed: dict[int, Curve]) -> str:
    """One unit's row; its areas are compared with those of the same seeds in `base_by_seed`."""
    curves = list(curve_by_seed.values())
    reached = [curve for curve in curves if curve.steps_to_half is not None]
    more = [curve.area - base_by_seed[seed].area for seed, curve in curve_by_seed.items() if seed in base_by_seed]
    steps = write_interval([float(curve.steps_to_half or 0) for curve in reached], 0, most=STEPS_BY_TASK[unit.task])
    cells = [
        unit.task,
        unit.setting,
        str(len(curves)),
        write_interval([curve.area for curve in curves]),
        "" if unit.setting == BASE else write_interval(more, least=-1),
        steps if len(reached) == len(curves) else f"{steps} ({len(reached)} of {len(curves)})",
        write_interval([(curve.tokens_to_half or 0.0) / 1000 for curve in reached], 0, most=inf),
        write_interval([curve.after for curve in curves if curve.after is not None]),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--only", action="append", default=[], metavar="TASK[, SETTING]", help="may be repeated")
    parser.add_argument("--runs", type=Path, default=Path("runs/learning"))
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    units, runs = list_units(quick=asked.quick, only=asked.only), asked.runs.resolve()
    if not asked.table:
        with ThreadPoolExecutor(asked.workers) as workers:
            list(workers.map(lambda unit: run_unit(unit, runs), units))
    print(write_table(units, runs))


if __name__ == "__main__":
    main()
