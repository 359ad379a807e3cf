"""Question files of the games: one row a question, numbered within its file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

__all__ = ["write_rows"]


def write_rows(path: Path, questions: Iterable[tuple[str, str, str]]) -> None:
    """Writes questions, each with its answer and its kind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"id": f"{path.stem}-{number:04d}", "question": question, "answer": answer, "kind": kind}
        for number, (question, answer, kind) in enumerate(questions)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8", newline="\n")
