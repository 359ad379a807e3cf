"""`rlf bench rotbench`: choosing a tool and filling its parameters under noise in names and documents, by its rows.

Rows as its repository publishes them (`Data/First_Turn/*.json`, `Data/Third_Turn/*.json`): `conversations` hold the
documents, the query, earlier steps, and last a list of right actions. Scores are nested as there: the right tool, then
its set of parameters, then their values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rlf.apps.bench.kind import Benchmark, Play, Row, read_row_file
from rlf.apps.bench.rows import RowWorld
from rlf.core.errors import RlfError
from rlf.types import Task

_ACTION = re.compile(r"Action:\s*(.+?)\s*\n?Action Input:\s*(\{.*\})", re.DOTALL)
_ROLES = {"user": "user", "assistant": "assistant", "function": "user"}
_ABSENT = "None"
"""Value of an argument that an answer may leave open."""


class Rotbench(Benchmark):
    """Tool selection (TS), parameter identification (PI) and content filling (CF) at five levels of noise."""

    title: ClassVar[str] = "RoTBench: tool, parameters and values at five noise levels"
    licence: ClassVar[str] = "of the rows"
    needs: ClassVar[str] = "--data FILE|FOLDER: JSON files of its repository's Data"

    data: str
    """A file, or a folder with a file for each level."""

    @property
    def play(self) -> Play:
        """A single turn."""
        rollout = {"max_turns": 1, "max_total_tokens": 16_384, "max_new_tokens": 1024}
        return Play(("cf", "pi", "ts"), f"{__name__}:RotbenchWorld", rollout=rollout)

    def rows(self) -> Iterator[Row]:
        """The rows of the files, each of the level that its file is named by."""
        place = Path(self.data)
        for file in sorted(place.rglob("*.json")) if place.is_dir() else [place]:
            for number, row in enumerate(read_row_file(file)):
                try:
                    yield _make_row(f"{file.parent.name}_{file.stem}_{number}", file.stem, row)
                except (KeyError, ValueError, TypeError, IndexError, AttributeError) as fault:
                    raise RlfError(
                        f"--data: {file}: row {number}: no row of RoTBench: {type(fault).__name__}: {fault}. Expected "
                        "`conversations` that begin with documents and end with a list of actions."
                    ) from fault


def _make_row(name: str, level: str, row: Mapping[str, Any]) -> Row:
    first, *between, last = row["conversations"]
    # The documents are the one list of the system's words, from its first bracket to its last.
    documents = json.loads(first["value"][first["value"].index("[") : first["value"].rindex("]") + 1])
    golds = [read_action(text) for text in last["value"]]
    return {
        "id": name,
        "kind": level,
        "prompt": [{"role": _ROLES[turn["from"]], "content": turn["value"]} for turn in between],
        "tools": documents,
        "golds": json.dumps(golds),
    }


def read_action(text: str) -> tuple[str, dict[str, Any]]:
    """The tool and the arguments of an action as RoTBench writes it. Raises ValueError."""
    found = _ACTION.search(text)
    if found is None:
        raise ValueError(f"an action without `Action:` and `Action Input:`: {text[:60]!r}")
    return found[1], json.loads(found[2])


Call = tuple[str, Mapping[str, Any]]


def score_call(called: Call | None, golds: Sequence[Call], names: Sequence[str]) -> dict[str, float]:
    """The three scores as `evaluate.py` of its repository gives them: each by any of the right actions.

    A call without arguments counts for nothing there. Words that end the task or ask the user are not compared.

    Args:
        names: of the row's tools; the last asks the user, and the one after it, the very last, finishes.
    """
    reached = 0
    if called is not None and called[1]:
        ask, finish = names[-2:] if len(names) > 1 else ("", names[-1])
        name = called[0]
        for gold, arguments in golds:
            # Whatever noise calls the tool that finishes; another tool may have got that very name.
            name = gold if name == "finish" and gold == finish else name
            if gold != name:
                continue
            reached = max(reached, 1)
            if arguments.keys() != called[1].keys():
                continue
            reached = max(reached, 2)
            asked = {key: value for key, value in arguments.items() if value != _ABSENT}
            if gold in (ask, finish) or asked == {key: called[1][key] for key in asked}:
                reached = 3
    return {"ts": float(reached >= 1), "pi": float(reached >= 2), "cf": float(reached >= 3)}


class RotbenchWorld(RowWorld):
    """Judges the first call that was written."""

    def __init__(self) -> None:
        self._first: Call | None = None

    def reset(self, task: Task, seed: int) -> str | None:
        """Takes the row."""
        self._golds = [(name, arguments) for name, arguments in json.loads(task.columns["golds"])]
        self._names = [document.get("function", document)["name"] for document in task.columns["tools"]]
        return None

    def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Ends the episode: only what was called counts."""
        self._first = self._first or (tool, arguments)
        self.done = True
        return "noted"

    def review(self, turns: Sequence[Mapping[str, Any]]) -> None:
        """Takes the first call, though no tool may have that name."""
        self._first = next((call for turn in turns for call in turn["calls"]), None)

    def score(self) -> Mapping[str, float]:
        """Content filling, parameter identification, tool selection."""
        return score_call(self._first, self._golds, self._names)

    def gold(self) -> Sequence[Any]:
        """The first of the right actions."""
        return [{"name": name, "arguments": arguments} for name, arguments in self._golds[:1]]
