"""A world behind OpenEnv's own server."""

from contextlib import contextmanager

from rlf.types import Message, Task, ToolCall

from ...apps.servers.test_openenv import serve_openenv
from ._subject import Subject


@contextmanager
def websocket():
    with serve_openenv() as url:
        yield Subject(
            {"kind": "openenv", "url": url},
            solve=[ToolCall("step", {"guess": 12})],
            score="score",
            hang=[ToolCall("step", {"guess": 1000})],
            breaks=[ToolCall("step", {"guess": -1})],
            says="the world broke (EXECUTION_ERROR)",
            task=Task("t", (Message("user", "Play."),), columns={"seed": 11}),
        )


SUBJECTS = {"websocket": websocket}
