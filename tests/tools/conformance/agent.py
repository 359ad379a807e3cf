"""`kind: agent`: a scripted model with tools of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from rlf.types import Outcome

from ._subject import Subject, failing, model_server, says

_FUNCTIONS = Path(__file__).parents[1] / "obedient.py"
_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def _reply(prompt: str, body: Mapping[str, Any]) -> web.Response:
    """Calls its tool with the prompt and repeats what that says; of `fail` it never has enough."""
    if prompt == "hang":
        await asyncio.sleep(60)
    results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    if results and not prompt.startswith("fail"):
        return says({"content": results[-1]})
    asked = prompt.replace("fail", "say")
    call = {"id": "c", "type": "function", "function": {"name": "act", "arguments": json.dumps({"text": asked})}}
    return says({"content": None, "tool_calls": [call]})


@asynccontextmanager
async def _loop() -> AsyncIterator[Subject]:
    act = {"kind": "python", "callable": f"{_FUNCTIONS}:act_on_loop"}
    tool = {"name": "act", "description": "Does it.", "inputSchema": _SCHEMA, "target": act}
    failures = failing(fail=Outcome.TOOL_ERROR, refused=Outcome.UNREACHABLE)
    async with model_server(_reply) as endpoints:
        target = {"kind": "agent", "endpoints": endpoints, "prompt": "{{ text }}", "tools": [tool], "max_turns": 2}
        yield Subject(target, failures=failures)


SUBJECTS = {"loop": _loop}
