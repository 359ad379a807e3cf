"""What training on one built world is worth on others: Solve-F1 by scenario, three seeds, rewards side by side.

python benchmarks/built_worlds.py [--runs runs/built] [--steps 20] [--table]

`builtin:reader` trains on `specs/builds/places.yaml` and is tried on the same pack from another seed (other names,
other tools) and on `specs/builds/ships.yaml` (other relations too). Beside Solve-F1 as the reward: FTRL's own formula,
precision alone, completion alone, rows of prefixes, and the control: results shuffled between names. Started again, the
command continues what is unfinished; each run is one process of one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
THREAD = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(10**11)}
WORLDS = {
    "places": ("places", "build.count=2000"),
    "other seed": ("places", "build.seed=1", "build.count=1000"),
    "other domain": ("ships",),
}
TRAINED, TRIED = "places", ("other seed", "other domain")
SHUFFLED = "shuffled"
SETTINGS = (
    "model.path=builtin:reader",
    "rollout.max_turns=6",
    "rollout.max_total_tokens=768",
    "eval.greedy=false",
    "eval.every=null",
    "engine={kind: local, threads: 1}",
    "lineage.keep=[none]",
    "data.allow_edited=true",  # results that are shuffled between names are no longer as proven
)
VARIANT = "rewards[0].variant"
TURNS = "rewards=[{kind: rule, name: solve, rule: ftrl, variant: f1, match: value, stage: turn}]"
SUCCESS = "success={term: solve, at_least: 1}"
"""Of rewards whose range leaves 0 to 1."""
REWARDS: Mapping[str, tuple[str, ...]] = {
    "solve_f1": (),
    "f1, the paper's": (f"{VARIANT}=f1", SUCCESS),
    "precision": (f"{VARIANT}=precision", SUCCESS),
    "completion": (f"{VARIANT}=completion", SUCCESS),
    "prefix rows": ("+rollout.prefix_rows=true", TURNS, SUCCESS),
}
UNITS = (
    *(("solve_f1", seed, TRAINED) for seed in range(3)),
    ("precision", 0, TRAINED),
    ("completion", 0, TRAINED),
    ("solve_f1", 0, SHUFFLED),
    ("f1, the paper's", 0, TRAINED),
    ("prefix rows", 0, TRAINED),
    *((reward, seed, TRAINED) for seed in (1, 2) for reward in ("precision", "completion")),
)
"""Reward, seed and world of each run."""
NUM_QUESTIONS = 300
SCENARIOS = ("single", "parallel_single", "multi", "parallel_multi")


def rlf(runs: Path, *words: str) -> tuple[str, float]:
    """What a command prints, and the CPU seconds that it took."""
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "rlf", *words], env={**os.environ, **THREAD}, cwd=runs, capture_output=True, text=True
    )
    after = os.times()
    if done.returncode:
        raise SystemExit(f"rlf {' '.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, spent


def build_worlds(runs: Path) -> None:
    """Builds what is not there; a copy of the first world has its results shuffled between names."""
    for name, (file, *overrides) in WORLDS.items():
        if not (folder_of(runs, name) / "certificate.json").is_file():
            rlf(
                runs,
                "env",
                "build",
                str(ROOT / f"specs/builds/{file}.yaml"),
                *overrides,
                f"out={folder_of(runs, name)}",
            )
    if not (folder_of(runs, SHUFFLED) / "certificate.json").is_file():
        import shutil

        shutil.copytree(folder_of(runs, TRAINED), folder_of(runs, SHUFFLED), dirs_exist_ok=True)
        shuffle_values(folder_of(runs, SHUFFLED) / "world.db")


def folder_of(runs: Path, world: str) -> Path:
    """Where a world is."""
    return runs / "worlds" / world.replace(" ", "_")


def shuffle_values(path: Path) -> None:
    """Gives each thing the values of another one: every call finds something, and never what is true."""
    with closing(sqlite3.connect(path)) as connection, connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in set(tables) - {"things"}:
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
            rows = connection.execute(f'SELECT * FROM "{table}" ORDER BY key').fetchall()
            for row, other in zip(rows, rows[1:] + rows[:1], strict=True):
                changes = ", ".join(f'"{column}" = ?' for column in columns[2:])
                connection.execute(f'UPDATE "{table}" SET {changes} WHERE key = ?', (*other[2:], row[0]))


def tried(runs: Path, model: str, world: str) -> dict[str, float]:
    """The metrics of a model on a world that it was not trained on."""
    folder = folder_of(runs, world)
    data = ("--data", str(folder / "train.jsonl"), "--limit", str(NUM_QUESTIONS))
    printed, _ = rlf(
        runs, "eval", model, str(folder / "spec.yaml"), *SETTINGS, *data, "--json", "--runs", "evaluations"
    )
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return next(event["data"]["metrics"] for event in events if event.get("event") == "evaluation")


def trained(runs: Path, reward: str, seed: int, world: str, steps: int) -> tuple[Path, float]:
    """The folder of a run's model, and its CPU seconds."""
    own = (f"seed={seed}", f"train.steps={steps}", *REWARDS[reward])
    folder = f"{reward.replace(' ', '_').replace(',', '')}-{seed}-{world}"
    _, cpu_s = rlf(runs, "run", str(folder_of(runs, world) / "spec.yaml"), *SETTINGS, *own, "--runs", folder)
    return next((runs / folder).glob("*/model")), cpu_s


