"""Causes that are planted into short runs are the first that the run names, and healthy runs name none."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from rlf.core import RunError
from rlf.rollout.signal import CauseKind
from rlf.runs.start import run
from rlf.types import Notice

from .conftest import ROOT
from .test_runs import Watch

CODE = '''\
from rlf.builtin import encyclopedia


def search(query):
    return encyclopedia.search(query)


def search_by(text):
    return encyclopedia.search(text)


def wordy(query):
    return 'This is what was found. ' * 8 + encyclopedia.search(query)


def broken(query):
    raise RuntimeError('no index loaded')


def half(trajectory):
    return 0.5


def picky(trajectory):
    raise KeyError('rubric')


def lazy(trajectory):
    import not_there.at_all


def lazy_search(query):
    import not_there


async def play(task, session):
    import not_there


def shy(trajectory):
    return None


class Lazy:
    reward = 0.0

    def reset(self):
        import not_there

    def search(self, query: str) -> str:
        """Find passages.

        Args:
            query: what is looked for
        """
        return query


if __name__ == "__main__":
    import not_there.at_all
'''
DATA = "builtin:encyclopedia/train"


def tool(name: str = "search", function: str = "search", argument: str = "query", **keys: Any) -> dict[str, Any]:
    target = {"kind": "python", "callable": f"own.py:{function}", "isolation": "inline"}
    schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"name": name, "description": "Find passages.", "inputSchema": schema, "target": target, **keys}


GONE = tool() | {"target": {"kind": "http", "url": "http://127.0.0.1:9/", "method": "POST"}}


def data(**keys: Any) -> dict[str, Any]:
    part = {"path": DATA, "prompt": "question", "answer": "answer", "kind": "kind", "limit": 64, **keys}
    return {"train": part, "eval": part}


def term(function: str, **keys: Any) -> dict[str, Any]:
    return {"kind": "python", "name": function, "callable": f"own.py:{function}", "range": [0, 1], **keys}


SPEC: dict[str, Any] = {
    "name": "planted",
    "model": {"path": "builtin:tiny"},
    "data": data(),
    "tools": [str(ROOT / "tool_specs" / f"{name}.yaml") for name in ("search", "calculator")],
    "rewards": [{"kind": "rule", "name": "exact_match", "rule": "exact_match"}],
    "rollout": {"num_generations": 4, "max_turns": 4, "max_total_tokens": 320},
    "train": {"algorithm": "grpo", "learning_rate": 3e-4, "steps": 2, "prompts_per_step": 8},
    "eval": {"every": 2, "limit": 12, "greedy": False},
    "checkpoint": {"every": 2},
    "engine": {"kind": "local"},
}

PLANTED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a tool that always raises": ({"tools": [tool(function="broken")]}, "tools_fail", "no index loaded"),
    "an argument of another name": (
        {"tools": [tool(function="search_by", argument="text")]},
        "tools_fail",
        "invalid_arguments",
    ),
    "a tool of another name": ({"tools": [tool(name="lookup")]}, "tools_fail", "unknown_tool"),
    "one turn": ({"rollout": {"max_turns": 1}}, "out_of_turns", "still called a tool"),
    "turns of few tokens": ({"rollout": {"max_new_tokens": 6}}, "truncated", "token budget"),
    "another chat format": ({"chat": {"format": "react"}}, "never_parsed|never_called", "call"),
    "another column of golds": ({"data": data(answer="kind")}, "answer_column", "'answer'"),
    "prompts without the question": ({"data": data(prompt="kind")}, "same_prompts", "prompt"),
    "results that are cut": (
        {"tools": [tool(function="wordy", limits={"max_output_chars": 100})]},
        "results_cut",
        "cut",
    ),
    "a reward that never differs": ({"rewards": [term("half")]}, "constant_reward", "half 0.5"),
    "a reward without a value": ({"rewards": [term("shy")]}, "not_scored", "shy"),
    "rollouts that are copies": ({"rollout": {"temperature": 0.01}}, "same_rollouts", "copies"),
    "a filter that drops all groups": (
        {"train": {"dynamic_filtering": {"low": 5.0, "max_rounds": 1}}},
        "filtered",
        "between 5 and inf",
    ),
}


def started(folder: Path, *overrides: str, **keys: Any) -> tuple[Watch, str]:
    """The events of a run of two steps, and its verdict or why it ended."""
    (folder / "own.py").write_text(CODE)
    spec = {name: part | keys.pop(name, {}) if isinstance(part, dict) else part for name, part in SPEC.items()}
    (folder / "spec.yaml").write_text(json.dumps(spec | keys))
    watch, own = Watch(), list(overrides)
    try:
        done = run([folder / "spec.yaml"], own, runs_folder=folder / "runs", view=watch, command=["rlf"])
    except RunError as failed:
        return watch, str(failed)
    return watch, done.verdict.line


def first_causes(watch: Watch) -> list[dict[str, Any]]:
    """The first cause of each diagnosis."""
    found = [event.data for event in watch.events if isinstance(event, Notice) and "signal" in event.data]
    return [data["causes"][0] for data in found if data["causes"]]


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_cause_is_the_first_that_is_named_and_the_verdict_has_it(name: str, tmp_path: Path) -> None:
    keys, kinds, words = PLANTED[name]
    watch, verdict = started(tmp_path, **keys)
    first = first_causes(watch)[0]
    assert first["kind"] in kinds.split("|") and words in first["seen"] + first["advice"], first
    assert CauseKind(first["kind"]) and "likely: " in verdict, verdict


@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_run_is_accused_of_nothing(seed: int, tmp_path: Path) -> None:
    watch, verdict = started(tmp_path, f"seed={seed}")
    assert first_causes(watch) == [] and "likely" not in verdict


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"rewards": [term("picky")]}, r"reward term 'picky' has not answered .*rubric"),
        ({"tools": [GONE]}, r"tool 'search' has not answered .*Connect call failed"),
    ],
    ids=["a term that always raises", "a server that is gone"],
)
def test_what_is_down_from_the_start_is_named_by_the_error(keys: dict[str, Any], words: str, tmp_path: Path) -> None:
    _, error = started(tmp_path, "engine.outage_s=0.3", **keys)
    assert re.search(words, error), error


LAZY = {"schedule": "clock", "max_total_tokens": 240}


def world(isolation: str) -> dict[str, Any]:
    return {"env": {"kind": "python", "callable": "own.py:Lazy", "isolation": isolation}, "tools": [], "rollout": LAZY}


@pytest.mark.parametrize(
    ("keys", "cause"),
    [
        ({"rewards": [term("lazy")]}, "reward term 'lazy'"),
        ({"tools": [tool(function="lazy_search")]}, "tool 'search'"),
        ({"rollout": LAZY | {"agent": {"callable": "own.py:play"}}}, "the agent"),
        ({"rollout": LAZY | {"agent": {"command": f"{sys.executable} own.py"}}}, "the agent"),
        (world("thread"), "world 'python'"),
        (world("process"), "world 'python'"),
    ],
    ids=["a term", "a tool", "an agent", "an agent's command", "a world", "a world in a process"],
)
def test_a_module_that_is_not_there_is_not_waited_for(keys: dict[str, Any], cause: str, tmp_path: Path) -> None:
    _, error = started(tmp_path, "engine.outage_s=3600", **keys)
    words = rf"{cause} does not answer and is not waited for.*No module named 'not_there'.*`pip install not_there`"
    assert re.search(words, error), error


def test_a_learning_rate_that_moves_nothing_is_named_by_the_verdict(tmp_path: Path) -> None:
    _, verdict = started(tmp_path, "train.learning_rate=1e-12")
    assert "every answer is as before training" in verdict and "train.learning_rate" in verdict
