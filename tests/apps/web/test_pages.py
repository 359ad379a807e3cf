"""Pages in process: what needs no browser."""

from __future__ import annotations

import html
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rlf.apps.web.run_views import dead_words, pick_spread
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import TrajectoryLine, TrajectorySummary
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.types import CallRecord, Outcome, StepFinished, ToolCall, ToolResult, Turn

from ...reports.synthetic import run_record, scored, trajectory

ROOT = Path(__file__).parents[3]


def test_every_view_of_a_run_stands_in_the_navigation(client):
    run = f"/runs/{run_record().id}"
    for path in ("", "/t", "/paid", "/system", "/log", "/chat", "/plan", "/files"):
        page = client.get(run + path)
        assert page.status_code == 200
        assert f'<a href="{run}{path}" aria-current="page">' in page.text


def _line(task: int, success: float | None, k: int) -> TrajectoryLine:
    item = scored(task, succeeds=bool(success)).trajectory
    place = (1, "train", k, f"{item.task.id}/{k}", item.task.id, k)
    return TrajectoryLine(
        TrajectorySummary(*place, None, item.stop, None, None, "x", success, success, 0, *[1] * 5), ""
    )


@pytest.mark.parametrize(
    ("rates", "shown"),
    [
        ([(0, 0, 1, 1), (1, 1, 1, 1), (0, 1, 1, 1)], [0, 1, 1]),  # a learnt step: what failed, then each other question
        ([(0, 0), (0, 0), (None, 1)], [None, 0, 0]),
        ([(1, 1)] * 9, [1] * 6),
        ([(0, 1)] * 8, [0, 0, 0, 1, 1, 1]),
    ],
)
def test_newest_trajectories_are_of_as_many_questions_as_there_are_and_failed_ones_come_first(rates, shown):
    lines = [_line(task, rate, k) for task, group in enumerate(rates) for k, rate in enumerate(group)]
    found = [line.summary for line in pick_spread(lines, 6)]
    assert [one.success for one in found] == shown
    assert len({one.task_id for one in found}) == len(found)


def test_dead_groups_are_expected_after_learning_and_bad_before():
    words = [dead_words({"groups/dead_share": 1.0, "success": success}) for success in (0.98, 0.02, 0.5)]
    assert [one.partition(":")[0] for one in words] == ["expected", "bad", "bad"]
    assert dead_words({"groups/dead_share": 15 / 16, "success": 0.867}).startswith("expected: most of these groups")
    assert dead_words({"groups/dead_share": 0.2, "success": 0.02}) == dead_words({"groups/dead_share": 1.0}) == ""


def test_what_could_not_be_scored_is_hatched_and_says_why(client):
    text = client.get(f"/runs/{run_record().id}/t/train/1/1").text
    assert "mark unscorable" in text and "unscorable: no host" in text


def test_tokens_of_a_long_trajectory_come_in_windows(client, monkeypatch):
    monkeypatch.setattr("rlf.apps.web.pages.trajectories._MAX_TOKENS", 8)
    text = client.get(f"/runs/{run_record().id}/t/train/1/0?view=tokens&begin=8").text
    assert re.findall(r'data-i="(\d+)"', text) == [str(place) for place in range(8, 16)]
    assert "begin=16" in text


def test_an_empty_folder_becomes_a_project(clients, tmp_path):
    (tmp_path / "mine").mkdir()
    client = clients(project=tmp_path / "mine")
    assert "/api/v1/projects/here" in client.get("/projects").text
    made = client.post("/api/v1/projects/here", json={"template": "search"})
    assert made.status_code == 201 and (tmp_path / "mine/specs/mine.yaml").is_file()
    assert "/api/v1/projects/here" not in client.get("/projects").text
    assert client.post("/api/v1/projects/here", json={"template": "search"}).status_code == 422


def test_a_list_of_trajectories_keeps_what_was_asked_on_the_way_to_one(client):
    page = client.get(f"/runs/{run_record().id}/t?phase=sampled&sort=reward")
    assert "?phase=sampled&amp;sort=reward" in page.text


def test_a_read_only_page_offers_nothing_that_changes_something(clients):
    client = clients(read_only=True)
    for path in ("/runs", f"/runs/{run_record().id}", "/specs", "/jobs", "/projects"):
        text = client.get(path).text
        assert "data-post" not in text and "data-json" not in text and "data-fork" not in text


def test_a_damaged_lineage_is_named_and_one_that_was_removed_is_empty(clients, runs_folder, tmp_path):
    folder = shutil.copytree(runs_folder, tmp_path / "runs")
    client = clients(runs_folder=folder)
    whole = (folder / "rlf.db").read_bytes()
    with (folder / "rlf.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\x55" * (len(whole) - 4096))
    for path in ("/api/v1/runs", f"/runs/{run_record().id}"):
        answer = client.get(path)
        assert answer.status_code == 500 and "is damaged" in answer.text and "defect" not in answer.text, answer.text
    shutil.rmtree(folder)
    assert client.get("/runs").status_code == 200 and client.get("/api/v1/runs").json()["num_runs"] == 0


