"""`rlf bench toolhop`: questions of several hops whose tools are code, without tools, with them, and by them alone.

Rows as its data set publishes them (`data/ToolHop.json`): `question`, `answer`, `sub_task` (answers by sub-question),
`tools` (documents by sub-question) and `functions` (the tools' source). The verdict is that of its evaluation, which
looks for the answer in the last words and, after a call, in that call's result.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from rlf.apps.bench.kind import Benchmark, Play, Row, read_row_file
from rlf.core.errors import RlfError
from rlf.types import Trajectory

_TURNS = 9
"""Of its evaluation."""
_FORM = (
    "Write dates as YYYY-MM-DD, names as first and last name, and numbers in digits without leading zeros, as short as "
    "you can, in the form <answer>...</answer>.\nQuestion: "
)
_OPENINGS = {
    "direct": "Answer a question from what you know. ",
    "mandatory": "Answer a question with the tools. Take every step by a tool, and none from what you know: the final "
    "answer, too, has to come out of a tool. ",
    "free": "Answer a question. You may use the tools. ",
}


class Toolhop(Benchmark):
    """Questions of 3 to 7 hops: `direct` without tools, `mandatory` by tools alone, `free` with both."""

    title: ClassVar[str] = "ToolHop: multi-hop questions, direct, mandatory and free use of tools"
    licence: ClassVar[str] = "of the rows"
    needs: ClassVar[str] = "--data FILE: ToolHop.json"

    data: str
    """A .json list, or a .jsonl file."""
    scenario: Literal["direct", "mandatory", "free"] = "mandatory"

    @property
    def play(self) -> Play:
        """Nine turns with the row's code in a sandbox; `direct` has one turn and no tools."""
        is_direct = self.scenario == "direct"
        rewards: list[dict[str, Any]] = [
            {"kind": "python", "name": "right", "callable": f"{__name__}:find_answer", "range": [0, 1]}
        ]
        if not is_direct:
            rewards.append({"kind": "env", "score": "solved", "name": "solved", "weight": 0.0})
        rollout = {"max_turns": 1 if is_direct else _TURNS, "max_total_tokens": 16_384, "max_new_tokens": 1024}
        columns = {"answer": "answer", **({} if is_direct else {"tools": "tools"})}
        sections = {"env": None if is_direct else {"kind": "ftrl"}, "rewards": rewards}
        return Play(("right",), rollout=rollout, columns=columns, sections=sections)

    def rows(self) -> Iterator[Row]:
        """The file's rows; the kind is the number of hops."""
        for number, row in enumerate(read_row_file(Path(self.data))):
            try:
                yield self._make_row(row)
            except (KeyError, ValueError, TypeError, AttributeError, IndexError) as fault:
                raise RlfError(
                    f"--data: {self.data}: row {number}: no row of ToolHop: {type(fault).__name__}: {fault}. Expected "
                    "`id`, `question`, `answer`, `sub_task`, `tools` and `functions`."
                ) from fault

    def _make_row(self, row: Mapping[str, Any]) -> Row:
        codes = {_name_of(source): source for source in row["functions"]}
        golds: dict[str, list[Any]] = {}
        for question, document in row["tools"].items():
            if document["name"] not in codes:
                raise ValueError(f"no source of the tool {document['name']!r}")
            golds.setdefault(document["name"], []).append(row["sub_task"][question])
        made = {
            "id": f"toolhop_{row['id']}",
            "kind": f"{len(row['sub_task'])} hops",
            "prompt": [{"role": "user", "content": f"{_OPENINGS[self.scenario]}{_FORM}{row['question']}"}],
            "answer": str(row["answer"]),
        }
        if self.scenario == "direct":
            return made
        documents = {document["name"]: document for document in row["tools"].values()}
        tools = [{"type": "function", "function": document} for document in documents.values()]
        texts = {"tools": tools, "codes": codes, "unsolved_set": golds}
        return {**made, **{name: json.dumps(value, ensure_ascii=False) for name, value in texts.items()}}


def _name_of(source: str) -> str:
    """The function that a source defines; of several the first, as its evaluation takes it."""
    return next(node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))


def find_answer(trajectory: Trajectory, answer: str) -> float:
    """1 where its evaluation finds the answer: without regard to case, commas, and points and zeros at the end."""
    if not trajectory.answer:
        return 0.0
    texts = [trajectory.answer]
    if len(trajectory.turns) > 1 and (calls := trajectory.turns[-2].calls):
        texts.append(calls[-1].result.text)
    # `rstrip` takes all points and zeros, as there: of 100 it leaves 1.
    gold = answer.rstrip(".0").lower()
    return float(any(gold in text.rstrip(".0").replace(",", "").lower() for text in texts))
