"""How many edits of an exported model `rlf verify` names, and whether an untouched one is ever accused.

    python -m benchmarks.proofs --edits 100 --untouched 100

Exports a small run, plants each edit in a copy of the folder, and verifies the copy: bytes of every file, files that
are missing, added or cut, rows of the lineage, and the same with the hashes written again, as somebody does who knows
of them. Untouched copies lie at other places and times.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sqlite3
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from rlf.apps.keep.archive import write_proof
from rlf.apps.keep.export import export_model
from rlf.apps.keep.proof import ClaimState, verify_model
from rlf.core.errors import RlfError
from rlf.core.identity import hash_path
from rlf.runs.start import run

ROOT = Path(__file__).parents[1]
SMALL = (
    *("data.train.limit=64", "data.eval.limit=64", "train.prompts_per_step=2", "rollout.num_generations=4"),
    *("train.steps=4", "eval.every=2", "eval.limit=4", "checkpoint.every=2"),
)
COLUMNS = {
    "steps": ("metrics", "finished"),
    "evaluations": ("metrics", "finished"),
    "trajectories": ("reward", "success", "advantage", "gold", "answer", "num_tokens", "task_id", "stop"),
    "scores": ("value", "weight", "reason", "term"),
    "tool_calls": ("name", "arguments", "outcome", "text", "attempts"),
    "runs": ("plan", "plan_hash", "seed", "name", "packages", "command", "code_version", "last_step"),
    "events": ("text", "level", "data"),
    "files": ("sha256", "path"),
    "links": ("sha256", "place", "digests"),
}


def write_hashes_again(folder):
    file = folder / "rlf_proof.json"
    proof = json.loads(file.read_text())
    proof["files"] = {name: hash_path(folder / name) for name in proof["files"] if (folder / name).exists()}
    file.write_text(json.dumps(proof, indent=1) + "\n")


def edit_byte(folder, rng, name):
    data = bytearray((folder / name).read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    (folder / name).write_bytes(data)


def edit_row(folder, rng, table, column):
    with closing(sqlite3.connect(folder / "rlf_proof.db", isolation_level=None)) as database:
        keys = [
            row[0]
            for row in database.execute(f"SELECT {'trajectory_ref' if table == 'scores' else 'rowid'} FROM {table}")
        ]
        key = "trajectory_ref" if table == "scores" else "rowid"
        changed = f"WHEN 'text' THEN {column} || ' ' WHEN 'blob' THEN {column} || x'00'"
        new = f"CASE typeof({column}) {changed} ELSE coalesce({column}, 0) + 0.5 END"
        database.execute(f"UPDATE {table} SET {column} = {new} WHERE {key} = ?", [rng.choice(keys)])


def delete_row(folder, rng, table):
    with closing(sqlite3.connect(folder / "rlf_proof.db", isolation_level=None)) as database:
        database.execute("PRAGMA foreign_keys = OFF")
        key = "trajectory_ref" if table in ("scores", "payloads") else "rowid"
        keys = [row[0] for row in database.execute(f"SELECT {key} FROM {table}")]
        database.execute(f"DELETE FROM {table} WHERE {key} = ?", [rng.choice(keys)])


def edit_card(folder, rng):
    lines = (folder / "README.md").read_text().splitlines(keepends=True)
    numbered = [at for at, line in enumerate(lines) if any(each.isdigit() for each in line)]
    at = rng.choice(numbered)
    digits = [place for place, each in enumerate(lines[at]) if each.isdigit()]
    place = rng.choice(digits)
    lines[at] = lines[at][:place] + str((int(lines[at][place]) + 1) % 10) + lines[at][place + 1 :]
    (folder / "README.md").write_text("".join(lines))


def all_edits(model, rng):
    """Every edit by name, in an order that any prefix of is a mixture."""
    names = sorted(path.name for path in model.iterdir())
    found = []
    for name in names:
        found += [(f"byte of {name}", lambda folder, name=name: edit_byte(folder, rng, name))] * 3
        found.append(
            (f"end of {name}", lambda folder, name=name: (folder / name).write_bytes((folder / name).read_bytes()[:-1]))
        )
        if name != "rlf_proof.json":
            found.append((f"no {name}", lambda folder, name=name: (folder / name).unlink()))
    found.append(("added file", lambda folder: (folder / "more.py").write_text("")))
    for table, columns in COLUMNS.items():
        for column in columns:
            found.append(
                (
                    f"{table}.{column}, hashes again",
                    lambda folder, table=table, column=column: (
                        edit_row(folder, rng, table, column),
                        write_hashes_again(folder),
                    ),
                )
            )
    for table in (*COLUMNS, "payloads"):
        found.append(
            (
                f"row of {table}, hashes again",
                lambda folder, table=table: (delete_row(folder, rng, table), write_hashes_again(folder)),
            )
        )
    found += [
        ("number on the card, hashes again", lambda folder: (edit_card(folder, rng), write_hashes_again(folder)))
    ] * 6
    rng.shuffle(found)
    return found


def is_named(folder):
    try:
        return any(claim.state is ClaimState.WRONG for claim in verify_model(folder).claims)
    except RlfError:
        return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--edits", type=int, default=100)
    parser.add_argument("--untouched", type=int, default=100)
    arguments = parser.parse_args()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as place:
        base = Path(place)
        run_id = run(
            [ROOT / "specs/search.yaml"],
            SMALL,
            runs_folder=base / "runs",
            view=lambda info: lambda event: None,
            command=["rlf"],
        ).run_id
        model = base / "model"
        export_model(run_id, model, runs_folder=base / "runs", prove=write_proof)
        edits = all_edits(model, rng)
        missed, spent = list[str](), time.process_time()
        for number, (name, change) in enumerate(edits[: arguments.edits]):
            copy = shutil.copytree(model, base / f"edit-{number}", copy_function=shutil.copy)
            change(copy)
            if not is_named(copy):
                missed.append(name)
            shutil.rmtree(copy)
        num = min(arguments.edits, len(edits))
        print(f"edits         {num - len(missed)} of {num} named, missed: {dict(Counter(missed))}")
        print(f"              {(time.process_time() - spent) / max(1, num):.1f} CPU s each", flush=True)
        spent, accused = time.process_time(), 0
        for number in range(arguments.untouched):
            copy = shutil.copytree(model, base / f"copy {number}", copy_function=shutil.copy)
            accused += is_named(copy)
            shutil.rmtree(copy)
        print(f"untouched     {accused} of {arguments.untouched} accused")
        print(f"              {(time.process_time() - spent) / max(1, arguments.untouched):.1f} CPU s each")


if __name__ == "__main__":
    main()
