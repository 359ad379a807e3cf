"""A corpus behind Search-R1's `POST /retrieve`, so that what was written for its retriever talks to rlf's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlf.apps.offer.corpus import Corpus, Passage, open_corpus
from rlf.core.process import usable_cores
from rlf.core.servers import guard_visitors, listening, serve_app

_MAX_BODY_BYTES = 4_000_000


class RetrieveRequest(BaseModel):
    """The body of `/retrieve`, as Search-R1's clients write it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    queries: tuple[Annotated[str, Field(max_length=20_000)], ...] = Field(max_length=4_096)
    topk: int = Field(3, ge=1, le=1_000)
    """Passages for each query."""
    return_scores: bool = False
    """Whether each passage comes as {document, score}."""


def search_app(corpus: Corpus, threads: ThreadPoolExecutor, *hosts: str) -> web.Application:
    """`POST /retrieve` and `GET /health`, for visitors that come by one of the hosts' names or by an address."""

    async def retrieve(request: web.Request) -> web.Response:
        try:
            asked = RetrieveRequest.model_validate_json(await request.read())
        except ValidationError as error:
            faults = [": ".join((*map(str, fault["loc"]), fault["msg"])) for fault in error.errors()]
            return web.json_response({"error": faults}, status=422)
        loop = asyncio.get_running_loop()
        found = await asyncio.gather(
            *(loop.run_in_executor(threads, corpus.search, query, asked.topk) for query in asked.queries)
        )
        return web.json_response(
            {"result": [[_show_passage(one, asked.return_scores) for one in of_one] for of_one in found]}
        )

    async def health(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "passages": corpus.num_passages})

    app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[guard_visitors(*hosts)])
    app.add_routes([web.post("/retrieve", retrieve), web.get("/health", health)])
    return app


def _show_passage(passage: Passage, with_score: bool) -> dict[str, Any]:
    document = {"id": passage.id, "contents": passage.contents}
    return {"document": document, "score": passage.score} if with_score else document


async def serve_search(corpus: Path, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM; an index is built first where there is none.

    Args:
        tell: called with a line for the user at the start of a build and once the corpus is served.

    Raises:
        SpecError, RlfError: the corpus is none, or the port is in use.
    """
    with listening(host, port) as listener, ThreadPoolExecutor(usable_cores(), "rlf-search") as threads:
        tell(f"opening {corpus}; the first time, an index is built beside it")
        opened = await asyncio.to_thread(open_corpus, corpus)
        app = search_app(opened, threads, host)
        await serve_app(app, listener, lambda url: tell(f"{opened.num_passages:,} passages at {url}/retrieve"))
