"""An MCP server: a session for each world, and one that keeps them apart by a key."""

from contextlib import contextmanager
from pathlib import Path

from rlf.types import Message, Task, ToolCall
from tests.warm import MCP, warm_python

from ._subject import Subject

SERVER = str(Path(__file__).parents[1] / "vault_server.py")
RESET = {"tool": "reset_state", "arguments": {"code": "{answer}", "seed": "{seed}"}}


def subject(*args, shares_fate=False, **keys):
    @contextmanager
    def made():
        server = {"command": warm_python(*MCP), "args": [SERVER, *args], "start_timeout_s": 60}
        env = {"kind": "mcp", "server": server, "reset": RESET, "score": {"tool": "get_score"}, **keys}
        yield Subject(
            env,
            solve=[ToolCall("open", {"code": "AMBER7"})],
            score="opened",
            hang=[ToolCall("look", {"place": "maze"})],
            breaks=[ToolCall("look", {"place": "quake"})],
            says="world mcp: step: ",
            task=Task("t", (Message("user", "Please."),), columns={"answer": "AMBER7"}),
            shares_fate=shares_fate,
        )

    return made


SUBJECTS = {"session": subject(), "key": subject("keyed", key="world", end={"tool": "forget"}, shares_fate=True)}
