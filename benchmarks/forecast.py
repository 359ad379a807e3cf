"""How often a step's figure lies in the interval that `rlf forecast` gave for it.

    python benchmarks/forecast.py [--seeds 3] [--steps 3] [--runs FOLDER]

Each of the settings below is forecast from 32 groups, and then run with a learning rate of 1e-12, so that its steps are
those of the model that was forecast. A row is a figure, over settings, seeds and steps: the share of its intervals that
hold it, which 80 % intervals should bring to 70 to 90 %, and the mean width of the intervals. The forecast's groups
are the first of the run, sampled with other seeds; the steps that are compared come after them.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import rlf
from rlf.apps.evaluate.forecast import Forecast, forecast

SPECS = Path(__file__).parents[1] / "specs"
SETTINGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "search": ("search.yaml", ()),
    "search, 4 of each": ("search.yaml", ("rollout.num_generations=4",)),
    "search, 32 groups": ("search.yaml", ("train.prompts_per_step=32",)),
    "search, 1 turn": ("search.yaml", ("rollout.max_turns=1",)),
    "search, cooler": ("search.yaml", ("rollout.temperature=0.6",)),
    "search, short": ("search.yaml", ("rollout.max_total_tokens=150",)),
    "shop": ("shop.yaml", ()),
    "shop, 8 groups": ("shop.yaml", ("train.prompts_per_step=8",)),
    "rooms": ("rooms.yaml", ()),
    "sql": ("sql.yaml", ()),
}
FIGURES = {
    "success": "success",
    "dead": "groups/dead_share",
    "tokens": "tokens/sampled",
    "sampling_s": "time/generate_s",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=None)
    asked = parser.parse_args()
    held: dict[str, list[bool]] = defaultdict(list)
    widths: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        runs_folder = asked.runs or Path(folder)
        for name, (spec, overrides) in SETTINGS.items():
            for seed in range(asked.seeds):
                found, steps = compare(SPECS / spec, [*overrides, f"seed={seed}"], asked.steps, runs_folder)
                line = [f"{name:20} seed {seed}"]
                for figure, metric in FIGURES.items():
                    expected = getattr(found, figure)
                    if expected is None:
                        continue
                    _, low, high = expected
                    inside = [low - 1e-9 <= step[metric] <= high + 1e-9 for step in steps]
                    held[figure] += inside
                    widths[figure].append(high - low)
                    line.append(f"{figure} {sum(inside)} of {len(inside)}")
                print("  ".join(line), flush=True)
    print(f"\n{'figure':12} {'intervals':>9} {'hold':>7} {'mean width':>11}")
    for figure, inside in held.items():
        print(f"{figure:12} {len(inside):9} {100 * fmean(inside):6.1f} % {fmean(widths[figure]):11.3f}")


def compare(
    spec: Path, overrides: list[str], num_steps: int, runs_folder: Path
) -> tuple[Forecast, list[dict[str, float]]]:
    """A forecast, and the metrics of the steps of a run that come after its groups."""
    found = forecast(
        [spec], overrides, num_groups=32, runs_folder=runs_folder, command=["benchmark"], show=lambda shown: None
    )
    skipped = -(-found.num_groups // found.groups_per_step)
    changes = ["train.learning_rate=1e-12", f"train.steps={skipped + num_steps}", "eval.limit=1", "eval.greedy=false"]
    changes += ["checkpoint.every=100", "lineage.keep=[none]"]
    run = rlf.run(spec, overrides=[*overrides, *changes], runs_folder=runs_folder)
    return found, [dict(step.metrics) for step in run.steps()][skipped:]


if __name__ == "__main__":
    main()
