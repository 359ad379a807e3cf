"""Which of ten defects, planted one by one into a copy of rlf, `rlf chaos` finds, and that it finds none without them.

    python benchmarks/chaos.py [--only NAMES]
    python benchmarks/chaos.py --specs FILES --results FOLDER [--only FAULTS]

A defect is found where the exit code is 3. Each is tried under the one fault that could show it; the copy without a
defect is tried under all of these. The spec is the built-in search, three steps of 16 trajectories.

With `--specs` it tries specs instead, in this order, each under every fault that can strike it (servers and tools only
where it has some): three steps of two prompts. The file FOLDER/SPEC.txt gets a line for each fault; what stands there
is not tried again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rlf.apps.chaos.faults import FAULTS
from rlf.runs.plans import check_spec

ROOT = Path(__file__).parents[1]
SMALL = ["train.prompts_per_step=4", "rollout.num_generations=4", "eval.limit=32", "data.train.limit=32"]
SMALL += ["train.learning_rate=3e-3"]  # so that another update is seen in what is sampled next
LEAST = ["train.prompts_per_step=2", "rollout.num_generations=4"]


@dataclass(frozen=True, slots=True)
class Defect:
    """One change of the source."""

    file: str
    old: str
    new: str
    fault: str


DEFECTS = {
    "what could not be scored is a zero": Defect(
        "rollout/collect.py",
        "known[trajectory.id] = Scored(trajectory, scores=(), reward=None, success=None)",
        "known[trajectory.id] = Scored(trajectory, scores=(), reward=0.0, success=0.0)",
        "interrupt",
    ),
    "a resumed optimizer begins again": Defect(
        "engines/local/checkpoint.py", "    optimizer.load_state_dict(state)\n", "", "kill"
    ),
    "a resumed model has the weights of the start": Defect(
        "engines/local/checkpoint.py", "    load_weights(checkpoint, updater.model)\n", "", "kill"
    ),
    "seeds of rollouts depend on the process": Defect(
        "training/counting.py",
        'derive_seed(seed, "rollout", position',
        'derive_seed(seed, "rollout", __import__("os").getpid(), position',
        "pause",
    ),
    "seeds of evaluations depend on the process": Defect(
        "training/counting.py",
        'derive_seed(seed, "eval", mode',
        'derive_seed(seed, "eval", __import__("os").getpid(), mode',
        "pause",
    ),
    "a resumed run leaves a step out": Defect(
        "engines/local/checkpoint.py",
        'return TrainingProgress(**values | {"late"',
        'return TrainingProgress(**values | {"step": values["step"] + 1, "late"',
        "kill",
    ),
    "a run that was killed is taken for a running one": Defect(
        "lineage/lease.py",
        "    if row.status not in (RunStatus.RUNNING, *HIDDEN):\n        return False\n",
        "    return row.status in (RunStatus.RUNNING, *HIDDEN)\n",
        "kill",
    ),
    "a failed write of the lineage is passed over": Defect(
        "lineage/recorder.py",
        "        if self._failure is not None:\n            raise self._failure\n",
        "        return\n",
        "database",
    ),
    "a finished run stays running": Defect(
        "lineage/recorder.py",
        'row = {"status": event.status, "finished"',
        'row = {"status": RunStatus.RUNNING, "finished"',
        "pause",
    ),
    "what a stop cut off is in no chain": Defect(
        "lineage/recorder.py",
        "self._link(LinkKind.INTERRUPTED, ",
        "(lambda *_: None)(LinkKind.INTERRUPTED, ",
        "interrupt",
    ),
}


def copy_package(folder: Path) -> None:
    """The package and its specs, to be changed."""
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("rlf", "specs", "tool_specs", "reward_specs"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)


def examine(folder: Path, faults: str) -> tuple[int, str]:
    """The exit code of `rlf chaos` in a copy, and what did not hold."""
    command = [sys.executable, "-m", "rlf", "chaos", "specs/search.yaml", *SMALL, "--only", faults, "--json"]
    env = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    try:
        ordeals = json.loads(done.stdout)["data"]["ordeals"]
    except (ValueError, KeyError):
        return done.returncode, (done.stdout + done.stderr)[-300:]
    words = [f"{one['fault']} {one['verdict']}: {'; '.join(one['broken'])}" for one in ordeals]
    return done.returncode, " | ".join(words)


def try_spec(file: Path, results: Path, only: list[str]) -> None:
    """Tries the faults of which the results have no line yet."""
    out = results / f"{file.stem}.txt"
    known = [line.partition(":")[0] for line in out.read_text("utf-8").splitlines()] if out.is_file() else []
    spec = check_spec([file], LEAST).plan.spec
    changes = [*LEAST, *(["eval.limit=4"] if spec.data.eval else [])]
    changes += ["data.demonstrations.steps=1", "data.demonstrations.per_step=4"] if spec.data.demonstrations else []
    servers = ('"kind":"http"', '"kind":"model"', '"endpoints":[{', '"serve":{')
    asks = any(word in spec.model_dump_json() for word in servers)
    faults = [
        fault.name
        for fault in FAULTS
        if fault.name not in known
        and (not only or fault.name in only)
        and (asks or not fault.name.startswith("service "))
        and (spec.tools or spec.env or not fault.overrides)
    ]
    if not faults:
        return
    command = [sys.executable, "-m", "rlf", "chaos", str(file), *changes, "--only", ",".join(faults), "--json"]
    with (
        out.open("a", encoding="utf-8") as lines,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
    ):
        assert process.stderr is not None and process.stdout is not None, "a process without pipes"
        for line in process.stderr:
            print(f"{file.stem}: {line}", end="", flush=True)
            if line.partition(":")[0] in faults:
                print(line, end="", file=lines, flush=True)
        said = process.stdout.read()
    broken = [one for one in json.loads(said or "{}").get("data", {}).get("ordeals", ()) if one["broken"]]
    for one in broken:
        print(f"{file.stem}: {one['fault']}: LOST: {'; '.join(one['broken'])}", flush=True)
    print(f"{file.stem}: exit code {process.returncode}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--specs", nargs="*", type=Path, default=())
    parser.add_argument("--results", type=Path, default=Path())
    given = parser.parse_args()
    for file in given.specs:
        given.results.mkdir(parents=True, exist_ok=True)
        try_spec(file, given.results, [name for name in given.only.split(",") if name])
    if given.specs:
        return
    wanted = [name for name in given.only.split(";") if name]
    num_found = num_tried = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        copy_package(folder)
        faults = ",".join(dict.fromkeys(one.fault for one in DEFECTS.values()))
        if not wanted:
            code, words = examine(folder, faults)
            print(f"no defect: exit code {code}: {words}", flush=True)
        for name, one in DEFECTS.items():
            if wanted and name not in wanted:
                continue
            file = folder / "rlf" / one.file
            whole = file.read_text(encoding="utf-8")
            assert whole.count(one.old) == 1, f"{one.file} has {whole.count(one.old)} times {one.old!r}"
            file.write_text(whole.replace(one.old, one.new), encoding="utf-8")
            code, words = examine(folder, one.fault)
            file.write_text(whole, encoding="utf-8")
            num_tried += 1
            num_found += code == 3
            print(f"{'found' if code == 3 else 'NOT FOUND'} ({code}) {name}: {words}", flush=True)
    print(f"{num_found} of {num_tried} defects are found")


if __name__ == "__main__":
    main()
