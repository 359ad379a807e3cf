"""How often `rlf why RUN` names first the one fault that was planted into a run, and what it says of healthy runs.

    python benchmarks/why_run.py [--runs FOLDER] [--only NAMES] [--calibrate]

Twelve short runs of the built-in search have one fault each, from step 20 on or from the first; ten runs of four specs
have none. Thresholds were chosen on the runs of `--calibrate`, which have other seeds, sizes and steps. A run that
FOLDER has is not made again.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rlf.apps.evaluate.explain_run import explain_run
from rlf.apps.evaluate.suspects import BreakKind
from rlf.core.errors import RlfError
from rlf.rollout.signal import CauseKind
from rlf.runs.sink import RunInfo
from rlf.runs.start import run
from rlf.types import RunEvent, StepFinished

ROOT = Path(__file__).parents[1]
CODE = '''\
import os
import time

from rlf.builtin import encyclopedia

ASKED = ["Tukkes town"]


def broken():
    return int(os.environ["PLANTED_STEP"]) >= int(os.environ["PLANTED_FROM"])


def lying(query):
    """The passage of what was asked some calls before, once it is broken."""
    ASKED.append(query)
    return encyclopedia.search(ASKED[-7 % len(ASKED)] if broken() else query)


def failing(query):
    if broken() and hash(query) % 5:
        raise RuntimeError("index shard is not loaded")
    return encyclopedia.search(query)


def slow(query):
    if broken():
        time.sleep(0.3)
    return encyclopedia.search(query)


def short(query):
    found = encyclopedia.search(query)
    return found[:12] if broken() else found


def right(trajectory):
    return float((trajectory.answer or "").strip().lower() == str(trajectory.task.answer).strip().lower())


def flips(trajectory):
    return 1 - right(trajectory) if broken() else right(trajectory)


def shy(trajectory):
    return None if broken() and len(trajectory.task.messages[0].content) % 2 else right(trajectory)


def brief(trajectory):
    return 1.0 / len(trajectory.turns)
'''


def tool(function: str) -> list[Any]:
    target = {"kind": "python", "callable": f"own.py:{function}", "isolation": "inline"}
    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    limits = {"timeout_s": 5, "max_concurrency": 64}
    search = {"name": "search", "description": "Find passages.", "inputSchema": schema, "target": target}
    return [search | {"limits": limits}, str(ROOT / "tool_specs/calculator.yaml")]


def term(function: str, **keys: Any) -> dict[str, Any]:
    return {"kind": "python", "name": function, "callable": f"own.py:{function}", "range": [0, 1], **keys}


RIGHT = {"kind": "rule", "name": "exact_match", "rule": "exact_match"}
SHORT = ("train.steps=10",)  # broken from the start, and slow: they write until they are cut
DATA = {"prompt": "question", "answer": "answer", "kind": "kind"}


@dataclass(frozen=True, slots=True)
class Plant:
    """A run, and what is wrong with it."""

    kind: CauseKind | BreakKind | None
    """None: nothing."""
    keys: dict[str, Any] = field(default_factory=dict)
    spec: str = "search"
    overrides: tuple[str, ...] = ()


PLANTS = {
    "a tool that lies": Plant(BreakKind.TOOL_LIES, {"tools": tool("lying")}),
    "a tool that fails": Plant(CauseKind.TOOLS_FAIL, {"tools": tool("failing")}),
    "a tool that is slow": Plant(BreakKind.TOOL_SLOW, {"tools": tool("slow")}),
    "results that are cut": Plant(CauseKind.RESULTS_CUT, {"tools": tool("short")}),
    "a reward that flips": Plant(BreakKind.REWARD_CHANGED, {"rewards": [term("flips")]}),
    "a term without a value": Plant(CauseKind.NOT_SCORED, {"rewards": [term("shy")]}),
    "a tenth of the data wrong": Plant(BreakKind.WRONG_GOLDS, {"data": "wrong"}),
    "an evaluation leak": Plant(BreakKind.LEAK, {"data": "leak"}),
    "a learning rate too high": Plant(BreakKind.POLICY_BROKE, overrides=("train.learning_rate=0.02", *SHORT)),
    "a template that drops calls": Plant(CauseKind.NEVER_PARSED, {"chat": {"format": "react"}}, overrides=SHORT),
    "turns of few tokens": Plant(CauseKind.TRUNCATED, {"rollout": {"max_new_tokens": 6}}, overrides=SHORT),
    "pay for something else": Plant(BreakKind.OTHER_TERM_PAYS, {"rewards": [RIGHT, term("brief", weight=4.0)]}),
}
HEALTHY = {
    "search": Plant(None),
    "search, another seed": Plant(None, overrides=("seed=11",)),
    "search, slowly": Plant(None, overrides=("train.learning_rate=6e-5",)),
    "search, cooler": Plant(None, overrides=("rollout.temperature=0.7",)),
    "shop": Plant(None, spec="shop"),
    "shop, by groups": Plant(None, spec="shop", overrides=("train.algorithm=grpo",)),
    "rooms": Plant(None, spec="rooms"),
    "rooms, another seed": Plant(None, spec="rooms", overrides=("seed=12",)),
    "sql": Plant(None, spec="sql"),
    "sql, slowly": Plant(None, spec="sql", overrides=("train.learning_rate=1e-4",)),
}


def rows(wrong: bool) -> list[dict[str, Any]]:
    lines = (ROOT / "rlf/builtin/encyclopedia/data/train.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    if wrong:
        for at in range(0, len(found), 10):
            others = [row for row in found if row["kind"] == found[at]["kind"]]
            found[at]["answer"] = others[(at * 7 + 3) % len(others)]["answer"]
    return found


def write_project(folder: Path, plant: Plant, calibrate: bool, seed: int) -> list[str]:
    """The project's spec; returns the overrides."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.py").write_text(CODE, encoding="utf-8")
    text = (ROOT / f"specs/{plant.spec}.yaml").read_text(encoding="utf-8").replace("../", f"{ROOT}/")
    spec: dict[str, Any] = yaml.safe_load(text)
    for key, value in plant.keys.items():  # not layered: a list of another layer is merged by name
        spec[key] = {**spec[key], **value} if key == "rollout" else value
    if "data" in plant.keys:
        made = rows(plant.keys["data"] == "wrong")
        (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made), encoding="utf-8")
        own = {"path": "train.jsonl", **DATA, "limit": 256}
        held_out = {"path": "builtin:encyclopedia/heldout", **DATA}
        spec["data"] = {"train": own, "eval": own if plant.keys["data"] == "leak" else held_out}
    (folder / "spec.yaml").write_text(json.dumps(spec), encoding="utf-8")
    steps, groups, seed = (24, 12, seed + 104) if calibrate else (30, 16, seed)
    sizes = [f"train.steps={steps}", f"train.prompts_per_step={groups}", "rollout.num_generations=4", f"seed={seed}"]
    if plant.spec != "search":
        sizes = [f"train.steps={steps - 10}", f"seed={seed}"]
    rest = ["eval.limit=96", f"eval.every={steps // 2}", "eval.greedy=false", "checkpoint.every=1000"]
    return [*sizes, *rest, *(one for one in plant.overrides if not (calibrate and one.startswith("seed=")))]


