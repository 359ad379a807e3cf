"""The other end of `isolation: process`: a process that runs one function, call by call, and can be killed.

Messages are JSON with their length before them, over a socket of its own: what a tool prints goes to stderr. The
first one says what to import.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import socket
import sys
from collections.abc import Callable
from io import BufferedRWPair
from typing import Any

from rlf.core import RlfError
from rlf.core.callables import load_callable
from rlf.core.forking import LENGTH, die_with
from rlf.core.text import describe
from rlf.tools.failure import ToolFailure, outcome_of_fault
from rlf.tools.python.arguments import adapt
from rlf.tools.python.process_state import ProcessState
from rlf.tools.results import to_output
from rlf.types import Outcome


def main() -> None:
    """Serves the socket whose descriptor is the first argument until it is closed."""
    die_with(int(sys.argv[2]))
    with socket.socket(fileno=int(sys.argv[1])) as end, end.makefile("rwb") as connection:
        start = receive(connection)
        if start is None:
            return
        sys.path[:] = start["path"]
        try:
            function = adapt(load_callable(start["callable"]))
        except RlfError as fault:
            _send_message(connection, {"fault": str(fault)})
            return
        _send_message(connection, {})
        state = ProcessState()
        while (arguments := receive(connection)) is not None:
            answer = _answer_call(function, arguments)
            _send_message(connection, {**answer, "leftovers": state.restore()})


def _answer_call(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        value = function(**arguments)
        output = to_output(asyncio.run(value) if inspect.iscoroutine(value) else value)
        images = [[image.mime_type, base64.b64encode(image.data).decode()] for image in output.images]
        reply = {"text": output.text, "images": images, "structured": output.structured, "usage": dict(output.usage)}
        json.dumps(reply)
    except ToolFailure as failure:
        return {"outcome": failure.outcome, "text": failure.text}
    except BaseException as fault:  # noqa: BLE001 - a tool may raise anything; the model reads what
        return {"outcome": outcome_of_fault(fault), "text": describe(fault)}
    return {"outcome": Outcome.TOOL_ERROR if output.is_error else Outcome.OK, **reply}


def receive(connection: BufferedRWPair) -> Any:
    """The next message; None at the end."""
    head = connection.read(LENGTH.size)
    num_bytes = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else 0
    body = connection.read(num_bytes)
    return json.loads(body) if num_bytes and len(body) == num_bytes else None


def _send_message(connection: BufferedRWPair, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    connection.write(LENGTH.pack(len(body)) + body)
    connection.flush()


if __name__ == "__main__":
    main()
