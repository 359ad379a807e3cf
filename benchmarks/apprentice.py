"""Self-distillation where rewards see no success: `python -m benchmarks.apprentice [--right 0.03] [--runs DIR]`.

No built-in base follows what a teacher is shown, so this makes one of `builtin:clerk`, by demonstrations alone: with a
text after the question it serves, and without one it says that it is done, but for the share `--right`. `--shown
solution`: the text is the solution of the task. Then two arms with the same tasks, rate and number of rollouts: the
base shown the solutions as its own teacher (`distillation`), and the rewards alone. `--shown failure`: the text is what
a reward says against having done nothing. `--shown error`: one tool of the shop is gone, and without a text the base
calls it; the text is the error of that call, which names the tool in its place. In both `rlf climb` is tried, on tasks
without solutions.
Held-out success is sampled, and what the base is shown for its second figure is shown nowhere else.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
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
from rlf.builtin.shop.world import Shop
from rlf.data.source import read_rows
from rlf.reports.success import interval_of
from rlf.rollout.rollout import with_observation
from rlf.runs.place import open_reader
from rlf.runs.plans import check_spec
from rlf.types import ToolCall

_SPEC = str(Path(__file__).parents[1] / "specs" / "shop.yaml")
_ROOM = "rollout.max_total_tokens=448"
_FAILED = "An earlier attempt failed:\n"
_REASON = "not found"
"""Of the term `called` where its pattern is not found."""
_GONE = "cancel is gone, refund"
"""What the tool says that is gone."""
STEPS, TRIED = {"solution": 60, "failure": 60, "error": 100}, 64
"""Steps that make a base, by what it follows, and the tasks on which it is tried."""


class NewShop(Shop):
    """A shop that refunds open orders too, and cancels no more."""

    def cancel(self, number: str) -> str:
        """Cancel an open order.

        Args:
            number: the order's.
        """
        raise PermissionError(_GONE)

    def refund(self, number: str) -> str:
        """Refund an order.

        Args:
            number: the order's.
        """
        return self._move(number, "open", "cancelled")


def call_what_is_gone(one: Demonstration) -> DemonstratedTurn:
    """The tool that is gone in place of the right one, and its error."""
    gone = ToolCall("cancel", one.turns[1].calls[0].arguments)
    return DemonstratedTurn("", calls=(gone,), results=(f"error: PermissionError: {_GONE}",))


def write_lessons(solved: Path, path: Path, right: float, texts: Mapping[str, str], shown: str) -> None:
    """Each task twice: solved with its text shown, and without it a share of the times."""
    rng, rows = random.Random(0), []
    for one in load_demonstrations(str(solved)):
        task = one.task
        told = replace(task, id=f"{task.id}-shown", messages=with_observation(task.messages, texts[task.question]))
        rows.append(write_demonstration(Demonstration(told, one.turns, one.tools)))
        failed: tuple[DemonstratedTurn, ...] = (DemonstratedTurn("done"),)
        if shown == "error":
            failed = (one.turns[0], call_what_is_gone(one), one.turns[-1])
        turns = one.turns if rng.random() < right else failed
        rows.append(write_demonstration(Demonstration(task, turns, one.tools)))
    rng.shuffle(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_apprentice(folder: Path, right: float, shown: str) -> tuple[str, dict[str, str]]:
    """The folder of the base, and what it follows, by question."""
    spec = str(write_spec(folder, shown, has_solutions=True))
    solved, lessons, runs = folder / "solved.jsonl", folder / "lessons.jsonl", folder / "base"
    if not (folder / "made").exists():
        call("demos", spec, "--gold", "--closing", "done", "-o", str(solved), "--runs", str(runs))
    texts = load_solutions(str(solved))
    if shown != "solution":
        text = f"error: PermissionError: {_GONE}" if shown == "error" else _REASON
        texts = dict.fromkeys(texts, _FAILED + text)
    if not (folder / "made").exists():
        write_lessons(solved, lessons, right, texts, shown)
        imitated = f"data.demonstrations={{path: {lessons}, per_step: 32, learning_rate: 1e-3}}"
        asked = [
            imitated,
            "train.algorithm=supervised",
            f"train.steps={STEPS[shown]}",
            "eval.every=null",
            "eval.limit=8",
            _ROOM,
        ]
        call("run", spec, *asked, "--runs", str(runs))
        (folder / "made").touch()
    with open_reader(runs) as reader:
        return str((runs / reader.get_run("latest").record.id / "model").resolve()), texts


def write_rows(folder: Path, part: str, shown: str, *, has_solutions: bool = False) -> str:
    """The tasks of the shop; for `error` those of open orders, which are solved by another tool."""
    name = f"{part}_solved.jsonl" if has_solutions else f"{part}.jsonl"
    lines = []
    for each in read_rows(f"builtin:shop/orders_{part}", None, part, None):
        row = dict(each.values)
        gold = row.pop("gold")
        if shown == "error":
            if gold[1]["name"] != "cancel":
                continue
            gold = [gold[0], gold[1] | {"name": "refund"}]
        lines.append(json.dumps(row | ({"gold": gold} if has_solutions else {})) + "\n")
    (folder / name).write_text("".join(lines))
    return str(folder / name)


def write_spec(folder: Path, shown: str, *, base: str = "builtin:clerk", has_solutions: bool = False) -> Path:
    """The shop; for `failure` with a term that says why nothing was done, for `error` with a tool that is gone."""
    folder.mkdir(parents=True, exist_ok=True)
    called = {"kind": "rule", "name": "called", "rule": "regex", "pattern": "orders", "where": "text", "weight": 0.1}
    train = write_rows(folder, "train", shown, has_solutions=has_solutions)
    spec = {
        "extends": [_SPEC],
        "name": "apprentice",
        "model": {"path": base},
        "data": {"train": {"path": train}, "eval": {"path": write_rows(folder, "heldout", shown)}},
        "train": {"steps": 24},
        "rewards": [{"kind": "env", "name": "goal", "score": "goal"}, *([called] if shown == "failure" else [])],
    }
    if shown == "error":
        spec["env"] = {"kind": "python", "callable": "benchmarks.apprentice:NewShop", "isolation": "inline"}
    path = Path(train).with_suffix(".yaml")
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def prepare(folder: Path, right: float, shown: str) -> str:
    """Makes a base and tries it; the file of the spec that begins with it, without solutions."""
    base, texts = make_apprentice(folder, right, shown)
    spec = str(write_spec(folder, shown, base=base))
    rows = [dict(row.values) for row in read_rows(str(folder / "train.jsonl"), None, "train", TRIED)]
    rows = [row | {"with_solution": f"{row['question']}\n\n{texts[row['question']]}"} for row in rows]
    alone, helped = (
        describe(evaluate(spec, base, rows, prompt, folder), folder) for prompt in ("question", "with_solution")
    )
    print(f"the base on {len(rows)} training tasks: alone {alone}, shown the {shown} {helped}", file=sys.stderr)
    return spec


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
    spec = prepare(folder, asked.right, asked.shown)
    if asked.shown != "solution":
        print(show_climb(spec, folder / "climb"))
        return
    arms = {
        "distillation": [f"train.algorithm={{kind: distillation, demonstrations: {folder / 'solved.jsonl'}}}"],
        "rewards": [],
    }
    base = str(check_spec([Path(spec)], []).plan.spec.model.path)
    for seed in range(asked.seeds):
        for name, changes in arms.items():
            settings = [f"train.steps={asked.steps}", f"train.learning_rate={asked.rate}", f"seed={seed}"]
            settings += [f"eval.every={max(1, asked.steps // 3)}"]
            runs = folder / f"{name}-{asked.rate}-{asked.steps}-{seed}"
            print(f"seed {seed}: {train(base, name, [*changes, *settings], runs)}", flush=True)


if __name__ == "__main__":
    main()
