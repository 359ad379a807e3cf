"""The other end of `isolation: process`: a process that runs one function, call by call, and can be killed.

It answers frames (`rlf.sandbox.guest.wire`) over a socket of its own: what a tool prints goes to stderr. The first
request says what to import.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from rlf.core import RlfError
from rlf.core.callables import load_callable
from rlf.core.text import describe
from rlf.processes.forking import die_with
from rlf.sandbox.guest.wire import Bounds, Frame, pack, read_frame, set_apart, write_all, write_head
from rlf.tools.python.parameters import adapt
from rlf.tools.python.processes import ProcessState
from rlf.tools.results import ToolFailure, outcome_of_fault, to_output
from rlf.types import Outcome

REQUEST = Bounds(1 << 30)


def main() -> None:
    """Serves the socket whose descriptor is the first argument until it is closed."""
    die_with(int(sys.argv[2]))
    channel = set_apart(int(sys.argv[1]))
    start = _receive(channel)
    if start is None:
        return
    asked = start.read()
    sys.path[:] = asked["path"]
    try:
        function = adapt(load_callable(asked["callable"]))
    except RlfError as fault:
        write_all(channel, pack(start.number, {"fault": str(fault)}))
        return
    write_all(channel, pack(start.number, {}))
    state = ProcessState()
    while (frame := _receive(channel)) is not None:
        asked = frame.read()
        if "arguments" not in asked:  # it is asked whether it is there
            write_all(channel, pack(frame.number, {}))
            continue
        answer, blobs = _answer_call(function, asked["arguments"])
        answer["leftovers"] = state.restore()
        write_all(channel, _pack_answer(frame.number, answer, blobs, Bounds(*asked["bounds"])))


def _pack_answer(number: int, answer: dict[str, Any], blobs: list[bytes], bounds: Bounds) -> bytes:
    """The answer, or the failure of one that would not be read."""
    head = write_head(answer)
    if excess := bounds.excess(head, blobs):
        failure = {"outcome": Outcome.OUTPUT_REJECTED, "text": f"the tool returned {excess}"}
        return pack(number, {**failure, "leftovers": answer["leftovers"]})
    return pack(number, head, blobs)


def _answer_call(function: Callable[..., Any], arguments: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """The answer, and beside it the text and the images."""
    try:
        value = function(**arguments)
        if inspect.iscoroutine(value):
            value, fault = asyncio.run(_settle(value))
            if fault is not None:
                raise fault
        output = to_output(value)
        blobs = [output.text.encode("utf-8", "surrogatepass"), *(image.data for image in output.images)]
        types = [image.mime_type for image in output.images]
        reply = {"images": types, "structured": output.structured, "usage": dict(output.usage)}
        json.dumps(reply)
    except ToolFailure as failure:
        return {"outcome": failure.outcome, "text": failure.text}, []
    except BaseException as fault:  # noqa: BLE001 - a tool may raise anything; the model reads what
        return {"outcome": outcome_of_fault(fault), "text": describe(fault)}, []
    return {"outcome": Outcome.TOOL_ERROR if output.is_error else Outcome.OK, **reply}, blobs


async def _settle(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """What a coroutine returns or raises. An exception with code of its own would keep the loop from ending."""
    try:
        return await coroutine, None
    except BaseException as fault:  # noqa: BLE001 - raised again outside of the loop
        return None, fault


def _receive(channel: int) -> Frame | None:
    """The next request; None at the end."""
    return read_frame(lambda size: os.read(channel, size), REQUEST)


if __name__ == "__main__":
    main()
