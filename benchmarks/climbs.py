"""Whether `rlf climb` takes the cheapest rung that is enough: `python -m benchmarks.climbs [SPEC ...] [--runs DIR]`.

Three things for each spec. The climb to 80 %; then a climb to 100 %, which tries the rungs that are left too; then the
spec's rewards alone, from its base: where they are not enough, until they have sampled twice what the climb sampled.
Prints what each rung came to, which was taken, which is the cheapest that is enough, and the tokens that were sampled
to teach, beside those of rewards alone. Without a spec these are eight tasks, two for each rung, and a row of a table
for each. Continues after a stop.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlf.lineage.records import TRAIN, TrajectoryFilter
from rlf.reports.success import interval_of
from rlf.runs.place import open_reader

_ROOT = Path(__file__).parents[1]
SHIPPED = {
    "shop": "specs/shop.yaml",
    "cold start": "specs/cold_start.yaml data.demonstrations=null",
    "rooms": "specs/rooms.yaml",
    "search": "specs/search.yaml",
}
"""Of the eight tasks those that ship: two that demonstrations solve, the tasks' own, and two that rewards do."""
TARGET, SAMPLES, LIMIT, HALF = 0.8, 2, 128, 0.5
_ALONE = ("data.demonstrations=null", "eval.every=null", "eval.greedy=false", f"eval.num_samples={SAMPLES}")


@dataclass(frozen=True, slots=True)
class Alone:
    """What the spec's rewards alone came to."""

    success: float
    low: float
    """Of its interval."""
    num_sampled: int
    num_steps: int


@dataclass(frozen=True, slots=True)
class Climbed:
    """What a spec's climbs came to."""

    taken: list[dict[str, Any]]
    """The rungs up to the one that was enough."""
    every: list[dict[str, Any]]
    """Those of a climb to 100 %."""
    alone: Alone
    cpu_s: float

    @property
    def num_sampled(self) -> int:
        """Tokens that the climb sampled to teach."""
        return sum(rung["num_sampled"] for rung in self.taken)

    @property
    def share(self) -> float:
        """Of the tokens of rewards alone."""
        return self.num_sampled / max(1, self.alone.num_sampled)


def climb(spec: str, target: float, runs: Path, *more: str) -> list[dict[str, Any]]:
    """The rungs of a climb, tried or left out."""
    asked = ["--target", str(target), "-k", str(SAMPLES), f"eval.limit={LIMIT}", "--json", "--runs", str(runs), *more]
    file, *changes = spec.split()
    command = [sys.executable, "-m", "rlf", "climb", str(_ROOT / file), *changes, *asked]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}")
    rungs: list[dict[str, Any]] = json.loads(done.stdout)["data"]["rungs"]
    return [rung for rung in rungs if rung["run_id"] is not None]


