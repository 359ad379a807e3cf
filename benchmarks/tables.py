"""Learns five tables of users with `rlf init --data` and reports held-out success: `python benchmarks/tables.py`.

The tables are of five domains and made from a seed: names, codes and columns that no pretraining of the built-in model
has. A quarter of a table's rows is held out, so that no name of the evaluation is trained on. `--control` makes the
tool answer with another row: what is left of success then did not come through the tool.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

NUM_ROWS = 200
START, VOWELS, END = "BCDFGHKLMNPRSTVW", "aeiou", "lmnrstxk"
Column = Callable[[random.Random], str]


def name(rng: random.Random) -> str:
    """An invented name of two or three syllables."""
    middle = "".join(rng.choice(VOWELS) + rng.choice("lmnrstvk") for _ in range(rng.randint(1, 2)))
    return rng.choice(START) + middle + rng.choice(VOWELS) + rng.choice(END)


def code(letters: str) -> Column:
    """Codes such as `HV-0417`."""
    return lambda rng: f"{letters}-{rng.randrange(10000):04d}"


def one_of(words: str) -> Column:
    """One of a few words."""
    return lambda rng: rng.choice(words.split())


def number(low: int, high: int) -> Column:
    """A whole number."""
    return lambda rng: str(rng.randint(low, high))


def full_name(rng: random.Random) -> str:
    """A first and a last name."""
    return f"{name(rng)} {name(rng)}"


DOMAINS: dict[str, dict[str, Column]] = {
    "minerals": {
        "mineral": name,
        "hardness": number(1, 10),
        "streak": one_of("white grey ochre black"),
        "quarry": name,
    },
    "hives": {"hive": code("HV"), "queen": full_name, "apiary": name, "frames": number(4, 24), "yield": number(1, 60)},
    "satellites": {"craft": name, "operator": full_name, "payload": number(40, 9000), "launcher": code("LR")},
    "dishes": {"dish": full_name, "chef": full_name, "spice": name, "servings": number(1, 12), "oven": number(90, 260)},
    "vessels": {"vessel": full_name, "skipper": full_name, "harbour": name, "tonnage": number(20, 90000), "flag": name},
}


_LAST_LINE = "    return {row[columns[0]].lower(): row for row in reversed(rows)}"
_SHIFTED_LINES = "    return {row[columns[0]].lower(): other for row, other in zip(rows, rows[1:] + rows[:1])}"


def write_table(path: Path, columns: dict[str, Column], seed: str) -> None:
    """A CSV file of NUM_ROWS rows with distinct keys."""
    rng = random.Random(seed)
    rows: dict[str, list[str]] = {}
    while len(rows) < NUM_ROWS:
        cells = [draw(rng) for draw in columns.values()]
        rows.setdefault(cells[0], cells)
    lines = [",".join(columns), *(",".join(cells) for cells in rows.values())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def shuffle_tool(project: Path) -> None:
    """Makes the project's tool answer each name with the cells of another row."""
    tool = project / "tools" / "look_up.py"
    text = tool.read_text(encoding="utf-8")
    assert _LAST_LINE in text, text
    tool.write_text(text.replace(_LAST_LINE, _SHIFTED_LINES), encoding="utf-8")


def learn(project: Path, seed: int, overrides: list[str]) -> dict[str, float]:
    """Trains a project; held-out success before and after, and the run's CPU seconds."""
    spec = next((project / "specs").glob("*.yaml"))
    command = [sys.executable, "-m", "rlf", "run", str(spec), f"seed={seed}", *overrides, "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, cwd=project, check=False)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    evaluations = [event["data"] for event in events if event.get("event") == "evaluation"]
    success = {(each["step"], each["mode"]): round(each["metrics"]["success"], 3) for each in evaluations}
    steps = [step for step, _ in success]
    figures = {
        f"{mode}_{when}": success[step, mode]
        for when, step in (("before", min(steps)), ("after", max(steps)))
        for mode in ("sampled", "greedy")
        if (step, mode) in success
    }
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**figures, "cpu_s": round(cpu_s, 1)}


def main() -> None:
    """Prints one JSON line for each domain and seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--domains", nargs="*", default=list(DOMAINS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--control", action="store_true")
    parser.add_argument("overrides", nargs="*", help="Settings such as train.steps=20, after `--`.")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for domain in arguments.domains:
        for seed in arguments.seeds:
            with tempfile.TemporaryDirectory() as folder:
                table = Path(folder) / f"{domain}.csv"
                write_table(table, DOMAINS[domain], f"{domain}:{seed}")
                project = Path(folder) / domain
                made = ["init", str(project), "--template", "python", "--data", str(table)]
                subprocess.run([sys.executable, "-m", "rlf", *made], check=True, capture_output=True)
                if arguments.control:
                    shuffle_tool(project)
                print(
                    json.dumps({"domain": domain, "seed": seed, **learn(project, seed, arguments.overrides)}),
                    flush=True,
                )


if __name__ == "__main__":
    main()
