"""A task that needs three windows, with `rollout.context` and without: `python -m benchmarks.contexts [--seeds 3]`.

`specs/rooms.yaml` in a window of 156 tokens, which four of its five rooms fill. With old results left out after the
third room and after the fourth, what is left is the last call, to the token; one new context is not enough. With
summaries a window has 240 tokens, of which 77 are the request of one, and nothing but the summary says in which room
the policy is: by rewards alone; after 20 steps that imitate 64 demonstrations, whose summaries are the last result; and
by these demonstrations alone. Prints held-out success before and after, and in how many windows the last evaluation
succeeded.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections import Counter
from itertools import chain, combinations
from pathlib import Path

from rlf.apps.demos.rows import DemonstratedTurn, Demonstration, write_demonstration
from rlf.apps.demos.steps import play_each
from rlf.builtin.rooms.vault import COLOURS, VaultPlan, plan_vault
from rlf.lineage.records import TrajectoryFilter
from rlf.runs.place import open_reader
from rlf.runs.plans import check_spec
from rlf.types import ToolCall

_SPEC = Path(__file__).parents[1] / "specs" / "rooms.yaml"
_DEMONSTRATIONS = Path("build/contexts.jsonl").resolve()
_IMITATED = f"path: {_DEMONSTRATIONS}, per_step: 16, learning_rate: 1e-3"
_SUMMARIES = [
    "rollout.max_total_tokens=240",
    "rollout.max_turns=12",
    "+rollout.context={limit: 110, keep_last: 0, when_full: summarize}",
    "train.steps=40",
    "eval.every=20",
]
ARMS = {
    "one window": ["rollout.max_total_tokens=156"],
    "drop_results": ["rollout.max_total_tokens=156", "+rollout.context={limit: 127, keep_last: 1}"],
    "summaries": _SUMMARIES,
    "summaries, both": [*_SUMMARIES, f"data.demonstrations={{steps: 20, {_IMITATED}}}"],
    "summaries, demonstrations alone": [
        *_SUMMARIES,
        f"data.demonstrations={{{_IMITATED}}}",
        "train.algorithm=supervised",
    ],
}
"""Overrides of the spec, by arm."""


def write_demonstrations(path: Path) -> None:
    """Writes 64 training tasks solved, with a summary wherever a context is full, as the loop of rollouts says."""
    checked = check_spec([_SPEC], _SUMMARIES)
    rows = []
    for task in list(checked.inputs.train)[:64]:
        plan = plan_vault(task.question.split()[1])
        rooms = range(1, len(plan.order) + 1)
        places = chain.from_iterable(combinations(rooms, number) for number in rooms)
        tried = [Demonstration(task, solve(plan, summed_up)) for summed_up in places]
        played = play_each(checked.plan.spec, tried)
        assert played is not None, "the built-in model has a tokenizer"
        (row,) = (one for one, found in zip(tried, played, strict=True) if not isinstance(found, str))
        rows.append(write_demonstration(row))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def solve(plan: VaultPlan, summed_up: tuple[int, ...]) -> tuple[DemonstratedTurn, ...]:
    """The turns that open a vault; after some rooms a summary, which is what the room says."""
    turns = list[DemonstratedTurn]()
    for room, colour in enumerate(plan.order, start=1):
        text = plan.room_text(room) if room < len(plan.order) else plan.treasure
        call = ToolCall("open", {"vault": plan.name, "door": COLOURS[colour]})
        turns.append(DemonstratedTurn("", calls=(call,), results=(text,)))
        turns += [DemonstratedTurn(text)] * (room in summed_up)
    return (*turns, DemonstratedTurn(plan.treasure))


def run_arm(arm: str, seed: int, folder: Path, steps: int) -> str:
    """Trains an arm, and describes what it came to."""
    settings = ["rollout.max_new_tokens=16", f"train.steps={steps}", f"eval.every={steps // 2}", f"seed={seed}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "rlf", "run", str(_SPEC), *settings, *ARMS[arm], "--runs", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with open_reader(folder) as reader:
        run_id = reader.get_run("latest").record.id
        found = reader.evaluations(run_id)
        steps = max(one.step for one in found)
        rows = reader.trajectories(run_id, TrajectoryFilter(phase="sampled", step=steps))
        played = [reader.trajectory(run_id, k=each.k, phase="sampled", step=steps).scored for each in rows]
    success = ", ".join(f"{100 * one.metrics['success']:.1f} % after {one.step}" for one in found)
    windows = Counter(len(one.trajectory.stretches) for one in played if one.success)
    counted = ", ".join(f"{number} in {size}" for size, number in sorted(windows.items())) or "none"
    return f"{arm:31} seed {seed}: {success} (n = {len(played)}); successes by windows: {counted}; {cpu_s:.0f} s of CPU"


def main() -> None:
    """Runs all arms with each seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--arms", default=";".join(ARMS), help="With semicolons.")
    parser.add_argument("--runs", type=Path, default=Path("build/contexts"))
    asked = parser.parse_args()
    _DEMONSTRATIONS.parent.mkdir(exist_ok=True)
    write_demonstrations(_DEMONSTRATIONS)
    for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
        for arm in asked.arms.split(";"):
            print(run_arm(arm, seed, asked.runs / arm.replace(" ", "_"), asked.steps), flush=True)


if __name__ == "__main__":
    main()
