"""Whether `rlf forecast` knows which runs learn, why others do not, and what a run's tools cost.

    python -m benchmarks.forecast_learns --runs FOLDER [--cases design|held-back|second|third] [--only NAMES]

Each spec is forecast from 32 groups and then run for 12 steps; a run has learned where its own verdict says so. The
rule of the forecast was chosen on the specs of `--cases design`. The others were kept back: thirty, of which ten cannot
learn; of these, the first cause is compared with what was planted. A run that FOLDER has is not made again. Those of
`third` cannot learn by what they are, and are not run.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from benchmarks.why_run import DATA, RIGHT, term, tool
from rlf.apps.evaluate.forecast import Forecast, forecast
from rlf.core.errors import RlfError
from rlf.lineage.calls import read_costs
from rlf.reports.verdict import VerdictKind, read_verdict
from rlf.runs.place import open_reader
from rlf.runs.start import run
from rlf.types import RunStatus

ROOT = Path(__file__).parents[1]
CODE = '''\
from rlf.builtin import encyclopedia
from rlf.types import ToolOutput


def priced(query):
    """The search, at a tenth of a cent."""
    return ToolOutput(encyclopedia.search(query), usage={"cost_usd": 0.001})


def wordy(query):
    """What is found comes after a preamble that is longer than the results may be."""
    words = "Results of the encyclopedia, in the order of how well they match the words of the query, best first,"
    return words + " are: " + priced(query).text


def down(query):
    raise RuntimeError("index shard is not loaded")


def locked(vault, door):
    raise RuntimeError("the vault does not answer")


def no_database(query):
    raise RuntimeError("the database does not answer")


def no_interpreter(code):
    raise OSError("no interpreter is installed")


def right(trajectory):
    return float((trajectory.answer or "").strip().lower() == str(trajectory.task.answer).strip().lower())


def always(trajectory):
    return 0.5


def never(trajectory):
    return None


def unreachable(trajectory):
    raise ConnectionError("the judge is not reachable")


def brief(trajectory):
    return 1.0 / len(trajectory.turns)
'''


@dataclass(frozen=True, slots=True)
class Case:
    """A spec."""

    spec: str = "search"
    overrides: tuple[str, ...] = ()
    keys: dict[str, Any] = field(default_factory=dict)
    """Of the spec, in place of its own."""
    cause: str | None = None
    """Why it cannot learn; None where it may."""


def of(spec: str, *overrides: str, cause: str | None = None, **keys: Any) -> Case:
    return Case(spec, overrides, keys, cause)


def rate(value: str) -> str:
    return f"train.learning_rate={value}"


def golds(column: str, world: str = "encyclopedia", **keys: str) -> dict[str, Any]:
    data = {**DATA, "answer": column, **keys}
    sides = {"train": "train", "eval": "heldout"}
    return {side: {"path": f"builtin:{world}/{name}", **data} for side, name in sides.items()}


def broken(name: str, function: str) -> dict[str, Any]:
    """A shipped tool that fails."""
    spec = yaml.safe_load((ROOT / f"tool_specs/{name}.yaml").read_text(encoding="utf-8"))
    return {**spec, "target": {"kind": "python", "callable": f"own.py:{function}", "isolation": "inline"}, "tests": []}


def unserved() -> list[Any]:
    """A search behind an address that nobody serves."""
    search, calculator = tool("down")
    return [{**search, "target": {"kind": "http", "url": "http://127.0.0.1:9/search"}}, calculator]


def cut(chars: int) -> list[Any]:
    search, calculator = tool("wordy")
    return [{**search, "limits": {**search["limits"], "max_output_chars": chars}}, calculator]


DESIGN = {
    "search": of("search"),
    "search, 3e-5": of("search", rate("3e-5")),
    "search, 1e-5": of("search", rate("1e-5")),
    "search, 1e-6": of("search", rate("1e-6"), cause="learning_rate_low"),
    "search, 0.03": of("search", rate("0.03"), cause="learning_rate_high"),
    "search, cooler, 4 of each": of("search", "rollout.temperature=0.7", "rollout.num_generations=4"),
    "search, groups": of("search", "train.algorithm=grpo"),
    "search, short turns": of("search", rollout={"max_new_tokens": 6}, cause="truncated"),
    "search, tool down": of("search", tools=tool("down"), cause="tools_fail"),
    "search, constant": of("search", rewards=[term("always")], cause="constant_reward"),
    "search, one turn": of("search", "rollout.max_turns=1", cause="out_of_turns"),
    "search, kinds as golds": of("search", data=golds("kind"), cause="answer_column"),
    "search, results of others": of("search_shuffled"),
    "shop": of("shop"),
    "rooms": of("rooms"),
    "sql": of("sql"),
}
HELD_BACK = {
    "search, seed 32": of("search", "seed=32"),
    "search, 1e-3": of("search", rate("1e-3")),
    "search, 3e-3": of("search", rate("3e-3")),
    "search, 6e-5": of("search", rate("6e-5")),
    "search, cooler": of("search", "rollout.temperature=0.6"),
    "search, two turns": of("search", "rollout.max_turns=2"),
    "search, 16 of each": of("search", "rollout.num_generations=16", "train.prompts_per_step=4"),
    "search, short": of("search", "rollout.max_total_tokens=150"),
    "search, rloo": of("search", "train.algorithm=rloo"),
    "search, by turns": of("search_turns"),
    "search, two terms": of("search", rewards=[RIGHT, term("brief", weight=0.2)]),
    "shop, seed 33": of("shop", "seed=33"),
    "shop, groups": of("shop", "train.algorithm=grpo"),
    "shop, 1e-3": of("shop", rate("1e-3")),
    "rooms, seed 34": of("rooms", "seed=34"),
    "rooms, by turns": of("rooms_turns"),
    "rooms, 3e-4": of("rooms", rate("3e-4")),
    "sql, seed 35": of("sql", "seed=35"),
    "sql, 1e-3": of("sql", rate("1e-3")),
    "search, several terms": of("search_r1_reward"),
    "rooms, constant": of("rooms", rewards=[term("always")], cause="constant_reward"),
    "shop, short turns": of("shop", "rollout.max_new_tokens=8", cause="truncated"),
    "search, questions as golds": of("search", data=golds("question"), cause="answer_column"),
    "rooms, tool down": of("rooms", tools=[broken("open", "locked")], cause="tools_fail"),
    "shop, 1e-8": of("shop", rate("1e-8"), cause="learning_rate_low"),
    "shop, another format": of("shop", chat={"format": "react"}, cause="never_parsed"),
    "rooms, two turns": of("rooms", "rollout.max_turns=2", cause="out_of_turns"),
    "search, no value": of("search", rewards=[term("never")], cause="not_scored"),
    "search, nearly greedy": of("search", "train.algorithm=grpo", "rollout.temperature=0.01"),
    "search, results cut": of("search", tools=cut(100), cause="results_cut"),
}
SECOND = {
    "sql, constant": of("sql", rewards=[term("always")], cause="constant_reward"),
    "rooms, another format": of("rooms", chat={"format": "react"}, cause="never_parsed"),
    "sql, tool down": of("sql", tools=[broken("sql", "no_database")], cause="tools_fail"),
    "sql, 1e-8": of("sql", rate("1e-8"), cause="learning_rate_low"),
    "shop, 0.05": of("shop", rate("0.05"), cause="learning_rate_high"),
    "sql, one turn": of("sql", "rollout.max_turns=1", cause="out_of_turns"),
    "rooms, filtered": of("rooms", "train.dynamic_filtering={low: 0.95, high: 0.99}", cause="filtered"),
    "rooms, short turns": of("rooms", "rollout.max_new_tokens=4", cause="truncated"),
    "rooms, no value": of("rooms", rewards=[term("never")], cause="not_scored"),
    "search, one prompt": of("search", data=golds("answer", template="Answer the question."), cause="same_prompts"),
}
"""Ten more, meant not to learn, kept back when the order of causes was changed for what the first ones showed."""
THIRD = {
    "code, short turns": of("code", "rollout.max_new_tokens=5", cause="truncated"),
    "code, tool down": of("code", tools=[broken("python", "no_interpreter")], cause="tools_fail"),
    "sql, filtered": of("sql", "train.dynamic_filtering={low: 0.8, high: 0.9}", cause="filtered"),
    "search, nobody serves": of("search", tools=unserved(), cause="tools_fail"),
    "shop, nearly greedy": of("shop", "train.algorithm=grpo", "rollout.temperature=0.01", cause="same_rollouts"),
    "search, term fails": of("search", rewards=[term("unreachable")], cause="not_scored"),
    "sql, another format": of("sql", chat={"format": "react"}, cause="never_parsed"),
    "rooms, 0.1": of("rooms", rate("0.1"), cause="learning_rate_high"),
    "code, kinds as golds": of("code", data=golds("kind", world="programs"), cause="answer_column"),
    "shop, one turn": of("shop", "rollout.max_turns=1", cause="out_of_turns"),
    "search, no tool": of("search_no_tool", cause="too_hard"),
}
"""Eleven that cannot learn, kept back when a tool's failure came to be named before what had no reward by it."""
SIZES = ["train.steps=12", "train.prompts_per_step=8", "rollout.num_generations=8", "seed=31", "eval.every=12"]
SIZES += ["eval.limit=128", "eval.greedy=false", "checkpoint.every=1000"]


