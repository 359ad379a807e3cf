"""`rlf bench ftrl`: FTRL's rows, whose tools are code, by the F1 of sub-questions that calls solve."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from rlf.apps.bench.kind import Benchmark, Play, Row, read_row_file
from rlf.core.errors import RlfError

_COLUMNS = ("messages", "tools", "codes", "unsolved_set")


class FtrlBenchmark(Benchmark):
    """Sub-questions that calls solve: Solve-F1 of each trajectory, and by scenario."""

    title: ClassVar[str] = "FTRL's rows: Solve-F1, and the share of sub-questions solved, by scenario"
    licence: ClassVar[str] = "of the rows"
    needs: ClassVar[str] = "--data FILE: rows with messages, tools, codes, unsolved_set"

    data: str
    """A .jsonl file, or a .json list."""

    @property
    def play(self) -> Play:
        """The rows' code runs in a sandbox; golds are compared by value and type."""
        sections = {
            "env": {"kind": "ftrl"},
            "rewards": [
                {"kind": "rule", "rule": "ftrl", "name": "solve_f1", "variant": "solve_f1"},
                {"kind": "env", "score": "solved", "name": "solve_r", "weight": 0.0},
            ],
        }
        rollout = {"max_turns": 20, "max_total_tokens": 16_384, "max_new_tokens": 2048}
        columns = {"answer": "unsolved_set", "tools": "tools"}
        return Play(("solve_f1",), rollout=rollout, columns=columns, sections=sections)

    def rows(self) -> Iterator[Row]:
        """The file's rows; `scenario`, or `data_source`, is the kind. Those without `split` are of a test split."""
        for number, row in enumerate(read_row_file(Path(self.data))):
            if missing := [name for name in _COLUMNS if name not in row]:
                raise RlfError(f"--data: {self.data}: row {number}: has no {', '.join(missing)}; no row of FTRL.")
            messages: Any = row["messages"]
            yield {
                "id": f"ftrl_{number}",
                "kind": str(row.get("scenario") or row.get("data_source") or "all"),
                "split": str(row.get("split") or "test"),
                "prompt": json.loads(messages) if isinstance(messages, str) else messages,
                **{name: row[name] for name in _COLUMNS[1:]},
            }
