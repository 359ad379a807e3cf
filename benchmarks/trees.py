"""Trees of rollouts against groups of whole ones, at equal sampled tokens: `python -m benchmarks.trees`.

On rooms and compose each arm makes the same number of updates, on groups that cost about the same: eight whole
rollouts, or twelve leaves of four trees. The number is held-out success over sampled tokens: the mean height of the
curve until the arm of that seed that samples least is over, and the height there. Prints a row for each arm, with
Student's interval over seeds, and the difference to whole rollouts seed by seed. Continues after a stop.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import fmean

from benchmarks.learning import THREAD, write_interval
from rlf.reports.graded import area_under
from rlf.runs.place import open_reader

_ROOT = Path(__file__).parents[1]
WORLDS = {"rooms": (_ROOT / "specs" / "rooms.yaml", 12), "compose": (_ROOT / "benchmarks/specs/compose.yaml", 8)}
"""The spec and the number of updates."""
_TREE = ("rollout.num_generations=12", "+rollout.tree={roots: 4}")
ARMS = {
    "whole rollouts, grpo": ("train.algorithm=grpo",),
    "trees, tree_grpo": ("train.algorithm=tree_grpo", *_TREE),
}
BASE = next(iter(ARMS))
EVERY = 2


@dataclass(frozen=True, slots=True)
class Curve:
    """Held-out success of one run by the tokens that it had sampled."""

    tokens: list[float]
    success: list[float]

    def until(self, budget: float) -> Curve:
        """The same up to a number of tokens, on the line between two evaluations there."""
        kept = [pair for pair in zip(self.tokens, self.success, strict=True) if pair[0] < budget]
        (at, low), (end, high) = kept[-1], list(zip(self.tokens, self.success, strict=True))[len(kept)]
        kept.append((budget, low + (high - low) * (budget - at) / (end - at)))
        return Curve([at for at, _ in kept], [height for _, height in kept])

    @property
    def area(self) -> float:
        """Its mean height."""
        return area_under(self.tokens, self.success) or 0.0


def run_arm(world: str, arm: str, seed: int, folder: Path) -> None:
    """Trains an arm that is not there yet."""
    spec, steps = WORLDS[world]
    runs = folder / f"{world}-{arm.replace(', ', '-').replace(' ', '_')}-{seed}"
    if (runs / "done").exists():
        return
    fixed = (f"train.steps={steps}", f"eval.every={EVERY}", "eval.limit=64", "checkpoint.every=100", f"seed={seed}")
    command = [sys.executable, "-m", "rlf", "run", str(spec), *fixed, *ARMS[arm], "--runs", str(runs)]
    subprocess.run(
        command,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | THREAD,
        cwd=_ROOT,
    )
    (runs / "done").touch()


def read_arm(world: str, arm: str, seed: int, folder: Path) -> Curve | None:
    """The curve of an arm; None where it is not there."""
    runs = folder / f"{world}-{arm.replace(', ', '-').replace(' ', '_')}-{seed}"
    if not (runs / "done").exists():
        return None
    with open_reader(runs) as reader:
        run_id = reader.get_run("latest").record.id
        sampled = [0, *accumulate(total.num_sampled for total in reader.step_totals(run_id))]
        found = sorted(reader.evaluations(run_id), key=lambda one: one.step)
    return Curve([float(sampled[one.step]) for one in found], [one.metrics["success"] for one in found])


def write_row(world: str, arm: str, curves: dict[str, list[Curve]]) -> str:
    """One arm's row of the table; the curves of all arms are of the same seeds, in their order."""
    budgets = [min(curve.tokens[-1] for curve in one) for one in zip(*curves.values(), strict=True)]
    cut = {name: [one.until(most) for one, most in zip(found, budgets, strict=True)] for name, found in curves.items()}
    areas = {name: [one.area for one in found] for name, found in cut.items()}
    more = [own - base for own, base in zip(areas[arm], areas[BASE], strict=True)]
    cells = [
        world,
        arm,
        str(len(more)),
        f"{fmean(curve.tokens[-1] for curve in curves[arm]) / 1000:.1f}",
        write_interval(areas[arm]),
        "" if arm == BASE else write_interval(more, least=-1),
        write_interval([one.success[-1] for one in cut[arm]]),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Runs the arms of each seed, then prints the table of the seeds that have all of them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="Runs nothing.")
    parser.add_argument("--folder", type=Path, default=Path("build/trees"))
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    if not asked.table:
        folder.mkdir(parents=True, exist_ok=True)
        units = [(world, arm, seed, folder) for seed in range(asked.seeds) for world in WORLDS for arm in ARMS]
        with ThreadPoolExecutor(asked.workers) as workers:
            list(workers.map(lambda unit: run_arm(*unit), units))
    print("| task | rollouts, algorithm | seeds | thousand sampled tokens | area | less the first row's | at the end |")
    print("|---|---|---|---|---|---|---|")
    for world in WORLDS:
        found = [[read_arm(world, arm, seed, folder) for arm in ARMS] for seed in range(asked.seeds)]
        whole = [[curve for curve in one if curve is not None] for one in found]
        seeds = [one for one in whole if len(one) == len(ARMS)]
        curves = {arm: [one[place] for one in seeds] for place, arm in enumerate(ARMS)}
        for arm in ARMS if seeds else ():
            print(write_row(world, arm, curves))


if __name__ == "__main__":
    main()
