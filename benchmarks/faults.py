"""What training under disturbances brings, undisturbed and under others: `python -m benchmarks.faults [--seeds 3]`.

Two tasks, seed by seed: as it is, and with some of its calls failing. `search`: a base that never makes a failed call
again, by rewards alone, with as many steps. `rooms`: a base that imitates demonstrations first, which in the disturbed
arm make failed calls again; the other arm has more steps of rewards, for as many sampled tokens. Both models then meet
the same held-out tasks undisturbed, and with calls that time out, which neither has met.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

from rlf.apps.demos.rows import DemonstratedTurn, Demonstration, write_demonstration
from rlf.builtin.rooms.vault import COLOURS, plan_vault
from rlf.rollout.disturbed import FAILURES
from rlf.runs.place import open_reader
from rlf.runs.plans import check_spec
from rlf.types import ToolCall

_SPECS = Path(__file__).parents[1] / "specs"
_SHARED = {
    "search": ["rollout.max_turns=8", "rollout.max_total_tokens=448"],
    "rooms": ["rollout.max_turns=14", "rollout.max_total_tokens=512", "rollout.max_new_tokens=16"],
}
_ERRORS = {"search": 0.3, "rooms": 0.3}
_IMITATED = {"search": 0, "rooms": 60}
"""Steps that imitate. Of 64 demonstrations in 14 steps the calls were learnt, and not where a failed one leaves off."""
_STEPS = {"search": (24, 24), "rooms": (7, 4)}
"""Steps of rewards, without and with failures."""
_NUM_SHOWN = 384
WORLDS = {"undisturbed": "null", "time-outs": "{timeouts: 0.3}"}
"""`eval.faults`, by what it is called."""


def write_demonstrations(path: Path, errors: float) -> None:
    """Writes vaults that are opened; a share of calls fails, up to three in a task, and each is made again."""
    rng, rows = random.Random(0), []
    for task in list(check_spec([_SPECS / "rooms.yaml"], []).inputs.train)[:_NUM_SHOWN]:
        plan = plan_vault(task.question.split()[1])
        turns = list[DemonstratedTurn]()
        for room, colour in enumerate(plan.order, start=1):
            call = ToolCall("open", {"vault": plan.name, "door": COLOURS[colour]})
            while rng.random() < errors and len(turns) < room + 2:
                turns.append(DemonstratedTurn("", calls=(call,), results=(rng.choice(FAILURES),)))
            text = plan.room_text(room) if room < len(plan.order) else plan.treasure
            turns.append(DemonstratedTurn("", calls=(call,), results=(text,)))
        rows.append(write_demonstration(Demonstration(task, (*turns, DemonstratedTurn(plan.treasure)))))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def call(*arguments: str) -> str:
    """The last line that `rlf` prints."""
    command = [sys.executable, "-m", "rlf", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout.splitlines()[-1]


def try_arm(task: str, errors: float, seed: int, folder: Path) -> str:
    """Trains with a share of failing calls, once, and tries the model in each world."""
    runs = folder / f"{task}-{errors}-{seed}"
    if not (runs / "done").exists():
        runs.mkdir(parents=True, exist_ok=True)
        steps = _IMITATED[task] + _STEPS[task][errors > 0]
        settings = [
            *_SHARED[task],
            f"train.steps={steps}",
            f"+rollout.faults={{errors: {errors}}}",
            f"seed={seed}",
            "eval.limit=16",
        ]
        if task == "rooms":
            write_demonstrations(runs / "shown.jsonl", errors)
            shown = f"path: {runs / 'shown.jsonl'}, steps: {_IMITATED[task]}, per_step: 16, learning_rate: 1e-3"
            settings.append(f"data.demonstrations={{{shown}}}")
        call("run", str(_SPECS / f"{task}.yaml"), *settings, "eval.every=null", "--runs", str(runs))
        (runs / "done").touch()
    with open_reader(runs) as reader:
        taught = reader.steps(reader.list_runs()[-1].record.id)[_IMITATED[task] :]
    sampled = sum(one.metrics["tokens/sampled"] * one.metrics["groups/kept"] * 8 for one in taught)
    found = []
    for name, disturbed in WORLDS.items():
        asked = [f"+eval.faults={disturbed}", "eval.greedy=false", "--limit", "128", "-k", "1"]
        shown = json.loads(call("eval", "latest", *asked, "--json", "--runs", str(runs)))
        found.append(f"{name} {shown['data']['rows'][0]['success']:.1%}")
    return (
        f"{task} seed {seed}, {errors:.0%} of calls fail in training, {sampled:,.0f} tokens sampled: {', '.join(found)}"
    )


def main() -> None:
    """Tries both arms of each task with each seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", default=",".join(_SHARED), help="With commas.")
    parser.add_argument("--runs", type=Path, default=Path("build/faults"))
    asked = parser.parse_args()
    for task in asked.tasks.split(","):
        for seed in range(asked.seeds):
            for errors in (0.0, _ERRORS[task]):
                print(try_arm(task, errors, seed, asked.runs.resolve()), flush=True)


if __name__ == "__main__":
    main()
