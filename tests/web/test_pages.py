"""Pages in process: what needs no browser."""

from __future__ import annotations

from types import SimpleNamespace

from rlf.lineage.records import Step
from rlf.reports.sweep import SeedReport, SweepReport, SweepRow
from rlf.types import RunStatus

from ..reports.synthetic import run_record


def test_the_seeds_of_a_sweep_are_compared_on_a_page(client, monkeypatch):
    row = SweepRow(("seed=0",), "run-0", RunStatus.FINISHED, 4, 0.1, 0.4)
    sweep = SweepReport("sweep-1", "search", RunStatus.FINISHED, None, (row, row))
    member = SimpleNamespace(steps=[Step(1, {"reward/mean": 0.5}, 0.0)], evaluations=[])
    arms = [SimpleNamespace(letter="A", members=[member, member])]
    monkeypatch.setattr("rlf.web.pages.compare.compare_runs", lambda *_: SeedReport(sweep, 2, 0.4, None))
    monkeypatch.setattr("rlf.web.pages.compare.read_arms", lambda *_, **__: arms)
    page = client.get("/compare?a=sweep-1")
    assert page.status_code == 200 and "run-0" in page.text and "rlf runs compare sweep-1" in page.text


def test_every_view_of_a_run_stands_in_the_navigation(client):
    run = f"/runs/{run_record().id}"
    for path in ("", "/t", "/paid", "/plan", "/files"):
        page = client.get(run + path)
        assert page.status_code == 200
        assert f'<a href="{run}{path}" aria-current="page">' in page.text


def test_a_list_of_trajectories_keeps_what_was_asked_on_the_way_to_one(client):
    page = client.get(f"/runs/{run_record().id}/t?phase=sampled&sort=reward")
    assert "?phase=sampled&amp;sort=reward" in page.text


def test_a_read_only_page_offers_nothing_that_changes_something(clients):
    client = clients(read_only=True)
    for path in ("/runs", f"/runs/{run_record().id}", "/specs", "/jobs", "/projects"):
        text = client.get(path).text
        assert "data-post" not in text and "data-json" not in text and "data-fork" not in text
