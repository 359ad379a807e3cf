"""What a page shows is what commands say: comparisons, edited code, moved weights, long lists, other origins."""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from rlf.apps.rewards.page import rescore
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.plan import plan_to_json
from rlf.runs.plans import check_spec
from rlf.types import EvaluationFinished, StepFinished

from ....reports.synthetic import events, run_record, scored
from .conftest import serving

COMPARED = "a=20260102-030400-abc0&a=20260102-030401-abc1"


def test_the_matrix_has_every_question_of_each_arm_and_a_mark_opens_both_answers(visit):
    page = visit(f"/compare?{COMPARED}")
    found = page.evaluate(f"() => fetch('/api/v1/compare?{COMPARED.replace('a=', 'arm=')}').then(one => one.json())")
    rows = [row for kind in found["kinds"] for row in kind["rows"]]
    marks = page.locator(".dots > a, .dots > span")
    assert marks.count() == len(rows) * len(found["comparison"]["arms"]) == 24
    shown = [mark for mark in marks.all_inner_texts() if mark == "●"]
    assert len(shown) == sum(value == 1 for row in rows for value in row["successes"])
    link = page.locator(".dots > a").first
    link.focus()
    page.keyboard.press("Enter")
    opened = page.locator("details.flip[open]")
    opened.locator(".pair > h3").nth(1).wait_for()
    assert opened.locator(".pair > h3").all_inner_texts() == ["A", "B"]
    assert opened.locator(".turn.first").count() == 1
    address = page.url
    page.reload()
    page.locator("details.flip[open] .pair").wait_for()
    assert page.url == address


def test_an_interval_never_vanishes_where_all_pairs_differ_alike(visit, project):
    ids = [f"20260102-03050{arm}-d1d{arm}" for arm in (0, 1)]
    with open_store(project / "runs" / "rlf.db") as store:
        for run_id, rate in zip(ids, (1.0, 0.0), strict=True):
            start_run(store, run_record(run_id))
            made = events(num_steps=1, eval_every=1, num_questions=12)
            outcome = [scored(number, succeeds=rate == 1.0) for number in range(12)]
            with Recorder(store, run_id) as recorder:
                for event in made:
                    if isinstance(event, EvaluationFinished):
                        metrics = event.metrics | {"success": rate}
                        event = replace(event, metrics=metrics, trajectories=outcome)
                    recorder(event)
    verdict = visit(f"/compare?a={ids[0]}&a={ids[1]}").locator("p.verdict").inner_text()
    low, high = re.search(r"95 % CI ([\d.]+) to ([\d.]+)", verdict).groups()
    assert "100.0 points" in verdict and float(high) - float(low) > 10, verdict


def test_a_function_that_was_edited_on_disk_is_checked_as_it_is_now(visit, project):
    code, file = project / "tools" / "greet.py", project / "tool_specs" / "greet.yaml"
    code.parent.mkdir()
    code.write_text('def greet(name: str) -> str:\n    """Greets."""\n    return f"hello {name}"\n')
    file.write_text("name: greet\ndescription: Greets.\ntarget: {kind: python, callable: '../tools/greet.py:greet'}\n")
    try:
        page = visit("/specs/tool_specs/greet.yaml")
        page.locator("#checked.ok").wait_for()
        code.write_text(code.read_text().replace("def greet", "def welcome"))
        page.locator(".cm-content").press("Control+Enter")
        page.locator("#checked", has_text="1 fault").wait_for()
        assert "greet" in page.locator("#faults").inner_text()
    finally:
        file.unlink()
        shutil.rmtree(code.parent)