def write_project(place: Path, case: Case) -> None:
    """The spec, as one file; a search is paid for."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "own.py").write_text(CODE, encoding="utf-8")
    path = ROOT / f"specs/{case.spec}.yaml"
    spec: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    if "extends" in spec:
        spec["extends"] = str(path.parent / spec["extends"])
    text = json.dumps(spec).replace('"../', f'"{path.parent.parent}/')
    spec = json.loads(text)
    if case.spec in ("search", "search_turns"):
        spec["tools"] = tool("priced")
    for key, value in case.keys.items():
        spec[key] = {**spec[key], **value} if key == "rollout" else value
    (place / "spec.yaml").write_text(json.dumps(spec), encoding="utf-8")


def compare(place: Path, case: Case, *, is_run: bool) -> tuple[Forecast, bool, float]:
    """The forecast, whether the run learned, and what it cost; one that is not run has learned nothing."""
    write_project(place, case)
    files, overrides, runs = [place / "spec.yaml"], [*SIZES, *case.overrides], place / "runs"
    found = forecast(files, overrides, num_groups=32, runs_folder=runs, command=["benchmark"], show=lambda shown: None)
    if not is_run:
        return found, False, 0.0
    known = place / "run"
    if not known.exists():
        done = run(files, overrides, runs_folder=runs, command=["benchmark"], view=lambda info: lambda event: None)
        known.write_text(done.run_id, encoding="utf-8")
    run_id = known.read_text(encoding="utf-8")
    with open_reader(runs) as reader:
        verdict = read_verdict(reader, run_id, RunStatus.FINISHED)
        cost_usd = sum(cost.cost_usd for cost in read_costs(reader, run_id))
    return found, verdict.kind is VerdictKind.LEARNED, cost_usd


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--cases", choices=["design", "held-back", "second", "third"], default="held-back")
    parser.add_argument("--only", default="", help="names, with semicolons")
    asked = parser.parse_args()
    errors, named, near = list[float](), list[bool](), list[bool]()
    cases = {"design": DESIGN, "held-back": HELD_BACK, "second": SECOND, "third": THIRD}[asked.cases]
    for name, case in cases.items():
        if asked.only and name not in asked.only.split(";"):
            continue
        place = asked.runs / name.replace(", ", "-").replace(" ", "-")
        try:
            found, learned, cost_usd = compare(place, case, is_run=cases is not THIRD)
        except RlfError as error:
            named.append(False)
            print(f"{name:28} refused, planted {case.cause}: {error}", flush=True)
            continue
        errors.append((found.learns - learned) ** 2)
        first = str(found.causes[0].kind) if found.causes else "nothing"
        line = f"{name:28} learns {found.learns:.2f}, {'learned' if learned else 'did not'}"
        if case.cause is not None:
            named.append(first == case.cause)
            line += f"; {first}, planted {case.cause}"
        elif found.causes:
            line += f"; {first}"
        if cost_usd:
            near.append(abs(found.run_cost_usd - cost_usd) <= 0.25 * cost_usd)
            line += f"; cost {found.run_cost_usd:.3f}, was {cost_usd:.3f} ({found.run_cost_usd / cost_usd - 1:+.0%})"
        print(line, flush=True)
    print(f"Brier score {fmean(errors):.3f} over {len(errors)} specs")
    if named:
        print(f"first cause named: {sum(named)} of {len(named)}")
    if near:
        print(f"cost within 25 %: {sum(near)} of {len(near)}")


if __name__ == "__main__":
    main()