def folder_of(name: str) -> str:
    return name.replace(" ", "-").replace(",", "")


def make_run(folder: Path, name: str, plant: Plant, calibrate: bool, seed: int) -> None:
    """Makes the run where it is not there."""
    place = folder / folder_of(name)
    if (place / "done").exists():
        return
    overrides = write_project(place, plant, calibrate, seed)
    os.environ |= {"PLANTED_STEP": "1", "PLANTED_FROM": "14" if calibrate else "20"}

    def view(info: RunInfo) -> Any:
        def take(event: RunEvent) -> None:
            if isinstance(event, StepFinished):
                os.environ["PLANTED_STEP"] = str(event.step + 1)

        return take

    try:
        run([place / "spec.yaml"], overrides, runs_folder=place / "runs", view=view, command=["benchmark"])
    except RlfError as error:
        print(f"  {name}: {error}")
    (place / "done").touch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--only", default="", help="names, with semicolons")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--calibrate", action="store_true")
    asked = parser.parse_args()
    num_named = num_planted = num_alarms = num_healthy = 0
    for name, plant in {**PLANTS, **HEALTHY}.items():
        if asked.only and name not in asked.only.split(";"):
            continue
        make_run(asked.runs, name, plant, asked.calibrate, asked.seed)
        found = explain_run("latest", asked.runs / folder_of(name) / "runs")
        first = found.suspects[0].kind if found.suspects else None
        print(
            f"{name:28} {first or 'nothing':16} {found.suspects[0].seen if first else found.verdict.line}", flush=True
        )
        num_planted += plant.kind is not None
        num_named += plant.kind is not None and first is plant.kind
        num_healthy += plant.kind is None
        num_alarms += plant.kind is None and first is not None
    print(f"named first: {num_named} of {num_planted}; alarms on healthy runs: {num_alarms} of {num_healthy}")


if __name__ == "__main__":
    main()
