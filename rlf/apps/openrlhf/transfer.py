"""Both sides of `engine.ingest`: spool files that grow on a node are copied to the machine that runs `rlf`.

Bytes of the file are sent from an offset, and answered with the size of the copy, which is synced by then: a retry
after a lost answer adds nothing, and a sender that comes back continues where the copy ends. The file itself is the
buffer, so that nothing is lost while nobody takes it.
"""

from __future__ import annotations

import asyncio
import hmac
import io
import logging
import os
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from rlf.apps.openrlhf.job import Job, JobAttempt
from rlf.apps.openrlhf.settings import INGEST_TOKEN, IngestSpec
from rlf.core.connections import CleanConnector, open_session
from rlf.core.errors import RlfError
from rlf.core.servers import client_context, guard_visitors, server_context

logger = logging.getLogger(__name__)

CHUNK_BYTES = 4 * 2**20
_TIMEOUT = aiohttp.ClientTimeout(total=30.0, connect=5.0)
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0


class NotTaken(Exception):
    """The other side answered that it does not take what was sent."""


class Sender:
    """Copies the files of one agent, one after the other; one that another follows is removed when it is taken."""

    def __init__(self, ingest: IngestSpec, attempt: JobAttempt, certificate: Path) -> None:
        """Sends nothing before a file grows.

        Args:
            certificate: this node's copy of `ingest.certificate`.
        """
        self._trusted = certificate if ingest.certificate else None
        self._ingest, self._attempt = ingest, attempt
        self._files = deque[tuple[Path, int]]()
        """Those that are not wholly taken, each with what was written before it. Sizes count over all of them."""
        self._written = 0
        self._sent = 0
        self._away = False
        """Whether nobody answered last time."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._grown = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None

    def grow(self, path: Path, start: int, size: int) -> None:
        """Takes the file that is written now, which begins at `start` and ends at `size` of all that was written."""
        if not self._files or self._files[-1][0] != path:
            self._files.append((path, start))
        self._written = size
        self._grown.set()
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())
            self._sending.add_done_callback(self._give_up)

    async def taken(self, size: int) -> None:
        """Returns when the receiver has the first `size` bytes; at once while none answers, since they follow later."""
        if self._sent < size and not self._away:
            taken = asyncio.get_running_loop().create_future()
            self._waiting.append((size, taken))
            await taken

    async def close(self) -> None:
        """Ends it; what is not sent stays in the file."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send_all(self) -> None:
        """Sends whatever comes, and keeps trying while nobody takes it."""
        pause_s = _FIRST_PAUSE_S
        async with session(self._trusted) as http:
            while True:
                await self._grown.wait()
                self._grown.clear()
                while self._sent < self._written:
                    pause_s = await self._send_some(http, pause_s)

    async def _send_some(self, http: aiohttp.ClientSession, pause_s: float) -> float:
        """Sends a chunk, or waits for the time that is given; the time for the next wait."""
        path, start = self._files[0]
        url = _url(path, self._ingest, self._attempt)
        try:
            self._sent = start + await send_from(http, url, path, self._sent - start)
        except (aiohttp.ClientError, OSError, NotTaken) as fault:
            if not self._away:
                logger.warning("%s takes no trajectories (%r); they stay in %s", url, fault, path.parent)
            self._away = True
            self._release(self._written)
            await asyncio.sleep(pause_s)
            return min(2 * pause_s, _LONGEST_PAUSE_S)
        self._away = False
        self._release(self._sent)
        if len(self._files) > 1 and self._sent >= self._files[1][1]:
            self._files.popleft()
            await asyncio.to_thread(path.unlink)
        return _FIRST_PAUSE_S

    def _give_up(self, sending: asyncio.Task[None]) -> None:
        """Ends every wait when the sending ended."""
        if not sending.cancelled():
            logger.error("%s: nothing more is sent", self._files[0][0].parent, exc_info=sending.exception())
        self._away = True
        self._release(self._written)

    def _release(self, size: int) -> None:
        """Lets those continue that wait for no more than `size` bytes."""
        for wanted, taken in self._waiting:
            if wanted <= size and not taken.done():
                taken.set_result(None)
        self._waiting = [item for item in self._waiting if not item[1].done()]


def session(trusted: Path | None = None) -> aiohttp.ClientSession:
    """A client that says the token of RLF_INGEST_TOKEN, over TLS to the server that shows the trusted certificate."""
    connector = CleanConnector() if trusted is None else CleanConnector(ssl=client_context(trusted))
    headers = {"Authorization": f"Bearer {os.environ[INGEST_TOKEN]}"}
    return open_session(connector, headers=headers, timeout=_TIMEOUT)


async def send_from(http: aiohttp.ClientSession, url: str, path: Path, offset: int) -> int:
    """Sends the bytes of a file from an offset on, a chunk at most; the size of the copy.

    Raises:
        aiohttp.ClientError, TimeoutError: nobody answers.
        NotTaken: somebody does, and says no.
    """
    data = await asyncio.to_thread(_chunk, path, offset)
    async with http.post(url, params={"offset": str(offset)}, data=io.BytesIO(data)) as answer:
        if answer.status != 200:
            raise NotTaken(f"{answer.status}: {(await answer.text())[:200]}")
        try:
            return int((await answer.json())["size"])
        except (ValueError, TypeError, KeyError) as error:
            raise NotTaken(f"an answer that is none of rlf: {error!r}") from error


async def send_files(paths: Sequence[Path], ingest: IngestSpec, attempt: JobAttempt, certificate: Path) -> None:
    """Sends what is not sent of files that grow no more. Raises as `send_from` does."""
    async with session(certificate if ingest.certificate else None) as http:
        for path in paths:
            url, whole = _url(path, ingest, attempt), path.stat().st_size
            size = await send_from(http, url, path, whole)  # nothing: asks how long the copy is
            while size < whole:
                size = await send_from(http, url, path, size)


def _url(path: Path, ingest: IngestSpec, attempt: JobAttempt) -> str:
    return f"{ingest.scheme}://{ingest.host}:{ingest.port}/{attempt.run}/{attempt.number}/{path.name}"


def _chunk(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(CHUNK_BYTES)


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
