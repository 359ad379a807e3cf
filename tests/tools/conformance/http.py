"""`kind: http`: a service on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from rlf.types import Outcome
from tests.endpoints.servers import serving

from ._subject import PNG, Subject, failing

_STATUSES = {"fail": 400, "broken": 500, "busy": 429}


async def _act(request: web.Request) -> web.Response:
    what, _, word = request.query["text"].partition(" ")
    if what == "hang":
        await asyncio.sleep(60)
    if what == "draw":
        return web.Response(body=PNG, content_type="image/png")
    return web.Response(text=word, status=_STATUSES.get(what, 200))


@asynccontextmanager
async def _service() -> AsyncIterator[Subject]:
    failures = failing(fail=Outcome.TOOL_ERROR, broken=Outcome.SERVICE_ERROR, busy=Outcome.RATE_LIMITED)
    async with serving(act=_act) as url:
        yield Subject({"kind": "http", "url": f"{url}/act"}, failures=failures, image="draw")


SUBJECTS = {"service": _service}
