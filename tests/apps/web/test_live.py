"""The stream of events: what a browser gets, once each."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from rlf.apps.web.api import live
from rlf.apps.web.run_views import Cursor, parse_cursors
from rlf.apps.web.settings import WebSettings
from rlf.apps.web.site import Site
from rlf.core.errors import RunError
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.types import Notice, StepFinished

from ...reports.synthetic import run_record


@pytest.fixture
def site(tmp_path):
    found = Site(WebSettings(tmp_path, tmp_path / "runs"))
    yield found
    found.close()


def read(site, cursors, num_looks=1, before_each=lambda look: None):
    """The messages of some looks, as names and data, with the last cursor."""

    async def collect():
        messages, looks = [], 0
        async for text in live.send_events(site, live.Look(site, cursors)):
            if text.startswith(("retry", "event: alive")):
                continue
            fields = dict(line.split(": ", 1) for line in text.strip().split("\n"))
            messages.append((fields["event"], json.loads(fields["data"]), fields["id"]))
            looks += 1
            if looks == num_looks:
                return messages
            before_each(looks)
        return messages

    return asyncio.run(asyncio.wait_for(collect(), 20))


def test_steps_and_notices_come_once_and_in_order(site, monkeypatch):
    monkeypatch.setattr(live, "POLL_S", 0.01)
    run_id = run_record().id
    with open_store(site.settings.runs_folder / "rlf.db") as store:
        start_run(store, run_record())
        with Recorder(store, run_id) as recorder:
            recorder(StepFinished(1, {"success": 0.5}, (), ()))
            recorder(Notice("warning", "one", {}))
            time.sleep(0.3)

            def go_on(look):
                recorder(StepFinished(2, {"success": 0.6}, (), ()))

            messages = read(site, {run_id: Cursor(run_id)}, 2, go_on)
            news = [data for name, data, _ in messages if name == "run"]
            assert [step["step"] for one in news for step in one["steps"]] == [1, 2]
            assert [notice["text"] for one in news for notice in one["notices"]] == ["one"]
            cursor = parse_cursors(messages[-1][2])
            recorder(StepFinished(3, {"success": 0.7}, (), ()))
            again = [data for name, data, _ in read(site, cursor) if name == "run"]
            assert [step["step"] for one in again for step in one["steps"]] == [3]


def test_a_run_that_begins_is_announced_to_every_page(site, monkeypatch):
    monkeypatch.setattr(live, "POLL_S", 0.01)
    with open_store(site.settings.runs_folder / "rlf.db") as store:
        start_run(store, run_record())
        look = live.Look(site, {})
        assert look.next() == []
        with Recorder(store, run_record().id) as recorder:
            recorder(StepFinished(1, {}, (), ()))
        assert f'"run_id":"{run_record().id}"' in look.next()[0]
        assert look.next() == []


def test_a_stream_outlasts_a_lineage_that_cannot_be_read_and_ends_with_its_server(site, monkeypatch):
    monkeypatch.setattr(live, "POLL_S", 0.01)
    file = site.settings.runs_folder / "rlf.db"
    file.parent.mkdir()
    file.write_bytes(b"no database at all" * 100)
    texts = []

    async def follow():
        texts.extend([text async for text in live.send_events(site, live.Look(site, {}))])

    async def watch():
        stream = asyncio.create_task(follow())
        await asyncio.sleep(0.2)
        assert not stream.done()
        file.unlink()
        with open_store(file) as store:
            start_run(store, run_record())
            await asyncio.sleep(0.3)
            with Recorder(store, run_record().id) as recorder:
                recorder(StepFinished(1, {}, (), ()))
        await asyncio.sleep(0.3)
        site.end()
        await asyncio.wait_for(stream, 10)

    asyncio.run(watch())
    assert any(run_record().id in text for text in texts)


def test_what_a_look_could_not_read_is_in_the_next_one(site, monkeypatch):
    with open_store(site.settings.runs_folder / "rlf.db") as store:
        start_run(store, run_record())
        looks = live.Look(site, {}), live.Look(site, {run_record().id: Cursor(run_record().id)})
        with Recorder(store, run_record().id) as recorder:
            recorder(StepFinished(1, {}, (), ()))
        with monkeypatch.context() as patch:
            for name in ("now_words", "read_news"):
                patch.setattr(live, name, _fail)
            for look in looks:
                with pytest.raises(RunError):
                    look.next()
        assert [len(look.next()) for look in looks] == [1, 1]


def _fail(*_):
    raise RunError("the lineage is damaged")


def test_the_first_look_is_taken_before_a_stream_begins(client, monkeypatch):
    """Else a page could read its part before a run is recorded, and the stream would take it for known."""
    monkeypatch.setattr(live, "Look", _fail)
    assert client.get("/api/v1/events").status_code == 500


def test_cursors_that_are_none_are_refused(client):
    assert client.get("/api/v1/events", params={"since": "x@y"}).status_code == 422
    assert client.get("/api/v1/events", params={"since": "x@0@0@inf"}).status_code == 422


def test_the_page_of_a_run_has_the_cursor_to_go_on_from(client):
    cursor = client.get(f"/api/v1/runs/{run_record().id}").json()["cursor"]
    assert parse_cursors(cursor)[run_record().id].num_notices > 0
