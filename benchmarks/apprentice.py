"""Self-distillation where rewards see no success: `python -m benchmarks.apprentice [--right 0.03] [--runs DIR]`.

No built-in base follows what a teacher is shown, so this makes one of `builtin:clerk`, by demonstrations alone: with a
text after the question it serves, and without one it says that it is done, but for the share `--right`. `--shown
solution`: the text is the solution of the task. Then two arms with the same tasks, rate and number of rollouts: the
base shown the solutions as its own teacher (`distillation`), and the rewards alone. `--shown failure`: the text is what
a reward says against having done nothing. `--shown error`: without a text the base refunds what it is to cancel, and
the other way round, and the text is the error of that call. In both `rlf climb` is tried, on tasks without solutions.
Held-out success is sampled, and what the base is shown for its second figure is shown nowhere else.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import yaml

from benchmarks.climbs import show_climb
from benchmarks.shown import call, describe, evaluate
from rlf.apps.demos.rows import (
    DemonstratedTurn,
    Demonstration,
    load_demonstrations,
    load_solutions,
    write_demonstration,
)
from rlf.data.source import read_rows
from rlf.reports.evaluations import interval_of
from rlf.rollout.rollout import with_observation
from rlf.runs.place import open_reader
from rlf.types import ToolCall

_SPEC = str(Path(__file__).parents[1] / "specs" / "shop.yaml")
_ROOM = "rollout.max_total_tokens=448"
_FAILED = "An earlier attempt failed:\n"
_REASON = "not found"
"""Of the term `called` where its pattern is not found."""
_WRONG = {"cancel": ("refund", "open"), "refund": ("cancel", "delivered")}
"""By the right tool: the other one, and the state of an order that it refuses."""
STEPS, TRIED = 60, 64


def mix_up(one: Demonstration) -> DemonstratedTurn:
    """The other tool in place of the right one, and its error."""
    call = one.turns[1].calls[0]
    tool, state = _WRONG[call.name]
    error = f"error: PermissionError: {call.arguments['number']} is {state}"
    return DemonstratedTurn("", calls=(ToolCall(tool, call.arguments),), results=(error,))


def write_lessons(solved: Path, path: Path, right: float, texts: Mapping[str, str], shown: str) -> None:
    """Each task twice: solved with its text shown, and without it a share of the times."""
    rng, rows = random.Random(0), []
    for one in load_demonstrations(str(solved)):
        task = one.task
        told = replace(task, id=f"{task.id}-shown", messages=with_observation(task.messages, texts[task.question]))
        rows.append(write_demonstration(Demonstration(told, one.turns, one.tools)))
        failed = (DemonstratedTurn("done"),) if shown != "error" else (one.turns[0], mix_up(one), one.turns[-1])
        turns = one.turns if rng.random() < right else failed
        rows.append(write_demonstration(Demonstration(task, turns, one.tools)))
    rng.shuffle(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_apprentice(folder: Path, right: float, shown: str) -> tuple[str, dict[str, str]]:
    """The folder of the base, and what it follows, by question."""
    folder.mkdir(parents=True, exist_ok=True)
    solved, lessons, runs = folder / "solved.jsonl", folder / "lessons.jsonl", folder / "base"
    if not (folder / "made").exists():
        call("demos", _SPEC, "--gold", "--closing", "done", "-o", str(solved), "--runs", str(runs))
    texts = load_solutions(str(solved))
    if shown != "solution":
        said = {one.task.question: mix_up(one).results[0] for one in load_demonstrations(str(solved))}
        texts = {asked: _FAILED + (said[asked] if shown == "error" else _REASON) for asked in said}
    if not (folder / "made").exists():
        write_lessons(solved, lessons, right, texts, shown)
        imitated = f"data.demonstrations={{path: {lessons}, per_step: 32, learning_rate: 1e-3}}"
        asked = [
            imitated,
            "train.algorithm=supervised",
            f"train.steps={STEPS}",
            "eval.every=null",
            "eval.limit=8",
            _ROOM,
        ]
        call("run", _SPEC, *asked, "--runs", str(runs))
        (folder / "made").touch()
    with open_reader(runs) as reader:
        return str((runs / reader.get_run("latest").record.id / "model").resolve()), texts


def write_spec(base: str, folder: Path, shown: str) -> Path:
    """The shop without solutions; for `failure` with a term that says why nothing was done."""
    rows = [dict(row.values) for row in read_rows("builtin:shop/orders_train", None, "train", None)]
    for row in rows:
        del row["gold"]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "apprentice.yaml"
    called = {"kind": "rule", "name": "called", "rule": "regex", "pattern": "orders", "where": "text", "weight": 0.1}
    spec = {
        "extends": [_SPEC],
        "name": "apprentice",
        "model": {"path": base},
        "data": {"train": {"path": str(folder / "train.jsonl")}},
        "train": {"steps": 24},
        "rewards": [{"kind": "env", "name": "goal", "score": "goal"}, *([called] if shown == "failure" else [])],
    }
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def train(base: str, name: str, changes: list[str], runs: Path) -> str:
    """Trains one arm, once, and describes its held-out success before and after."""
    if not (runs / "done").exists():
        asked = [f"model.path={base}", *changes, "eval.greedy=false", "eval.limit=128", _ROOM]
        call("run", _SPEC, *asked, "--runs", str(runs))
        (runs / "done").touch()
    with open_reader(runs) as reader:
        found = sorted(reader.evaluations(reader.get_run("latest").record.id), key=lambda one: one.step)
    interval = interval_of(found[-1].metrics)
    between = "" if interval is None else f" ({interval.low:.1%} to {interval.high:.1%})"
    curve = ", ".join(f"{one.metrics['success']:.1%} after {one.step}" for one in found)
    return f"{name:13} {curve}{between}"


def main() -> None:
    """Makes the base, tries it, and trains both arms with each seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--rate", default="3e-4")
    parser.add_argument("--right", type=float, default=0.03, help="Share solved without a solution in pretraining.")
    parser.add_argument("--shown", choices=["solution", "failure", "error"], default="solution")
    parser.add_argument("--runs", type=Path, default=Path("build/apprentice"))
    asked = parser.parse_args()
    folder = asked.runs.resolve() / f"{asked.shown}-{asked.right:g}"
    base, texts = make_apprentice(folder, asked.right, asked.shown)
    rows = [dict(row.values) for row in read_rows("builtin:shop/orders_train", None, "train", TRIED)]
    rows = [row | {"with_solution": f"{row['question']}\n\n{texts[row['question']]}"} for row in rows]
    alone, shown = (
        describe(evaluate(_SPEC, base, rows, prompt, folder), folder) for prompt in ("question", "with_solution")
    )
    print(f"the base on {len(rows)} training tasks: alone {alone}, shown the {asked.shown} {shown}", flush=True)
    if asked.shown != "solution":
        print(show_climb(str(write_spec(base, folder, asked.shown)), folder / "climb"))
        return
    arms = {
        "distillation": [f"train.algorithm={{kind: distillation, demonstrations: {folder / 'solved.jsonl'}}}"],
        "rewards": [],
    }
    for seed in range(asked.seeds):
        for name, changes in arms.items():
            settings = [f"train.steps={asked.steps}", f"train.learning_rate={asked.rate}", f"seed={seed}"]
            settings += [f"eval.every={max(1, asked.steps // 3)}"]
            runs = folder / f"{name}-{asked.rate}-{asked.steps}-{seed}"
            print(f"seed {seed}: {train(base, name, [*changes, *settings], runs)}", flush=True)


if __name__ == "__main__":
    main()
