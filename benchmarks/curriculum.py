"""Rollouts to 80 % on vaults of three, four and six rooms, by passes and by pools: `python -m benchmarks.curriculum`.

The base opens about 12, 9 and 0 of a hundred. With `--mix hard` most vaults are of the longest, in training as in
what is asked; with `--mix easy` most of those in training are of the shortest, and all three are asked alike. In both
about half of all groups teach by passes, so that a sampler can save half at most. A curriculum is for the case where
few of them do: with `--mix rare` five vaults of six in training are of the longest, which the base never opens. Of 8
rollouts at 12 and 9 of a hundred about 64 and 53 groups of 100 teach, so that by passes it is one group of ten, and by
pools, which take four fifths of all draws from what teaches, about one of two. Somebody who trains on such a set wants
all three lengths, so that they are asked alike; and the arm by passes begins five times slower, so that both have 60
steps and not 40. This was decided before any run of it. Both
arms train on the same set with the same seed, beside each other. The number is that of training rollouts until
held-out success is 80 %, on the line between two evaluations; an arm stops there, and one that does not come there
counts with all of its rollouts. Prints each pair, and the interval of the difference and of the ratio
over seeds. Continues after a stop.
"""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from benchmarks.embedded.rows import write_questions
from rlf.builtin.encyclopedia.names import NameSplit, split_names
from rlf.builtin.rooms.vault import plan_vault, question
from rlf.reports.graded import mean_interval
from rlf.runs.place import open_reader

_SPEC = Path(__file__).parents[1] / "specs" / "rooms.yaml"
MIXES = {
    "hard": ({3: 1, 4: 1, 6: 4}, {3: 1, 4: 1, 6: 4}, 40),
    "easy": ({3: 6, 4: 1, 6: 1}, {3: 1, 4: 1, 6: 1}, 40),
    "rare": ({3: 1, 4: 1, 6: 10}, {3: 1, 4: 1, 6: 1}, 60),
}
"""Shares of the questions by the rooms of a vault: of those that are trained on, of those that are held out; steps."""
ARMS = ("passes", "pools")
RATE = 5e-4
"""Half of the spec's: with groups that teach in every step, that one breaks the policy now and then."""
PROMPTS, SAMPLES, EVERY, TARGET = 4, 8, 4, 0.8


@dataclass(frozen=True)
class Arm:
    """What an arm came to."""

    rollouts: int
    """Until the target; all, where it was not reached."""
    curve: list[float]
    """Held-out success, by evaluation."""
    taught: float
    """Share of the groups whose rewards differ, of those until it stopped."""


def write_mix(folder: Path, mix: str) -> None:
    """Writes `train.jsonl` and `heldout.jsonl`, in an order of chance."""
    trained, asked, _ = MIXES[mix]
    for split, names, shares, count in (
        ("train", NameSplit.TRAIN, trained, 768),
        ("heldout", NameSplit.HELDOUT, asked, 96),
    ):
        plans, rows = [plan_vault(name) for name in split_names(names)], []
        for level, share in shares.items():
            of_level = [plan for plan in plans if len(plan.order) == level]
            rng = random.Random(f"curriculum:{split}:{level}")
            rows += rng.sample(of_level, count * share // sum(shares.values()))
        random.Random(0).shuffle(rows)
        write_questions(
            folder / f"{split}.jsonl", ((question(plan), plan.treasure, f"{len(plan.order)} rooms") for plan in rows)
        )


def read_curve(runs: Path) -> list[float]:
    """Held-out success of the run in a folder so far."""
    if not any(runs.glob("*/evaluations")) and not any(runs.glob("2*")):
        return []
    with open_reader(runs) as reader:
        found = reader.evaluations(reader.get_run("latest").record.id)
    return [one.metrics["success"] for one in sorted(found, key=lambda one: one.step)]


def run_arm(arm: str, seed: int, folder: Path, steps: int) -> Arm:
    """Trains an arm until it is at the target, or reads what it came to."""
    runs = folder / f"{arm}-{seed}"
    if not (runs / "done").exists():
        overrides = [
            f"data.train.path={folder / 'train.jsonl'}",
            f"data.eval.path={folder / 'heldout.jsonl'}",
            f"train.sampler={arm}",
            f"train.steps={steps}",
            f"train.learning_rate={RATE}",
            f"train.prompts_per_step={PROMPTS}",
            f"rollout.num_generations={SAMPLES}",
            "rollout.max_total_tokens=280",
            f"eval.every={EVERY}",
            "eval.limit=96",
            "checkpoint.every=100",
            f"seed={seed}",
        ]
        command = [sys.executable, "-m", "rlf", "run", str(_SPEC), *overrides, "--runs", str(runs)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            time.sleep(4)
            if any(value >= TARGET for value in read_curve(runs)):
                process.terminate()
                process.wait()
                break
        else:
            assert process.returncode == 0, f"{arm}, seed {seed}: exit code {process.returncode}"
        (runs / "done").touch()
    curve = read_curve(runs)
    at = find_crossing(curve)
    with open_reader(runs) as reader:
        taken = reader.steps(reader.get_run("latest").record.id)
    taught = fmean(1 - one.metrics["groups/dead_share"] for one in taken if one.step <= max(1, round(at * EVERY)))
    return Arm(round(at * EVERY * PROMPTS * SAMPLES), curve, taught)


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
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--mix", choices=MIXES, default="hard")
    parser.add_argument("--folder", type=Path, default=Path("build/curriculum"), help="One for each mix stands in it.")
    parser.add_argument("--at-once", type=int, default=len(ARMS), help="Arms beside each other.")
    asked = parser.parse_args()
    folder = asked.folder.resolve() / asked.mix
    folder.mkdir(parents=True, exist_ok=True)
    write_mix(folder, asked.mix)
    pairs = []
    for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
        with ThreadPoolExecutor(asked.at_once) as pool:
            waiting = {arm: pool.submit(run_arm, arm, seed, folder, MIXES[asked.mix][2]) for arm in ARMS}
        found = {arm: one.result() for arm, one in waiting.items()}
        pairs.append(tuple(found[arm].rollouts for arm in ARMS))
        for arm in ARMS:
            curve = " ".join(f"{value:.2f}" for value in found[arm].curve)
            reached = f"{found[arm].rollouts:4} rollouts to {TARGET:.0%}, {found[arm].taught:.0%} of groups teach"
            print(f"seed {seed} {arm:6}: {reached}; {curve}", flush=True)
    differences = [float(passes - pools) for passes, pools in pairs]
    ratios = [math.log(pools / passes) for passes, pools in pairs]
    saved, ratio = mean_interval(differences), mean_interval(ratios)
    if saved is not None and ratio is not None:
        print(f"rollouts saved by pools: {fmean(differences):.0f} ({saved.low:.0f} to {saved.high:.0f}, 95 %)")
        low, mean, high = (math.exp(value) for value in (ratio.low, fmean(ratios), ratio.high))
        print(f"pools need {mean:.0%} of the rollouts of passes ({low:.0%} to {high:.0%})")


if __name__ == "__main__":
    main()
