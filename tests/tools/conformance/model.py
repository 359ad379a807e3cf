"""`kind: model`: scripted servers of the OpenAI protocol."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from rlf.types import Outcome

from ._subject import PNG, Subject, failing, model_server, says

_STATUSES = {"fail": 400, "unpaid": 402}


async def _reply(prompt: str, body: Mapping[str, Any]) -> web.Response:
    what, _, word = prompt.partition(" ")
    if what == "hang":
        await asyncio.sleep(60)
    if what in _STATUSES:
        return web.Response(text=word, status=_STATUSES[what])
    if what == "draw":
        return web.json_response({"data": [{"b64_json": base64.b64encode(PNG).decode()}]})
    return says({"content": word})


def _asking(api: str, image: str | None) -> Any:
    @asynccontextmanager
    async def subject() -> AsyncIterator[Subject]:
        failures = failing(fail=Outcome.TOOL_ERROR, unpaid=Outcome.SERVICE_ERROR)
        async with model_server(_reply) as endpoints:
            target = {"kind": "model", "api": api, "endpoints": endpoints, "prompt": "{{ text }}"}
            yield Subject(target, failures=failures, image=image, has_words=api != "image")

    return subject


SUBJECTS = {"chat": _asking("chat", None), "image": _asking("image", "draw")}