def test_arguments_of_calls_are_shown_in_letters_as_they_are(tmp_path, clients):
    call = CallRecord(ToolCall("search", {"query": "Zürich < 東京"}), ToolResult(Outcome.OK, "x"))
    played = replace(trajectory(0, succeeds=True), turns=(Turn(2, 4, 5, "x", calls=(call,)),))
    item = replace(scored(0, succeeds=True), trajectory=played)
    with open_store(tmp_path / "runs/rlf.db") as store:
        start_run(store, run_record())
        with Recorder(store, run_record().id) as recorder:
            recorder(StepFinished(1, {}, (item,), (0.5,)))
    page = clients(runs_folder=tmp_path / "runs").get(f"/runs/{run_record().id}/t/train/1/0").text
    assert "Zürich &lt; 東京" in page


def test_tags_lead_to_their_runs_and_notes_stand_on_the_page_of_a_run(tmp_path, clients):
    with open_store(tmp_path / "runs/rlf.db") as store:
        start_run(store, run_record())
    client = clients(runs_folder=tmp_path / "runs")
    run, tags = run_record().id, ["it's", 'so "good"', "<b>ü</b>"]
    assert client.post(f"/api/v1/runs/{run}/tags", json={"tags": tags}).json()["tags"] == sorted(tags)
    assert client.post(f"/api/v1/runs/{run}/tags", json={"tags": ["\x1b"]}).status_code == 422
    links = re.findall(r'class="tag" href="([^"]+)"', client.get("/runs").text)
    assert len(links) == 3
    for link in links:
        assert f'<tr id="{run}">' in client.get(html.unescape(link)).text, link
    notes = ["<i>mark</i> **bold**", "- [safe](https://a.b/) [not](javascript:alert(1)) ![x](https://c.d/e.png) \u202e"]
    for text in notes:
        client.post(f"/api/v1/runs/{run}/notes", json={"text": text})
    page = client.get(f"/runs/{run}").text
    assert "&lt;i&gt;mark&lt;/i&gt; <strong>bold</strong>" in page and '<li><a href="https://a.b/">safe</a>' in page
    assert 'href="javascript' not in page and "e.png" in page and "<img" not in page and "\\u202e" in page


def test_a_run_that_is_renamed_has_its_name_on_every_page_and_that_of_its_spec_in_filters(clients, tmp_path):
    with open_store(tmp_path / "runs/rlf.db") as store:
        start_run(store, run_record())
    client, run = clients(runs_folder=tmp_path / "runs"), f"/runs/{run_record().id}"
    client.post(f"/api/v1{run}/tags", json={"tags": ["name=the <b>best</b> so far", "pinned", "plain"]})
    for path in (run, "/runs", f"{run}/t", f"{run}/log", "/compare", f"/curves?a={run_record().id}"):
        assert "the &lt;b&gt;best&lt;/b&gt; so far" in client.get(path).text, path
    shown = client.get(run).text
    assert 'class="tag">plain<' in shown and 'class="tag">name=' not in shown and 'class="tag">pinned' not in shown
    assert "1 </span>" in client.get('/runs?q=spec == "synthetic"').text.replace("1 of 1", "1 ")


@pytest.mark.parametrize(
    ("folder", "file", "name"),
    [("tool_specs", "search.yaml", "search"), ("reward_specs", "exact_match.yaml", "exact_match")],
)
def test_a_page_that_reads_for_long_shows_its_frame_first_and_says_what_it_does(clients, tmp_path, folder, file, name):
    path = f"/{folder.removesuffix('_specs')}s"
    (tmp_path / "own" / folder).mkdir(parents=True)
    shutil.copy(ROOT / folder / file, tmp_path / "own" / folder / file)
    visitor = clients(project=tmp_path / "own")
    frame = visitor.get(path, params={"step": 1}).text
    assert f'hx-get="{path}?step=1"' in frame and f"reading the {path[1:]}…" in frame and f">{file}<" not in frame
    part = visitor.get(path, headers={"HX-Request": "true"}).text
    assert 'id="declared"' in part and file in part and "hx-get" not in part.partition('id="declared"')[2][:200]
    assert file in visitor.get(path).text  # read a moment ago


def test_terms_are_shown_beside_a_file_of_rewards_with_a_fault(clients, tmp_path):
    folder = tmp_path / "own" / "reward_specs"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "reward_specs" / "exact_match.yaml", folder / "a.yaml")
    (folder / "b.yaml").write_text("kind: rule\nrule: no_such\n")
    part = clients(project=tmp_path / "own").get("/rewards", headers={"HX-Request": "true"}).text
    assert "no_such" in part and "reward_specs/a.yaml" in part


def test_a_model_of_a_benchmark_has_its_run_and_its_trajectories(client, monkeypatch):
    model = {"run_id": "r-1", "target": "builtin:tiny", "mode": "greedy"}
    table = {"benchmark": "echo", "title": "Echo", "folder": "echo-1", "package": "", "data_sha256": "0" * 64}
    table |= {"columns": ["all"], "models": [model, model | {"run_id": "r-2"}], "cells": [["1 %"], ["2 %"]]}
    monkeypatch.setattr(client.app.state.site.fresh, "call", lambda task, **_: [table])
    frame = client.get("/benchmarks").text
    assert 'hx-get="/benchmarks"' in frame and '<a href="/benchmarks" aria-current="page">' in frame
    page = html.unescape(client.get("/benchmarks", headers={"HX-Request": "true"}).text)
    assert '<a href="/runs/r-1/t?phase=greedy">' in page and page.index("1 %") < page.index("2 %")
    assert "/compare?a=r-1&a=r-2&mode=greedy" in page
    monkeypatch.setattr(client.app.state.site.fresh, "call", lambda task, **_: [])
    assert "No model was tried" in client.get("/benchmarks", headers={"HX-Request": "true"}).text
