"""The driver's side of `engine.ingest`: what agents send goes into spool files of its own, synced before it answers."""

from __future__ import annotations

import asyncio
import hmac
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from rlf.core.errors import RlfError
from rlf.core.servers import guard_visitors, server_context
from rlf.engines.openrlhf.job.folder import Job
from rlf.engines.openrlhf.settings import INGEST_TOKEN, IngestSpec
from rlf.engines.openrlhf.spool.send import CHUNK_BYTES

_FILE = r"/{run}/{attempt:\d+}/{name:[\w.-]+\.spool}"


@asynccontextmanager
async def receiving(ingest: IngestSpec, job: Job) -> AsyncIterator[None]:
    """Takes the records of one run while the block is open.

    Raises:
        RlfError: the address cannot be listened on, or the certificate cannot be used.
    """
    runner = web.AppRunner(Receiver(job, os.environ[INGEST_TOKEN]).app(ingest.host), access_log=None)
    await runner.setup()
    bind = ingest.bind or ingest.host
    try:
        try:
            await web.TCPSite(runner, bind, ingest.port, ssl_context=server_context(ingest.shown())).start()
        except OSError as error:
            raise RlfError(
                f"engine.ingest: cannot listen on {bind} port {ingest.port}: {error.strerror or error}. Write another "
                "port, or as `bind` an address of this machine."
            ) from error
        yield
    finally:
        await runner.cleanup()


class Receiver:
    """Copies of the agents' files, in the job's folder."""

    def __init__(self, job: Job, token: str) -> None:
        self._job = job
        self._token = f"Bearer {token}".encode()
        self._locks: defaultdict[Path, asyncio.Lock] = defaultdict(asyncio.Lock)
        """One write at a time to each file."""

    def app(self, *hosts: str) -> web.Application:
        """The server: `POST /RUN/ATTEMPT/FILE?offset=N` with bytes, answered by the size that the copy has then."""
        app = web.Application(client_max_size=2 * CHUNK_BYTES, middlewares=[guard_visitors(*hosts)])
        app.router.add_post(_FILE, self._take)
        return app

    async def _take(self, request: web.Request) -> web.Response:
        if not hmac.compare_digest(request.headers.get("Authorization", "").encode(), self._token):
            return web.Response(status=401, text=f"not the token of {INGEST_TOKEN}")
        if request.match_info["run"] != self._job.run_id:
            return web.Response(status=404, text=f"this is run {self._job.run_id}")
        if not (offset := request.query.get("offset", "")).isdecimal():
            return web.Response(status=400, text="no offset")
        path = self._job.received(int(request.match_info["attempt"])) / request.match_info["name"]
        data = await request.read()
        async with self._locks[path]:
            try:
                size = await asyncio.to_thread(append_at, path, int(offset), data)
            except OSError as error:
                return web.Response(status=507, text=f"cannot be written: {error.strerror}")
        return web.json_response({"size": size})


def append_at(path: Path, offset: int, data: bytes) -> int:
    """Appends the bytes that a file does not have yet, and syncs it; returns the file's new size.

    Nothing is added when bytes between the file's end and the offset are missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        size = file.tell()
        if offset <= size < offset + len(data):
            file.write(data[size - offset :])
            file.flush()
            os.fsync(file.fileno())
        return file.tell()