def test_moving_a_weight_changes_rewards_and_advantages_as_the_command_does(visit, project, monkeypatch):
    plan = check_spec([project / "specs" / "search.yaml"], []).plan
    record = replace(run_record("20260102-030403-abc3"), plan=json.loads(plan_to_json(plan)), cwd=str(project))
    tries = [replace(scored(number, succeeds=number < 2), scores=(), reward=float(number < 2)) for number in range(4)]
    with open_store(project / "runs" / "rlf.db") as store:
        start_run(store, record)
        with Recorder(store, record.id) as recorder:
            recorder(StepFinished(1, {"success": 0.5}, tries, (0.5, 0.5, -0.5, -0.5)))
    page = visit(f"/rewards?run={record.id}")
    slider = page.locator("input[type=range]").first
    slider.focus()
    for _ in range(10):
        page.keyboard.press("ArrowLeft")
    assert page.locator(".slider output").first.inner_text() == "0.50"
    page.get_by_role("button", name="Score again").click()
    page.locator("#rescored table").wait_for()
    monkeypatch.chdir(project)
    name = slider.get_attribute("name")
    asked = (None, (), {name: 0.5}, record.id, str(project / "runs"), "train", None)
    with ThreadPoolExecutor(1) as pool:  # Playwright has an event loop in this thread
        found = pool.submit(rescore, *asked).result()
    cells = page.locator("#rescored tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(c => c.innerText))"
    )
    wanted = {(one.task, *(f"{value:.3f}".replace("-", "−") for value in _figures(one))) for one in found.trajectories}
    assert {tuple(row) for row in cells} == wanted and any(one.change for one in found.trajectories)
    assert page.locator("#rescored p").inner_text().startswith("2 of 4 rewards change")


def _figures(one):
    return one.before.reward, one.after.reward, one.before.advantage, one.after.advantage


def test_a_long_list_comes_by_scrolling_each_run_once_and_its_filter_survives_a_reload(visit, project, tmp_path):
    with open_store(tmp_path / "runs/rlf.db") as store:
        for number in range(120):
            start_run(store, replace(run_record(f"run-{number:03d}"), seed=number, started=1e9 + number))
    with serving(project, tmp_path / "runs") as port:
        page = visit(f"http://127.0.0.1:{port}/runs")
        page.wait_for_function(
            "() => { document.querySelector('tr.more')?.scrollIntoView();"
            " return document.querySelectorAll('.runs tbody tr[id]').length === 120 }"
        )
        ids = page.locator(".runs tbody tr").evaluate_all("rows => rows.map(row => row.id)")
        assert ids == [f"run-{number:03d}" for number in range(119, -1, -1)]
        with page.expect_response(re.compile("rows=120")):
            page.evaluate("() => { dispatchEvent(new Event('rlf:changed')) }")
        assert page.locator(".runs tbody tr").count() == 120
        page.locator("[data-filter]").fill("seed > 116")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("seed"))
        page.reload()
        assert page.locator(".runs tbody tr").count() == 3
        assert page.locator("[data-filter]").input_value() == "seed > 116"


def test_an_answer_that_was_under_way_while_more_was_read_shortens_no_list(visit, project, tmp_path):
    with open_store(tmp_path / "runs/rlf.db") as store:
        for number in range(120):
            start_run(store, replace(run_record(f"run-{number:03d}"), seed=number, started=1e9 + number))
    rows, held = ".runs tbody tr[id]", []
    with serving(project, tmp_path / "runs") as port:
        page = visit(f"http://127.0.0.1:{port}/runs")
        first = re.compile(f"rows={page.locator(rows).count()}$")
        page.route(first, lambda route: held.append(route))
        with page.expect_request(first):
            page.reload()
        page.wait_for_function(
            "() => { document.querySelector('tr.more')?.scrollIntoView();"
            f" return document.querySelectorAll('{rows}').length === 120 }}"
        )
        with page.expect_response(re.compile("rows=120")):
            for route in held:
                route.continue_()
        assert page.locator(rows).count() == 120
        page.close()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_page_of_another_origin_reads_and_starts_nothing(visit, server, project, tmp_path, method):
    with serving(project, tmp_path / "runs") as port:
        page = visit(f"http://127.0.0.1:{port}/jobs", bypass_csp=True)
        page.route("**/api/v1/**", lambda route: route.continue_())
        options = json.dumps({"method": method, "mode": "no-cors", **({"body": "{}"} if method == "POST" else {})})
        answer = page.evaluate(
            f"() => fetch('{server.address}/api/v1/jobs', {options}).then(it => it.type + it.status, () => 'refused')"
        )
        page.close()
    assert answer in ("refused", "opaque0")
    assert not list(Path(project / "runs").glob(".jobs/*/job.json"))
