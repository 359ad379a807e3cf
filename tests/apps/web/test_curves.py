"""Runs over each other, and the list that they are chosen from: columns, groups, pins."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store

from ...reports.synthetic import events, run_record

RATES = {"20260102-030400-abc0": 1e-4, "20260102-030401-abc1": 1e-4, "20260102-030402-abc2": 1e-3}


@pytest.fixture(scope="module")
def three_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("three") / "runs"
    with open_store(folder / "rlf.db") as store:
        for seed, (run_id, rate) in enumerate(RATES.items()):
            plan = {"spec": {"seed": seed, "train": {"learning_rate": rate, "steps": 2}}}
            start_run(store, replace(run_record(run_id), plan=plan, seed=seed))
            with Recorder(store, run_id) as recorder:
                for event in events(num_steps=2, eval_every=1, num_questions=6, seed=seed):
                    recorder(event)
    return folder


def _data(page: str, kind: str) -> list[list[dict]]:
    return [json.loads(found) for found in re.findall(rf'class="{kind}"[^>]*>(.*?)</script>', page)]


def test_curves_of_runs_lie_over_each_other_by_step_time_and_tokens(clients, three_runs):
    address = "/curves?" + "&".join(f"a={run}" for run in RATES) + "&m=reward/mean&x=tokens&log=1&smooth=0.5"
    page = clients(runs_folder=three_runs).get(address).text
    (arms,), ((chart,), others) = _data(page, "arms"), _data(page, "curves")
    assert chart["name"] == "reward/mean" and [len(line["points"]) for line in chart["lines"]] == [2, 2, 2]
    assert "reward/mean" not in {one["name"] for one in others} and "held-out/sampled" in {
        one["name"] for one in others
    }
    assert [arm["run_ids"] for arm in arms] == [[run] for run in RATES]
    for arm in arms:
        assert arm["steps"] == [1, 2] and arm["tokens"] == sorted(arm["tokens"]) and arm["tokens"][0] > 0
        assert len(arm["time"]) == 2
    assert "learning_rate=0.0001" in arms[0]["name"] and "learning_rate=0.001" in arms[2]["name"]
    assert "<option selected>tokens</option>" in page and 'value="0.5"' in page and 'value="1" checked' in page


def test_runs_of_a_group_are_one_line_with_their_mean(clients, three_runs):
    address = "/curves?" + "&".join(f"a={run}" for run in RATES) + "&group=train.learning_rate&m=reward/mean"
    page = clients(runs_folder=three_runs).get(address).text
    (arms,), ((chart,), _) = _data(page, "arms"), _data(page, "curves")
    assert [arm["run_ids"] for arm in arms] == [list(RATES)[:2], list(RATES)[2:]]
    assert [line["name"] for line in chart["lines"]] == ["train.learning_rate=0.0001", "train.learning_rate=0.001"]
    assert [len(line["band"]) for line in chart["lines"]] == [2, 0]


def test_what_cannot_be_drawn_says_why(clients, three_runs):
    client = clients(runs_folder=three_runs)
    assert "no run is named" in client.get("/curves").text
    assert client.get("/curves?a=nobody").status_code == 404
    unknown = client.get(f"/curves?a={next(iter(RATES))}&m=nothing").text
    assert _data(unknown, "curves")[0][0]["name"] == "held-out/sampled"


def test_the_list_has_the_columns_and_groups_that_are_asked_for_and_pins_stand_first(clients, three_runs):
    client = clients(runs_folder=three_runs)
    page = client.get("/runs?cols=train.learning_rate,reward/mean,no.such&group=train.learning_rate").text
    titles = re.findall(r'title="order by ([^"]+)">', page)
    assert titles[-4:] == ["train.learning_rate", "reward/mean", "no.such", "started"]
    heads = [html.unescape(re.sub("<[^>]+>", "", one)) for one in re.findall(r"of-group.*?</tr>", page)]
    assert ["0.001" in one for one in heads] == [True, False] and "2 runs" in heads[1]
    ids = re.findall(r'<tr id="([^"]+)"', page)
    assert ids == list(RATES)[::-1]
    client.post(f"/api/v1/runs/{ids[-1]}/tags", json={"tags": ["pinned"]})
    assert re.findall(r'<tr id="([^"]+)"', client.get("/runs").text) == [ids[-1], *ids[:-1]]
    assert re.findall(r'<tr id="([^"]+)"', client.get("/runs?q=step > 0").text) == ids
    client.post(f"/api/v1/runs/{ids[-1]}/tags", json={"tags": ["pinned"], "remove": True})
    assert re.findall(r'<tr id="([^"]+)"', client.get("/runs").text) == ids
