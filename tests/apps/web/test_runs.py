"""Runs as a page and as JSON."""

from __future__ import annotations

import re
import sqlite3
import time
from dataclasses import replace

from rlf.apps.web.api.live import Look
from rlf.apps.web.plan_values import PlanChange, find_plan_changes, last_run, plan_leaves
from rlf.apps.web.settings import WebSettings
from rlf.apps.web.site import Site
from rlf.core.clocks import stage, waiting_for
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.runs.now import NowWriter
from rlf.types import EvaluationFinished

from ...reports.synthetic import run_record


def test_the_list_is_the_same_as_a_page_and_as_json(client):
    found = client.get("/api/v1/runs").json()
    assert [run["run_id"] for run in found["runs"]] == [run_record().id]
    page = client.get("/runs")
    assert page.headers["content-type"].startswith("text/html") and f'id="{run_record().id}"' in page.text


def test_a_filter_is_that_of_the_command_line(client):
    assert client.get("/api/v1/runs", params={"q": "step > 100"}).json()["num_wanted"] == 0
    refused = client.get("/api/v1/runs", params={"q": "stepp > 100"})
    assert refused.status_code == 422 and "step" in refused.json()["error"]["message"]


def test_an_empty_folder_has_no_runs_and_its_list_waits_for_the_first(clients, tmp_path):
    client = clients(runs_folder=tmp_path / "none")
    assert client.get("/api/v1/runs").json()["num_runs"] == 0
    assert 'data-live="runs"' in client.get("/runs").text
    assert "No runs yet" in client.get("/compare").text


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


def test_the_list_is_ordered_by_any_column_both_ways_and_runs_without_a_value_come_last(clients, tmp_path):
    rates = {"run-0": 3e-4, "run-1": 1e-3, "run-2": None, "run-3": 1e-4}
    with open_store(tmp_path / "runs/rlf.db") as store:
        for number, (name, rate) in enumerate(rates.items()):
            plan = {"spec": {"train": {} if rate is None else {"learning_rate": rate}}}
            start_run(store, replace(run_record(), id=name, started=1000.0 + number, seed=10 - number, plan=plan))
    client = clients(runs_folder=tmp_path / "runs")

    def shown(sort, cols="train.learning_rate"):
        page = client.get("/runs", params={"sort": sort, "cols": cols}).text
        return re.findall(r'<tr id="(run-\d)"', page), page

    ordered, page = shown("train.learning_rate")
    assert ordered == ["run-1", "run-0", "run-3", "run-2"]
    assert 'aria-sort="descending"><a href="/runs?cols=train.learning_rate&amp;sort=-train.learning_rate"' in page
    assert shown("-train.learning_rate")[0] == ["run-3", "run-0", "run-1", "run-2"]
    assert shown("seed")[0] == ["run-0", "run-1", "run-2", "run-3"] == shown("-seed")[0][::-1]
    assert "unknown name" in shown("train.learning_rate", cols="")[1]


def test_what_is_paid_and_not_right_is_one_page(client):
    found = client.get(f"/api/v1/runs/{run_record().id}/paid").json()
    assert found["threshold"] is not None and found["num_paid"] == 0
    assert [step["step"] for step in found["steps"]] == [1, 2]


def test_a_lineage_of_an_older_checkout_is_refused_and_left_as_it_is(clients, tmp_path):
    file = tmp_path / "runs/rlf.db"
    with open_store(file) as store:
        start_run(store, run_record())
    with sqlite3.connect(file) as database:
        database.execute("UPDATE rlf_version SET version_num = '0007'")
    before = file.read_bytes()
    refused = clients(runs_folder=tmp_path / "runs", read_only=True).get("/api/v1/runs")
    assert refused.status_code >= 400 and "before the first version" in refused.json()["error"]["message"]
    assert file.read_bytes() == before


def test_a_lineage_that_is_replaced_is_closed_by_its_last_reader(tmp_path):
    file = tmp_path / "runs/rlf.db"
    with open_store(file) as store:
        start_run(store, run_record())
    site = Site(WebSettings(tmp_path, tmp_path / "runs"))
    with site.reader() as before:
        file.rename(tmp_path / "moved.db")
        with open_store(file) as store:
            start_run(store, replace(run_record(), id="another"))
        with site.reader() as now:
            assert [run.record.id for run in now.list_runs()] == ["another"]
        assert [run.record.id for run in before.list_runs()] == [run_record().id]
    site.close()


def test_what_a_run_does_now_is_in_json_on_its_page_and_in_the_stream(clients, tmp_path):
    with open_store(tmp_path / "runs/rlf.db") as store:
        start_run(store, run_record())
        client = clients(runs_folder=tmp_path / "runs")
        assert client.get(f"/api/v1/runs/{run_record().id}/now").json() is None
        folder = tmp_path / "runs" / run_record().id
        with stage("train 3", 8) as here, waiting_for("tool search (train/3/0)"), NowWriter(folder):
            here.num_done = 5
            deadline = time.monotonic() + 10
            while not (folder / "now.json").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            found = client.get(f"/api/v1/runs/{run_record().id}/now").json()
            assert [(one["what"], one["num_done"], one["num_planned"]) for one in found["stages"]] == [
                ("train 3", 5, 8)
            ]
            assert [(one["what"], one["number"]) for one in found["waits"]] == [("tool search", 1)]
            assert "train 3: 5 of 8 · waits for tool search (1" in client.get(f"/runs/{run_record().id}").text
            (message,) = Look(client.app.state.site, {}).next()
            assert message.startswith("event: now") and "train 3: 5 of 8" in message
        assert not (folder / "now.json").exists()


def test_a_key_shows_what_its_values_did_and_pairs_that_differ_in_it_alone(clients, tmp_path):
    rates = {"run-0": (1e-3, 0, 8), "run-1": (1e-4, 1, 8), "run-2": (1e-4, 1, 4)}
    with open_store(tmp_path / "runs/rlf.db") as store:
        for number, (name, (rate, seed, size)) in enumerate(rates.items()):
            spec = {"name": "synthetic", "seed": seed, "train": {"learning_rate": rate, "prompts_per_step": size}}
            start_run(store, replace(run_record(), id=name, started=1000.0 + number, plan={"spec": spec}))
            with Recorder(store, name) as recorder:
                recorder(EvaluationFinished(1, "sampled", {"success": 0.25 * number}, ()))
    client = clients(runs_folder=tmp_path / "runs")
    asked = {"spec": "synthetic", "key": "train.learning_rate"}
    found = client.get("/api/v1/keys", params=asked).json()
    assert [(one["value"], one["runs"], one["success"]) for one in found["values"]] == [
        (1e-4, ["run-2", "run-1"], 0.375),
        (1e-3, ["run-0"], 0.0),
    ]
    assert [(one["before"], one["now"]) for one in found["pairs"]] == [("run-0", "run-1")]
    page = client.get("/keys", params=asked).text
    assert "/compare?a=run-0&amp;a=run-1" in page or "/compare?a=run-0&a=run-1" in page
    assert client.get("/api/v1/keys", params=asked | {"key": "train.learning_rat"}).status_code == 422
    now = {"name": "synthetic", "seed": 1, "train.learning_rate": 1e-3, "train.prompts_per_step": 4}
    last = last_run(tmp_path / "runs", "synthetic")
    assert find_plan_changes(plan_leaves(last), now) == (PlanChange("train.learning_rate", 1e-4, 1e-3),)
