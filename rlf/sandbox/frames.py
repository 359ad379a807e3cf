"""Requests as the processes of a sandbox read them (`guest.job`)."""

from __future__ import annotations

from pathlib import PurePosixPath

from rlf.sandbox.execution import Request, SqlRequest
from rlf.sandbox.guest.wire import pack


def python_frame(request: Request, max_value_chars: int, part: str = "test") -> bytes:
    """A request to run Python. Raises ValueError for a file's name that leaves the working folder.

    Args:
        part: which side of a test it is, `test` or `program`; without a program of the request it counts for nothing.
    """
    for name in (*request.files, *request.fetch):
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or parts[0] == "/" or "\0" in name:
            raise ValueError(f"got the file name {name!r}; expected one within the working folder")
    head = {
        "job": "python",
        "part": None if request.program is None else part,
        "source": request.source,
        "max_value_chars": max_value_chars,
        "files": list(request.files),
        "fetch": list(request.fetch),
    }
    return pack(head, [request.stdin.encode(errors="replace"), *request.files.values()])


def sql_frame(job: str, place: str, request: SqlRequest, timeout_s: float) -> bytes:
    """A request to run SQL."""
    bounds = {"max_rows": request.max_rows, "max_bytes": request.max_bytes, "timeout_s": timeout_s}
    return pack({"job": job, "place": place, "query": request.query, **bounds})
