"""Requests as the processes of a sandbox read them (`guest.job`), and what their answers may be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple

from pydantic import FiniteFloat, ValidationError

from rlf.core.kinds import StrictModel
from rlf.core.text import clean
from rlf.sandbox.execution import Outcome, Request, SqlRequest
from rlf.sandbox.guest.wire import BadFrame, Bounds, Frame
from rlf.sandbox.spec import SandboxLimits

_CHAR_BYTES = 6
"""Most bytes of JSON that a character takes, as `\\u0001` does."""
_BESIDE_BYTES = 1 << 20
"""Of an answer's head beside its values: errors, names of files and columns."""
_ROW_BYTES = 64
_FIGURE_BYTES = 16 << 20
"""Figures of a call, which it may make in memory."""


class Answered(StrictModel):
    """What every process answers."""

    outcome: Outcome
    error: str | None = None


class PythonAnswer(Answered):
    """The answer of Python: the word of the code that ran, which may say what it likes of itself."""

    outcome: Literal[Outcome.OK, Outcome.ERROR, Outcome.MEMORY]
    value: str | None = None
    files: tuple[str, ...] = ()
    """Names of the first byte strings; the others are figures."""


class TableAnswer(Answered):
    """The answer of SQL, in a process that runs no foreign code."""

    columns: tuple[str, ...] | None = None
    rows: tuple[tuple[str | int | FiniteFloat | bool | None, ...], ...] = ()
    truncated: bool = False


class Question(NamedTuple):
    """A request and what may answer it."""

    head: Mapping[str, Any]
    blobs: tuple[bytes, ...]
    bounds: Bounds
    schema: type[PythonAnswer] | type[TableAnswer]

    def read(self, frame: Frame) -> PythonAnswer | TableAnswer:
        """The answer in a frame, its texts without lone surrogates. Raises BadFrame for anything else."""
        try:
            answer = self.schema.model_validate_json(clean(frame.head.decode("utf-8", "surrogatepass")), strict=True)
        except (ValidationError, UnicodeDecodeError) as fault:
            raise BadFrame("something else") from fault
        if isinstance(answer, PythonAnswer) and not self._named(answer, frame):
            raise BadFrame("files that it was not asked for")
        return answer

    def _named(self, answer: PythonAnswer, frame: Frame) -> bool:
        """Whether each file that an answer names is there, was asked for and lies within the working folder."""
        names = answer.files
        asked = bool(self.head["fetch"]) or not names
        return asked and len(set(names)) == len(names) <= len(frame.blobs) and all(map(_is_within, names))


def python_question(request: Request, limits: SandboxLimits, part: str = "test") -> Question:
    """A request to run Python. Raises ValueError for a file's name that leaves the working folder.

    Args:
        part: which side of a test it is, `test` or `program`; without a program of the request it counts for nothing.
    """
    for name in (*request.files, *request.fetch):
        if not _is_within(name):
            raise ValueError(f"got the file name {name!r}; expected one within the working folder")
    file_bytes = limits.disk_mb << 20 if request.fetch else 0
    bounds = Bounds(_CHAR_BYTES * limits.output_bytes + _BESIDE_BYTES, file_bytes + _FIGURE_BYTES)
    head = {
        "job": "python",
        "part": None if request.program is None else part,
        "source": request.source,
        "max_value_chars": limits.output_bytes,
        "files": list(request.files),
        "fetch": list(request.fetch),
        "bounds": bounds,
    }
    return Question(head, (request.stdin.encode(errors="replace"), *request.files.values()), bounds, PythonAnswer)


def sql_question(job: str, place: str, request: SqlRequest, timeout_s: float) -> Question:
    """A request to run SQL."""
    bounds = Bounds(_CHAR_BYTES * request.max_bytes + _ROW_BYTES * request.max_rows + _BESIDE_BYTES)
    limits = {"max_rows": request.max_rows, "max_bytes": request.max_bytes, "timeout_s": timeout_s}
    return Question(
        {"job": job, "place": place, "query": request.query, **limits, "bounds": bounds}, (), bounds, TableAnswer
    )


def _is_within(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and ".." not in parts and parts[0] != "/" and "\0" not in name