def train_alone(spec: str, runs: Path, least: int, *more: str) -> Alone:
    """Trains by the spec's rewards alone.

    Args:
        least: tokens that are sampled, where fewer are not enough.
    """
    folder, steps = runs / "alone", list[str]()
    while True:
        if not (folder / "done").exists():
            file, *changes = spec.split()
            command = [sys.executable, "-m", "rlf", "run", str(_ROOT / file), *changes, *_ALONE, f"eval.limit={LIMIT}"]
            command += [*more, *steps, "--json", "--runs", str(folder)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            (folder / "done").write_text(json.loads(done.stdout.splitlines()[-1])["data"]["run_id"], encoding="utf-8")
        found = read_alone(folder)
        if found.low >= TARGET or found.num_sampled >= least:
            return found
        num_steps = math.ceil(1.1 * found.num_steps * least / found.num_sampled)
        folder, steps = runs / f"alone-{num_steps}", [f"train.steps={num_steps}"]


def read_alone(folder: Path) -> Alone:
    """What the run came to that `done` names: a folder may hold others, which were stopped."""
    with open_reader(folder) as reader:
        run_id = reader.get_run((folder / "done").read_text(encoding="utf-8") or "latest").record.id
        last = max(reader.evaluations(run_id), key=lambda one: one.step)
        played = reader.trajectories(run_id, TrajectoryFilter(phase=TRAIN))
    interval = interval_of(last.metrics)
    low = 0.0 if interval is None else interval.low
    return Alone(last.metrics["success"], low, sum(one.num_sampled for one in played), last.step)


def find_enough(rungs: list[dict[str, Any]]) -> str:
    """The first rung whose interval lies above the target."""
    return next((rung["name"] for rung in rungs if rung["low"] >= TARGET), "none")


def try_spec(spec: str, runs: Path, *more: str, changes: tuple[str, ...] = ()) -> Climbed:
    """Climbs with a spec, and trains by its rewards alone.

    Args:
        spec: its file, and changes to it.
        more: further arguments of `rlf climb`.
        changes: further ones to the spec.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken, every = (climb(spec, target, runs, *more, *changes) for target in (TARGET, 1.0))
    alone = train_alone(spec, runs, 2 * sum(rung["num_sampled"] for rung in taken), *changes)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Climbed(taken, every, alone, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def show_climb(spec: str, runs: Path, *more: str) -> str:
    """What a spec's climbs came to, in a few lines."""
    done = try_spec(spec, runs, *more)
    taken, cheapest = find_enough(done.taken), find_enough(done.every)
    lines = [f"{spec}: took {taken}, the cheapest that is enough is {cheapest}"]
    lines += [
        f"  {rung['name']:15}{rung['success']:7.1%} ({rung['low']:.1%} to {rung['high']:.1%}), "
        f"{rung['num_rollouts']:,} rollouts, {rung['num_sampled']:,} tokens"
        for rung in done.every
    ]
    alone = done.alone
    lines.append(f"  rewards alone {alone.success:8.1%} (from {alone.low:.1%}), {alone.num_sampled:,} tokens")
    lines.append(
        f"  sampled to teach: {done.num_sampled:,} tokens, {done.share:.0%} of rewards alone; {done.cpu_s:.0f} s of CPU"
    )
    return "\n".join(lines)


def row(name: str, done: Climbed) -> str:
    """A row of the table."""
    last, alone = done.taken[-1], done.alone
    reached = f"{last['success']:.1%} ({last['low']:.1%} to {last['high']:.1%})"
    cells = [name, f"{done.taken[0]['success']:.1%}", find_enough(done.taken), reached, find_enough(done.every)]
    cells += [f"{done.num_sampled:,}", f"{alone.success:.1%} with {alone.num_sampled:,}", f"{done.share:.0%}"]
    return f"| {' | '.join(cells)} |"


def try_eight(runs: Path, changes: tuple[str, ...]) -> Iterator[tuple[str, Climbed]]:
    """The tasks of the table, each with what its climbs came to."""
    from benchmarks import apprentice, prompts  # both show their climbs by this module

    folder = runs / "prompts"
    folder.mkdir(parents=True, exist_ok=True)
    with prompts.serving_writer() as url:
        for name, path in prompts.write_specs(folder).items():
            writer = ("--writer-endpoint", url, "--writer-model", "cutter")
            yield f"prompts, {name}", try_spec(str(path), folder / name, *writer, changes=changes)
    for name in ("shop", "cold start"):
        yield name, try_spec(SHIPPED[name], runs / name.replace(" ", "-"), changes=changes)
    for shown in ("failure", "error"):
        spec = apprentice.prepare(runs / shown, 0.0, shown)
        yield f"apprentice, {shown}", try_spec(spec, runs / shown / "climb", changes=changes)
    for name in ("rooms", "search"):
        yield name, try_spec(SHIPPED[name], runs / name, changes=changes)


def main() -> None:
    """Climbs with each spec, or with the eight tasks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("specs", nargs="*", metavar="SPEC")
    parser.add_argument("--seed", type=int, default=0, help="Of the eight tasks.")
    parser.add_argument("--runs", type=Path, default=Path("build/climbs"))
    asked = parser.parse_args()
    for spec in asked.specs:
        file, *changes = spec.split()
        print(show_climb(spec, (asked.runs / "-".join([Path(file).stem, *changes])).resolve()), flush=True)
    if asked.specs:
        return
    print("| task | base | taken | success | cheapest enough | sampled to teach | rewards alone | share |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    right = few = 0
    for name, done in try_eight((asked.runs / f"eight-{asked.seed}").resolve(), (f"seed={asked.seed}",)):
        print(row(name, done), flush=True)
        right += find_enough(done.taken) == find_enough(done.every) != "none"
        few += done.share <= HALF
    print(f"the cheapest that is enough: {right} of 8; at most {HALF:.0%} of the tokens of rewards alone: {few} of 8")


if __name__ == "__main__":
    main()