def measure(runs: Path, steps: int) -> None:
    """Runs what is not measured yet, and keeps each result in a file of its own."""
    build_worlds(runs)
    units: list[tuple[str, int, str] | None] = [None, *UNITS]
    for unit in units:
        path = result_path(runs, unit)
        if path.is_file():
            continue
        model, cpu_s = ("builtin:reader", 0.0) if unit is None else trained(runs, *unit, steps)
        found = {world: tried(runs, str(model), world) for world in TRIED}
        path.write_text(json.dumps({"cpu_s": cpu_s, "worlds": found}), encoding="utf-8")
        print_table(runs)


def result_path(runs: Path, unit: tuple[str, int, str] | None) -> Path:
    """The file of a unit's result; None is the base."""
    return runs / f"{'base' if unit is None else '-'.join(map(str, unit)).replace(' ', '_')}.json"


def print_table(runs: Path) -> None:
    """What is measured so far, Solve figures in percent."""
    figures = "".join(f"{name:>6}" for name in ("F1", "P", "R", "calls"))
    print(f"\n{'reward':16} {'seed':>4} {'trained on':10} {'CPU s':>6} {'tried on':13}{figures}")
    for unit in (None, *UNITS):
        path = result_path(runs, unit)
        if not path.is_file():
            continue
        result = json.loads(path.read_text(encoding="utf-8"))
        reward, seed, world = unit or ("the base", "", "")
        for name, metrics in result["worlds"].items():
            own = f"{reward:16} {seed!s:>4} {world:10} {result['cpu_s']:6.0f} {name:13}"
            print(
                own, *shown(metrics), f"{metrics['tools/calls_per_trajectory']:5.1f}", by_scenario(metrics), flush=True
            )


def shown(metrics: Mapping[str, Any]) -> Sequence[str]:
    """Solve-F1, P and R."""
    return [f"{100 * metrics[f'solve/{part}']:5.1f}" for part in ("f1", "p", "r")]


def by_scenario(metrics: Mapping[str, Any]) -> str:
    """Solve-F1 of each scenario."""
    return "  ".join(f"{name} {100 * metrics[f'solve/f1/{name}']:.0f}" for name in SCENARIOS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/built"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--table", action="store_true", help="Print what is there.")
    arguments = parser.parse_args()
    runs = arguments.runs.resolve()
    runs.mkdir(parents=True, exist_ok=True)
    if arguments.table:
        print_table(runs)
    else:
        measure(runs, arguments.steps)


if __name__ == "__main__":
    main()
