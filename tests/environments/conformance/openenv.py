"""A world behind OpenEnv's own server."""

import subprocess
import time
import urllib.request
from contextlib import contextmanager

import pytest

from rlf.types import Message, Task, ToolCall

from ..test_openenv import PYTHON, SERVER, free_port
from ._subject import Subject


@contextmanager
def websocket():
    if not PYTHON.with_name("openenv").exists():
        pytest.skip(f"{PYTHON} has no OpenEnv: `make .venv/worlds/ready` installs it")
    port = free_port()
    process = subprocess.Popen([PYTHON, SERVER, str(port)], env={"PATH": "/usr/bin:/bin"})
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/health", timeout=1)
            break
        except OSError:
            time.sleep(0.1)
    yield Subject(
        {"kind": "openenv", "url": url},
        solve=[ToolCall("step", {"guess": 12})],
        score="score",
        hang=[ToolCall("step", {"guess": 1000})],
        breaks=[ToolCall("step", {"guess": -1})],
        says="the world broke (EXECUTION_ERROR)",
        task=Task("t", (Message("user", "Play."),), columns={"seed": 11}),
    )
    process.kill()
    process.wait(10)


SUBJECTS = {"websocket": websocket}
