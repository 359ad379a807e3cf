"""`kind: source`: a function of a file, at the level that runs on every machine."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rlf.types import Outcome

from ._subject import Subject

_SOURCE = """
import time


def answer(text):
    if text == "hang":
        time.sleep(60)
    if text.startswith("fail "):
        raise ValueError(text[5:])
    return text
"""


def _write(file: Path) -> Path:
    file.write_text(_SOURCE, encoding="utf-8")
    return file


@asynccontextmanager
async def _file() -> AsyncIterator[Subject]:
    with tempfile.TemporaryDirectory() as folder:
        file = _write(Path(folder, "functions.py"))
        yield Subject(
            {
                "kind": "source",
                "file": str(file),
                "function": "answer",
                "sandbox": {"level": "process", "allow_unsafe": True},
            },
            say=lambda word: word,
            failures={Outcome.TOOL_ERROR: lambda word: f"fail {word}"},
        )


SUBJECTS = {"file": _file}
