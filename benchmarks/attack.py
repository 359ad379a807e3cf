"""How many bad rewards the attack finds, and how many sound ones it accuses, of files in `tests/apps/attack`.

    python benchmarks/attack.py [NAME ...] [--seconds 5] [--corpus FILE ...] [--verbose]

Prints each that is missed or accused, then a line per kind. `--corpus` names other files with `DATA` and `CASES` of
the same form. Every reward is attacked in the world of its questions, with a tool that finds what holds the answer.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import logging
import sys
import tempfile
import time
from pathlib import Path

from rlf.apps.attack.attack import attack_reward
from rlf.apps.attack.world import open_world
from rlf.rewards.function import RewardFunction
from rlf.rewards.term import Term
from rlf.runs.declared import rescoring_spec

FOLDER = Path(__file__).parents[1] / "tests" / "apps" / "attack"
HANDS = ("second_hand", "third_hand", "fourth_hand")
CORPORA = tuple(FOLDER / f"{name}.py" for name in ("corpus", "held_out", "held_out_later", *HANDS))
SPEC = """
name: attacked
model: {{path: builtin:tiny}}
data: {{train: {{path: rows.jsonl, prompt: question, answer: answer}}}}
tools:
  - name: search
    description: Finds a passage.
    inputSchema: {{type: object, properties: {{query: {{type: string}}}}, required: [query]}}
    target: {{kind: python, callable: "{folder}/tool.py:search", isolation: inline}}
rewards: [{{kind: rule, name: right, rule: exact_match}}]
rollout: {{max_turns: 5, max_total_tokens: 600}}
train: {{algorithm: grpo}}
"""
TOOL = """
PASSAGES = {passages!r}


def search(query: str) -> str:
    return PASSAGES.get(query, "No passage found.")
"""


def read_corpus(path):
    spec = importlib.util.spec_from_file_location(f"attacked_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def write_spec(folder, rows):
    folder.mkdir()
    shown = {q: " and ".join(a) if isinstance(a, list) else a for q, a in rows.items()}
    passages = {q: f"The records say that it is {a}, as was found last year." for q, a in shown.items()}
    lines = [json.dumps({"question": q, "answer": a}) + "\n" for q, a in rows.items()]
    (folder / "rows.jsonl").write_text("".join(lines))
    (folder / "tool.py").write_text(TOOL.format(passages=passages))
    (folder / "spec.yaml").write_text(SPEC.format(folder=folder))
    return folder / "spec.yaml"


async def attack_cases(path, folder, *, names=(), seconds=0.0):
    """The attack on each case of a file, or on those named, and the seconds that it took."""
    corpus, found = read_corpus(path), {}
    for data, rows in corpus.DATA.items():
        cases = [case for case in corpus.CASES.values() if case.data == data and (not names or case.name in names)]
        if not cases:
            continue
        async with open_world(rescoring_spec([write_spec(folder / data, rows)], []), 6) as world:
            for case in cases:
                terms = [Term.model_validate(each, context={"folder": path.parent}) for each in case.rewards]
                began = time.monotonic()
                async with RewardFunction(terms, world.context) as reward:
                    attack = await attack_reward(world, reward, seconds=seconds)
                found[case.name] = (case, attack, time.monotonic() - began)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--corpus", type=Path, nargs="*", default=CORPORA)
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    found = {}
    for corpus in arguments.corpus:
        with tempfile.TemporaryDirectory() as folder:
            chosen = {"names": arguments.names, "seconds": arguments.seconds}
            found |= asyncio.run(attack_cases(corpus, Path(folder), **chosen))
    for name, (case, attack, took_s) in sorted(found.items()):
        wrong = bool(attack.findings) != case.is_bad or (not case.is_bad and not attack.is_passed)
        if wrong or arguments.verbose:
            mark = ("MISSED" if case.is_bad else "ACCUSED") if wrong else "as it is"
            print(f"{mark:8} {case.data}/{name} ({took_s:.1f} s): {attack.verdict}")
    for words, is_bad in (("bad rewards found", True), ("sound rewards accused", False)):
        of_kind = [(attack, took) for case, attack, took in found.values() if case.is_bad == is_bad]
        number = sum(bool(attack.findings) if is_bad else not attack.is_passed for attack, _ in of_kind)
        slowest = max((took for _, took in of_kind), default=0.0)
        print(f"{words}: {number} of {len(of_kind)}; the slowest took {slowest:.1f} s")


if __name__ == "__main__":
    main()
