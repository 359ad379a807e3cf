"""Files of rows: JSON lines, and questions that are numbered within their file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Writes rows, one a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8", newline="\n")


def write_questions(path: Path, questions: Iterable[tuple[str, str, str]]) -> None:
    """Writes questions, each with its answer and its kind."""
    rows = (
        {"id": f"{path.stem}-{number:04d}", "question": question, "answer": answer, "kind": kind}
        for number, (question, answer, kind) in enumerate(questions)
    )
    write_rows(path, rows)
