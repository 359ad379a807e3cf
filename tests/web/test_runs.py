"""Runs as a page and as JSON."""

from __future__ import annotations

from dataclasses import replace

from rlf.lineage import open_store, start_run

from ..reports.synthetic import run_record


def test_the_list_is_the_same_as_a_page_and_as_json(client):
    found = client.get("/api/v1/runs").json()
    assert [run["run_id"] for run in found["runs"]] == [run_record().id]
    page = client.get("/runs")
    assert page.headers["content-type"].startswith("text/html") and f'id="{run_record().id}"' in page.text


def test_a_filter_is_that_of_the_command_line(client):
    assert client.get("/api/v1/runs", params={"q": "step > 100"}).json()["num_wanted"] == 0
    refused = client.get("/api/v1/runs", params={"q": "stepp > 100"})
    assert refused.status_code == 422 and "step" in refused.json()["error"]["message"]


def test_an_empty_folder_has_no_runs(clients, tmp_path):
    assert clients(runs_folder=tmp_path / "none").get("/api/v1/runs").json()["num_runs"] == 0


def test_a_part_for_htmx_has_no_frame(client):
    assert "<html" not in client.get("/runs", headers={"HX-Request": "true"}).text


def test_pages_of_runs_hold_each_of_them_once_with_and_without_an_order(clients, tmp_path):
    with open_store(tmp_path / "runs/rlf.db") as store:
        for number in range(7):
            start_run(store, replace(run_record(), id=f"run-{number}", started=1000.0 + number // 2))
    client = clients(runs_folder=tmp_path / "runs")
    for asked in ({}, {"sort": "started"}, {"q": "step >= 0"}):
        ids, after = [], ""
        while after is not None:
            page = client.get("/api/v1/runs", params={"limit": 2, "after": after, **asked}).json()
            assert (page["num_wanted"], page["num_runs"]) == (7, 7)
            ids, after = ids + [run["run_id"] for run in page["runs"]], page["next"]
        assert sorted(ids) == [f"run-{number}" for number in range(7)] and ids[0] == "run-6"


def test_what_is_paid_and_not_right_is_one_page(client):
    found = client.get(f"/api/v1/runs/{run_record().id}/paid").json()
    assert found["threshold"] is not None and found["num_paid"] == 0
    assert [step["step"] for step in found["steps"]] == [1, 2]
