"""Rollouts to 80 % on vaults of three, four and six rooms, by passes and by pools: `python -m benchmarks.curriculum`.

Both arms train on the same mixed set with the same seed, beside each other. The number is that of training rollouts
until held-out success on the mix is 80 %, on the line between two evaluations; an arm that does not come there counts
with all of its rollouts. Prints each pair, and the interval of the difference and of the ratio over seeds. Continues
after a stop.
"""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from benchmarks.embedded.rows import write_questions
from rlf.builtin.encyclopedia.names import NameSplit, split_names
from rlf.builtin.rooms.vault import plan_vault, question
from rlf.reports.statistics import mean_interval
from rlf.runs.place import open_reader

_SPEC = Path(__file__).parents[1] / "specs" / "rooms.yaml"
LEVELS = (3, 4, 6)
"""Rooms of a vault; a third of the questions each."""
ARMS = ("passes", "pools")
STEPS, PROMPTS, SAMPLES, EVERY, TARGET = 40, 4, 8, 4, 0.8


def write_mix(folder: Path) -> None:
    """Writes `train.jsonl` and `heldout.jsonl`, whose rows take the levels in turn."""
    for split, names, count in (("train", NameSplit.TRAIN, 256), ("heldout", NameSplit.HELDOUT, 32)):
        plans = [plan_vault(name) for name in split_names(names)]
        samples = [
            random.Random(f"curriculum:{split}:{level}").sample(
                [plan for plan in plans if len(plan.order) == level], count
            )
            for level in LEVELS
        ]
        rows = [plan for turn in zip(*samples, strict=True) for plan in turn]
        write_questions(
            folder / f"{split}.jsonl", ((question(plan), plan.treasure, f"{len(plan.order)} rooms") for plan in rows)
        )


def run_arm(arm: str, seed: int, folder: Path) -> tuple[int, list[float]]:
    """Trains an arm, or reads what it came to. Returns its rollouts to the target, and its held-out success."""
    runs = folder / f"{arm}-{seed}"
    if not (runs / "done").exists():
        overrides = [
            f"data.train.path={folder / 'train.jsonl'}",
            f"data.eval.path={folder / 'heldout.jsonl'}",
            f"train.sampler={arm}",
            f"train.steps={STEPS}",
            f"train.prompts_per_step={PROMPTS}",
            f"rollout.num_generations={SAMPLES}",
            "rollout.max_total_tokens=280",
            f"eval.every={EVERY}",
            f"eval.limit={32 * len(LEVELS)}",
            "checkpoint.every=100",
            f"seed={seed}",
        ]
        command = [sys.executable, "-m", "rlf", "run", str(_SPEC), *overrides, "--runs", str(runs)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        (runs / "done").touch()
    with open_reader(runs) as reader:
        found = reader.evaluations(reader.get_run("latest").record.id)
    curve = [one.metrics["success"] for one in sorted(found, key=lambda one: one.step)]
    return round(find_crossing(curve) * EVERY * PROMPTS * SAMPLES), curve


def find_crossing(curve: list[float]) -> float:
    """Evaluations after the first at which the line between them comes to the target; else all of them."""
    for at, (one, other) in enumerate(pairwise(curve)):
        if one < TARGET <= other:
            return at + (TARGET - one) / (other - one)
    return len(curve) - 1.0


def main() -> None:
    """Runs both arms with each seed, and compares them in pairs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=5, help="Those below chose the weights of pools.")
    parser.add_argument("--folder", type=Path, default=Path("build/curriculum"))
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    write_mix(asked.folder.resolve())
    pairs = []
    for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
        with ThreadPoolExecutor(len(ARMS)) as pool:
            waiting = {arm: pool.submit(run_arm, arm, seed, asked.folder.resolve()) for arm in ARMS}
        found = {arm: one.result() for arm, one in waiting.items()}
        pairs.append(tuple(found[arm][0] for arm in ARMS))
        for arm in ARMS:
            curve = " ".join(f"{value:.2f}" for value in found[arm][1])
            print(f"seed {seed} {arm:6}: {found[arm][0]:4} rollouts to {TARGET:.0%}; {curve}", flush=True)
    differences = [float(passes - pools) for passes, pools in pairs]
    ratios = [math.log(pools / passes) for passes, pools in pairs]
    saved, ratio = mean_interval(differences), mean_interval(ratios)
    if saved is not None and ratio is not None:
        print(f"rollouts saved by pools: {fmean(differences):.0f} ({saved.low:.0f} to {saved.high:.0f}, 95 %)")
        low, mean, high = (math.exp(value) for value in (ratio.low, fmean(ratios), ratio.high))
        print(f"pools need {mean:.0%} of the rollouts of passes ({low:.0%} to {high:.0%})")


if __name__ == "__main__":
    main()
