"""The work of a confined process: it reads one request after the other from its channel and answers each."""

from __future__ import annotations

import contextlib
import io
import os
import random
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import postgres, program, sqlite
from .cell import CellEnd, Interpreter
from .wire import Bounds, pack, read_frame, write_all, write_head

_REQUEST = Bounds(1 << 30, 1 << 30)


def serve(channel: int, *, once: bool) -> None:
    """Answers until the channel ends; after the first request where `once`."""
    random.seed(0)
    interpreter: Interpreter | None = None
    write_all(channel, pack(0, {}))
    while (frame := read_frame(lambda size: os.read(channel, size), _REQUEST)) is not None:
        head, blobs = frame.read(), list[bytes]()
        if head["job"] == "python":
            interpreter = interpreter or Interpreter(head["max_value_chars"], _module_name(head))
            answer, blobs = _run_cell(interpreter, head, frame.blobs, once=once)
        elif head["job"] == "sqlite":
            answer = sqlite.query(head["place"], head["query"], head["max_rows"], head["max_bytes"])
        else:
            timeout_s = head["timeout_s"]
            answer = postgres.query(head["place"], head["query"], head["max_rows"], head["max_bytes"], timeout_s)
        write_all(channel, _pack_answer(frame.number, answer, blobs, Bounds(*head["bounds"])))
        if once:
            os._exit(0)


def _pack_answer(number: int, answer: dict[str, Any], blobs: list[bytes], bounds: Bounds) -> bytes:
    """The answer, or, since rlf would read none beyond its bounds, that it goes beyond them."""
    try:
        head = write_head(answer)
        if excess := bounds.excess(head, blobs):
            return pack(number, {"outcome": "error", "error": f"what the call brings back has {excess}"})
        return pack(number, head, blobs)
    except MemoryError:
        return pack(number, {"outcome": "memory", "error": "MemoryError"})


def _run_cell(
    interpreter: Interpreter, head: dict[str, Any], blobs: Sequence[bytes], *, once: bool
) -> tuple[dict[str, Any], list[bytes]]:
    try:
        for name, content in zip(head["files"], blobs[1:], strict=True):
            place = Path(name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        _set_streams(blobs[0])
        ended = _run_source(interpreter, head)
        if once:
            threading._shutdown()  # type: ignore[attr-defined]  # what a Python program does at its end
        files = _read_files(head["fetch"])
    except MemoryError:
        ended, files = CellEnd("memory", None, "MemoryError"), {}
    except OSError as fault:
        ended, files = CellEnd("error", None, f"{type(fault).__name__}: {fault}"), {}
    _flush_output()
    report = {"outcome": ended.outcome, "value": ended.value, "error": ended.error, "files": list(files)}
    return report, [*files.values(), *ended.images]


def _run_source(interpreter: Interpreter, head: dict[str, Any]) -> CellEnd:
    """Runs a cell; a program under test until its test has ended, a test with what its program defines."""
    if head.get("part") == "test":
        try:
            interpreter.scope.update(program.names_of_program())
        except BaseException as fault:  # noqa: BLE001 - what the program says may be anything
            return CellEnd("error", None, str(fault) or type(fault).__name__)
    ended = interpreter.run(head["source"])
    if head.get("part") == "program":
        program.serve_program(interpreter.scope, ended.error)
    return ended


def _module_name(head: dict[str, Any]) -> str:
    """The code's `__name__`: a program under test is imported, not started."""
    return "program" if head.get("part") == "program" else "__main__"


def _set_streams(stdin: bytes) -> None:
    file = os.open(".stdin", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    Path(".stdin").unlink()
    os.write(file, stdin)
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, 0)
    os.close(file)
    sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115 - it stays open
    for number, name in ((1, "stdout"), (2, "stderr")):
        binary = open(number, "wb", closefd=False)  # noqa: SIM115 - it stays open
        setattr(sys, name, io.TextIOWrapper(binary, "utf-8", "backslashreplace", line_buffering=True))


def _flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _read_files(patterns: list[str]) -> dict[str, bytes]:
    """Regular files of the working folder that match; what a name points to elsewhere is left out."""
    found: dict[str, bytes] = {}
    for pattern in patterns:
        for place in sorted(Path().glob(pattern)):
            if place.is_file() and not place.is_symlink():
                found[place.as_posix()] = place.read_bytes()
    return found
