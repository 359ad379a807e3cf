"""Whether a base makes use of what a teacher would see: `python -m benchmarks.shown [NAME ...] [--runs DIR]`.

Self-distillation (`train.algorithm: distillation`) has something to teach only where the policy does better with a
solution, or with what went wrong, in its prompt. So for each base and task of the training set: success alone, and with
the solution after the question, as the teacher is shown it; then for tasks that failed and where something is said
against it, success when they are tried again, and with that text. Solutions are the world's own (`--gold`), or those of
a short run of the spec. Nothing is trained on what is shown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlf.apps.demos.rows import load_solutions
from rlf.apps.demos.teaching import describe_failures
from rlf.data.source import read_rows
from rlf.lineage.records import TrajectoryFilter
from rlf.reports.success import interval_of
from rlf.runs.place import open_reader
from rlf.runs.plans import check_spec

_ROOT = Path(__file__).parents[1]
SPECS: Mapping[str, tuple[str, int | None]] = {
    "shop": ("specs/shop.yaml", None),
    "cold_start": ("specs/cold_start.yaml", None),
    "search": ("specs/search.yaml", 8),
    "rooms": ("specs/rooms.yaml", 12),
    "compose": ("benchmarks/specs/compose.yaml", 16),
    "code": ("specs/code.yaml", 8),
    "sql": ("specs/sql.yaml", 10),
}
"""The spec, and the steps of the run whose rollouts are the solutions; None: its worlds know them."""
NUM_TASKS, SAMPLES = 64, 2
_ALONE, _SOLUTION, _FAILURE = "question", "with_solution", "with_failure"


def call(*arguments: str) -> str:
    """What `rlf` prints."""
    command = [sys.executable, "-m", "rlf", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def find_solutions(spec: str, steps: int | None, folder: Path) -> dict[str, str]:
    """The text that a teacher is shown, by question."""
    file, runs = folder / "solutions.jsonl", folder / "solver"
    if not file.exists():
        origin = ["--gold"]
        if steps is not None:
            call("run", spec, f"train.steps={steps}", "eval.every=null", "eval.limit=8", "--runs", str(runs))
            origin = ["--run", "latest", "--best", "1"]
        call("demos", spec, *origin, "--closing", "done", "--runs", str(runs), "-o", str(file))
    return load_solutions(str(file))


def evaluate(spec: str, model: str, rows: Sequence[Mapping[str, Any]], prompt: str, folder: Path) -> str:
    """Plays rows under one of their prompts; the id of the evaluation, whose runs folder is `prompt`."""
    file = folder / f"{prompt}-{len(rows)}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = [f"data.eval.path={file}", f"data.eval.prompt={prompt}", "data.demonstrations=null", "eval.greedy=false"]
    asked = ["rollout.max_total_tokens=512", "--limit", str(len(rows)), "-k", str(SAMPLES), "--json"]
    shown = json.loads(call("eval", model, spec, *changes, *asked, "--runs", str(folder / "runs")).splitlines()[-1])
    return str(shown["data"]["rows"][0]["run_id"])


def describe(run_id: str, folder: Path) -> str:
    """Success of an evaluation with its interval."""
    with open_reader(folder / "runs") as reader:
        metrics = reader.evaluations(run_id)[0].metrics
    interval = interval_of(metrics)
    between = "" if interval is None else f" ({interval.low:.1%} to {interval.high:.1%})"
    return f"{metrics['success']:.1%}{between}"


def find_failures(run_id: str, folder: Path) -> dict[str, str]:
    """What is said against the first failed try at each question that has one."""
    found: dict[str, str] = {}
    with open_reader(folder / "runs") as reader:
        for each in reader.trajectories(run_id, TrajectoryFilter(phase="sampled")):
            scored = reader.trajectory(run_id, k=each.k, phase="sampled", step=each.step).scored
            text = describe_failures(scored)
            if text and scored.success is not None and scored.success < 1:
                found.setdefault(scored.trajectory.task.question, text)
    return found


def show(name: str, folder: Path) -> str:
    """What one base does with and without what a teacher sees."""
    file, steps = SPECS[name]
    spec = str(_ROOT / file)
    folder.mkdir(parents=True, exist_ok=True)
    declared = check_spec([Path(spec)], ["data.demonstrations=null"]).plan.spec
    solutions = find_solutions(spec, steps, folder)
    rows = [dict(row.values) for row in read_rows(declared.data.train.path, None, "train", None)]
    rows = [row | {_SOLUTION: f"{row[_ALONE]}\n\n{solutions[row[_ALONE]]}"} for row in rows if row[_ALONE] in solutions]
    rows = rows[:NUM_TASKS]
    alone = evaluate(spec, declared.model.path, rows, _ALONE, folder)
    shown = evaluate(spec, declared.model.path, rows, _SOLUTION, folder)
    lines = [f"{name}, {len(rows)} tasks: alone {describe(alone, folder)}, shown a solution {describe(shown, folder)}"]
    failures = find_failures(alone, folder)
    failed = [row | {_FAILURE: f"{row[_ALONE]}\n\n{failures[row[_ALONE]]}"} for row in rows if row[_ALONE] in failures]
    if len(failed) == len(rows):  # the same rows under the same prompt are the same evaluation
        failed = failed[:-1]
    if failed:
        again, helped = (evaluate(spec, declared.model.path, failed, prompt, folder) for prompt in (_ALONE, _FAILURE))
        lines.append(
            f"  {len(failed)} that failed with words: again {describe(again, folder)}, "
            f"shown these words {describe(helped, folder)}"
        )
    return "\n".join(lines)


def main() -> None:
    """Tries each base."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", default=list(SPECS), metavar="NAME")
    parser.add_argument("--runs", type=Path, default=Path("build/shown"))
    asked = parser.parse_args()
    for name in asked.names:
        print(show(name, (asked.runs / name).resolve()), flush=True)


if __name__ == "__main__":
    main()
