"""The stream of events: news of the runs that a browser shows, and of the list of runs.

Every tab of a browser shares one stream. Its `id` is a cursor, so that a browser that comes back misses nothing and
gets nothing twice.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated

from fastapi import Header, Request
from fastapi.responses import StreamingResponse

from rlf.api.running.now import Now, now_words, read_now
from rlf.api.runs.news import Cursor, RunLine, RunNews, changed_lines, parse_cursors, read_news
from rlf.core.errors import RlfError, RunError
from rlf.core.plain_json import as_json
from rlf.web.site import Area, Site

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
        """What a running run does now: its stages, and what it waits for; null if it does not report that."""
        with site.reader() as reader:
            return read_now(site.runs_folder, reader.get_run(run).record.id)

    @area.router.get("/events", operation_id="stream_events", response_class=StreamingResponse)
    async def stream_events(
        request: Request,
        runs: str = "",
        since: str = "",
        last_event_id: Annotated[str, Header()] = "",
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

        async def stream() -> AsyncIterator[str]:
            nonlocal num_open
            num_open += 1
            try:
                async for message in follow(site, cursors):
                    yield message
            finally:
                num_open -= 1

        return StreamingResponse(stream(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    return area


async def follow(site: Site, cursors: Mapping[str, Cursor]) -> AsyncIterator[str]:
    """Messages for one browser, until the server ends."""
    look: _Look | None = None
    sent_s = time.monotonic()
    yield "retry: 1000\n\n"
    while not site.is_ending:
        try:
            if look is None:
                look = await asyncio.to_thread(lambda: _Look(site, cursors))
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


class _Look:
    """What one browser has seen."""

    def __init__(self, site: Site, cursors: Mapping[str, Cursor]) -> None:
        self._site = site
        self._cursors = dict(cursors)
        self._words: dict[str, str] = {}
        self._lines = None if not site.has_lineage else self._read_lines()

    def _read_lines(self) -> list[RunLine]:
        with self._site.reader() as reader:
            return reader.run_lines()

    def next(self) -> list[str]:
        """The news since the last call."""
        if not self._site.has_lineage:
            return []
        lines = self._read_lines()
        changed = {line.id: line for line in changed_lines(self._lines or (), lines)}
        self._lines = lines
        messages = self._doing(lines)
        for run_id, cursor in list(self._cursors.items()):
            with self._site.reader() as reader:
                news = read_news(reader, cursor)
            if news is not None and (news.cursor != cursor or run_id in changed):
                self._cursors[run_id] = news.cursor or cursor
                messages.append(self._message(news))
        others = (RunNews(line.id, line) for line in changed.values() if line.id not in self._cursors)
        return messages + [self._message(news) for news in others]

    def _doing(self, lines: Sequence[RunLine]) -> list[str]:
        """What runs do now, where that is not what they did at the last look."""
        words = {line.id: now_words(self._site.runs_folder, line.id) for line in lines if line.status == "running"}
        messages = [
            f"event: now\ndata: {json.dumps({'run_id': run_id, 'words': text})}\n\n"
            for run_id, text in words.items()
            if self._words.get(run_id, "") != text
        ]
        self._words = words
        return messages

    def _message(self, news: RunNews) -> str:
        places = ",".join(map(str, self._cursors.values()))
        data = json.dumps(as_json(news), separators=(",", ":"))
        return f"event: run\nid: {places}\ndata: {data}\n\n"
