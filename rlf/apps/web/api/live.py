"""The stream of events: news of the runs that a browser shows, and of the list of runs.

Every tab of a browser shares one stream. Its `id` is a cursor, so that a browser that comes back misses nothing and
gets nothing twice.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated

from fastapi import Header, Request
from fastapi.responses import StreamingResponse

from rlf.apps.web.run_views import Cursor, RunNews, changed_lines, now_words, parse_cursors, read_news, read_now
from rlf.apps.web.site import Area, Site
from rlf.core.errors import RlfError, RunError
from rlf.core.plain_json import as_json
from rlf.lineage.records import RunLine
from rlf.runs.now import Now

# SQLite has no notification: the page reads what is new this often.
POLL_S = 0.5
# Below the 30 to 60 s after which proxies cut a silent connection.
HEARTBEAT_S = 15.0
# Each stream holds a connection of the browser and a reader of the lineage.
_MAX_STREAMS = 32


def routes(site: Site) -> Area:
    """The routes of the area."""
    area = Area(site, "events")
    num_open = 0

    @area.read("/runs/{run}/now")
    def show_now(run: str) -> Now | None:
        """The present work of a run: its stages, and what it waits for; null if it does not report any."""
        with site.reader() as reader:
            return read_now(site.runs_folder, reader.get_run(run).record.id)

    @area.router.get("/events", operation_id="stream_events", response_class=StreamingResponse)
    async def stream_events(
        request: Request, runs: str = "", since: str = "", last_event_id: Annotated[str, Header()] = ""
    ) -> StreamingResponse:
        """Server-sent events: `run` when a run began, has a new step or ended, `now` for what a run does now.

        Of those that `runs` names by whole ids, with commas, it has all that is new; `since` is a page's cursor, where
        no event came before.
        """
        nonlocal num_open
        if num_open >= _MAX_STREAMS:
            raise RunError(f"{num_open} streams are open, the most that are allowed. Close some pages.")
        known = parse_cursors(last_event_id or since)
        cursors = {run: known.get(run, Cursor(run)) for run in filter(None, runs.split(","))}
        # Before the response begins: what a page reads when it has begun is not older than the first look.
        look = await asyncio.to_thread(Look, site, cursors)

        async def stream() -> AsyncIterator[str]:
            nonlocal num_open
            num_open += 1
            try:
                async for message in send_events(site, look):
                    yield message
            finally:
                num_open -= 1

        return StreamingResponse(stream(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    return area


async def send_events(site: Site, look: Look) -> AsyncIterator[str]:
    """Messages for one browser, until the server ends."""
    sent_s = time.monotonic()
    yield "retry: 1000\n\n"
    while not site.is_ending:
        try:
            messages = await asyncio.to_thread(look.next)
        except RlfError:  # the lineage cannot be read, as pages report; it may come back
            messages = []
        for message in messages:
            yield message
        if messages:
            sent_s = time.monotonic()
        elif time.monotonic() - sent_s > HEARTBEAT_S:
            sent_s = time.monotonic()
            yield "event: alive\ndata: {}\n\n"
        await asyncio.sleep(POLL_S)


class Look:
    """The state of one browser's stream."""

    def __init__(self, site: Site, cursors: Mapping[str, Cursor]) -> None:
        self._site = site
        self._cursors = dict(cursors)
        self._words: dict[str, str] = {}
        self._lines: list[RunLine] = []
        """Of the last look; without any, every run is news."""
        with suppress(RlfError):  # it may be readable later
            self._lines = self._read_lines() if site.has_lineage else []

    def _read_lines(self) -> list[RunLine]:
        with self._site.reader() as reader:
            return reader.run_lines()

    def next(self) -> list[str]:
        """The news since the last call."""
        if not self._site.has_lineage:
            return []
        lines, cursors, messages = self._read_lines(), dict(self._cursors), list[str]()
        changed = {line.id: line for line in changed_lines(self._lines, lines)}
        for run_id, cursor in self._cursors.items():
            with self._site.reader() as reader:
                found = read_news(reader, cursor)
            if found is not None and (found.cursor != cursor or run_id in changed):
                cursors[run_id] = found.cursor or cursor
                messages.append(_make_message(found, cursors))
        others = [RunNews(line.id, line) for line in changed.values() if line.id not in cursors]
        messages += [_make_message(one, cursors) for one in others]
        doing = self._doing(lines)
        self._lines, self._cursors = lines, cursors  # once all is read: what failed is in the next look
        return doing + messages

    def _doing(self, lines: Sequence[RunLine]) -> list[str]:
        """The present work of runs, where it is not that of the last look."""
        words = {line.id: now_words(self._site.runs_folder, line.id) for line in lines if line.status == "running"}
        messages = [
            f"event: now\ndata: {json.dumps({'run_id': run_id, 'words': text})}\n\n"
            for run_id, text in words.items()
            if self._words.get(run_id, "") != text
        ]
        self._words = words
        return messages


def _make_message(news: RunNews, cursors: Mapping[str, Cursor]) -> str:
    places = ",".join(map(str, cursors.values()))
    data = json.dumps(as_json(news), separators=(",", ":"))
    return f"event: run\nid: {places}\ndata: {data}\n\n"
