"""What people do on the pages, by mouse and by keys."""

from __future__ import annotations

import json
import re

import pytest

from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.types import StepFinished

from ....reports.synthetic import events, run_record
from .conftest import SPEC, serving

RUN = "/runs/20260102-030400-abc0"


def test_a_run_is_found_chosen_and_compared_with_the_keyboard_alone(visit):
    page = visit("/runs")
    page.keyboard.press("/")
    page.keyboard.type('seed == 0 and status == "finished"')
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("q=seed"))
    for _ in range(2):
        page.keyboard.press("j")
        page.keyboard.press("x")
    assert page.locator("[data-count]").inner_text() == "2"
    page.keyboard.press("c")
    page.wait_for_url(re.compile("/compare"))
    assert page.locator(".verdict").count() == 1
    page.locator(".plot canvas").nth(2).wait_for()
    address = page.url.replace("/compare", "/api/v1/compare").replace("a=", "arm=")
    found = page.evaluate("address => fetch(address).then(answer => answer.json())", address)
    assert page.locator("p.verdict").all_inner_texts() == found["comparison"]["verdicts"]


def test_a_chosen_run_stays_chosen_when_the_page_is_loaded_again(visit):
    page = visit("/runs")
    page.locator("[data-choose]").first.check()
    page.reload()
    assert page.locator("[data-choose]").first.is_checked()


def test_j_and_k_walk_the_trajectories_and_an_address_names_a_turn(visit):
    page = visit(f"{RUN}/t/sampled/4/1")
    page.keyboard.press("j")
    page.wait_for_url(re.compile(r"/sampled/4/2"))
    page.keyboard.press("k")
    page.wait_for_url(re.compile(r"/sampled/4/1"))
    page.keyboard.press("]")
    page.wait_for_url(re.compile(r"#turn-1$"))


def test_the_view_of_tokens_marks_what_was_sampled_and_arrow_keys_read_it(visit):
    page = visit(f"{RUN}/t/sampled/4/0?view=tokens")
    sampled = page.locator(".legend-tokens").inner_text()
    assert f"({page.locator('.tokens .in-loss').count()} of {page.locator('.tokens span').count()})" in sampled
    page.locator(".tokens[data-woken]").focus()
    page.keyboard.press("ArrowRight")
    assert "token 0" in page.locator("#token-readout").inner_text()


GROWS = """async () => {
  const {wake} = await import("/static/chart.js");
  const data = document.querySelector("script.curves[data-for=system]"), arms = document.querySelector("script.arms");
  for (const steps of [[1], [1, 2, 3]]) {
    const lines = [{name: "", colour: 0, points: steps.map(step => [step, step]), band: []}];
    arms.textContent = JSON.stringify([{steps, time: steps.map(step => 10 * step), tokens: steps}]);
    data.textContent = JSON.stringify([{title: "grows", share: false, lines}]);
    wake();
    await new Promise(done => setTimeout(done, 50));
  }
}"""


def test_a_chart_that_began_with_one_step_shows_each_later_one_at_its_own_moment(visit):
    page = visit(f"{RUN}/system")
    page.evaluate(GROWS)
    page.locator("#system .u-over").hover(
        position={"x": page.locator("#system .u-over").bounding_box()["width"] - 2, "y": 40}
    )
    assert page.locator("#system figcaption .figure").inner_text() == "time 0:30: 3"


def test_the_theme_is_switched_and_kept(visit):
    page = visit("/runs", color_scheme="light")
    ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="switch between light and dark").click()
    page.reload()
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") != ground


def test_a_fault_is_marked_while_one_types_fixed_by_a_button_and_saved(visit, project):
    page = visit("/specs/specs/broken.yaml")
    page.locator("#checked", has_text="1 fault").wait_for()
    assert "learning_rat" in page.locator("#faults").inner_text()
    assert page.locator(".cm-lintRange-error").inner_text() == "learning_rat"
    page.locator("[data-fix]").click()
    page.locator("#checked", has_text="ok").wait_for()
    page.locator("#plan dl").wait_for()
    before = sorted(path for path in project.rglob("*") if "runs" not in path.parts)
    page.locator("#save").click()
    page.locator("#saved", has_text=re.compile("^saved$")).wait_for()
    assert "learning_rate: 3e-4" in (project / "specs" / "broken.yaml").read_text()
    assert sorted(path for path in project.rglob("*") if "runs" not in path.parts) == before
    page.locator(".cm-line", has_text="learning_rate").click()
    page.keyboard.press("Home")
    page.keyboard.press("Control+ArrowRight")
    page.keyboard.press("Backspace")
    page.locator(".cm-lintRange-error").wait_for()
    page.keyboard.type("e")
    page.locator(".cm-lintRange-error").wait_for(state="detached")


def test_keys_of_the_schema_are_offered_where_one_types_at_200_percent_too(visit):
    page = visit("/specs/specs/search.yaml", viewport={"width": 640, "height": 400})
    page.locator("#checked.status").wait_for()
    page.locator(".cm-content").click()
    page.locator(".cm-line", has_text="prompts_per_step").click()
    page.keyboard.press("End")
    page.keyboard.type("\nwarm")
    assert "warmup_steps" in page.locator(".cm-tooltip-autocomplete").inner_text()


def test_what_a_tool_returned_is_text_and_nothing_in_it_runs(visit):
    page = visit("/runs/20260102-030402-abc2/t/train/1/0")
    shown = page.locator(".call .fed").inner_text()
    assert "<script>window.attacked = true</script>" in shown and "\\u202e\\x1b[31m" in shown
    assert page.evaluate("() => window.attacked") is None


def test_five_megabytes_of_a_tool_are_folded_and_cost_a_page_nothing(visit):
    page = visit("/runs/20260102-030402-abc2/t/train/1/1")
    assert len(page.content()) < 1_000_000
    page.locator(".call summary").click()
    assert page.locator(".call .fed").inner_text().startswith("<script>window.attacked = true</script>")
    assert page.evaluate("() => window.attacked") is None


@pytest.mark.parametrize("file", ["specs/search.yaml", "tool_specs/search.yaml"])
def test_the_same_file_saved_elsewhere_is_offered_before_anything_is_lost(visit, project, file):
    before = (project / file).read_text()
    page = visit(f"/specs/{file}")
    page.locator("#checked.status").wait_for()
    (project / file).write_text(before + "# theirs\n")
    page.locator(".cm-content").press("Control+End")
    page.keyboard.type("# mine")
    page.keyboard.press("Control+s")
    page.locator("#conflict[open]").wait_for()
    assert "# theirs" in page.locator("#theirs").inner_text()
    page.locator("#keep-mine").click()
    page.locator("#saved", has_text=re.compile("^saved$")).wait_for()
    assert (project / file).read_text().endswith("# mine")
    (project / file).write_text(before)


def test_what_is_typed_while_a_save_is_on_its_way_is_not_taken_for_saved(visit, project):
    page = visit("/specs/specs/search.yaml")
    page.locator("#checked.status").wait_for()
    page.locator(".cm-content").press("Control+End")
    page.keyboard.type("# one")
    page.route("**/api/v1/specs/**", lambda route: (page.keyboard.type(" two"), route.continue_()))
    page.keyboard.press("Control+s")
    page.locator("#toast", has_text="is saved").wait_for()
    assert page.locator("#saved").inner_text() == "not saved"
    assert (project / "specs/search.yaml").read_text().endswith("# one")
    (project / "specs/search.yaml").write_text(SPEC)


def test_a_tool_is_called_through_its_form(visit):
    page = visit("/tools/search.yaml")
    page.locator("[data-fields] input").fill("Novbyl founded")
    page.get_by_role("button", name="Call").click()
    page.locator("#tool-result .status").wait_for()
    assert page.locator("#tool-result .status").inner_text() == "ok"
    assert "Novbyl was founded by" in page.locator("#tool-result pre").inner_text()


def test_a_button_that_is_pressed_before_its_script_has_come_is_pressed_when_it_has(visit):
    page, waiting = visit("/jobs"), []
    page.route("**/forms.js", lambda route: waiting.append(route))
    page.goto(page.url.replace("/jobs", "/rewards"))
    page.get_by_role("button", name=re.compile("^Try all")).click()
    waiting[0].continue_()
    page.locator("#tried table").wait_for()


def test_every_tab_sees_a_run_that_began_and_its_steps_by_one_stream(visit, project, chromium):
    pages = [visit("/runs")]
    pages += [pages[0].context.new_page() for _ in range(7)]
    for page in pages[1:]:
        page.goto(pages[0].url)
    pages[0].wait_for_timeout(1500)
    with open_store(project / "runs" / "rlf.db") as store:
        record = run_record("20260103-000000-live")
        start_run(store, record)
        with Recorder(store, record.id) as recorder:
            for event in events(num_steps=2, eval_every=2, num_questions=3):
                recorder(event)
    for page in pages:
        page.locator(f"tr[id='{record.id}'] [data-label=step]", has_text="2").wait_for()


def test_a_list_is_live_though_an_answer_failed_and_a_stream_was_refused_and_one_died(visit, project):
    page = visit("/compare").context.new_page()  # whose console is not looked at
    refused, failed = [], []
    page.route("**/api/v1/events", lambda route: _fail_first(route, refused, lambda: route.fulfill(status=503)))
    page.route("**/runs?*", lambda route: _fail_first(route, failed, route.abort))
    page.clock.install()
    with page.expect_event("requestfailed"):
        page.goto(visit("/compare").url.replace("/compare", "/runs"))
    for silent_ms in (5_000, 50_000):
        with page.expect_request("**/api/v1/events") as asked:
            while not asked.is_done():  # the page may not have heard yet what it waits after
                page.clock.fast_forward(silent_ms)
                page.wait_for_timeout(100)
    record = run_record("20260105-000000-live")
    with open_store(project / "runs" / "rlf.db") as store:
        start_run(store, record)
    page.locator(f"tr[id='{record.id}']").wait_for()
    assert len(refused) == len(failed) == 1


def _fail_first(route, failed, fail):
    if failed:
        route.continue_()
    else:
        failed.append(route)
        fail()


def test_a_page_goes_on_by_itself_when_its_server_is_gone_and_comes_back(visit, project, tmp_path):
    record = run_record("20260104-000000-live")
    with open_store(tmp_path / "runs/rlf.db") as store:
        start_run(store, record)
        with Recorder(store, record.id) as recorder:
            made = events(num_steps=4, eval_every=9, num_questions=3)
            steps = [event for event in made if isinstance(event, StepFinished)]
            with serving(project, tmp_path / "runs") as port:
                page = visit(f"http://127.0.0.1:{port}/runs/{record.id}")
                for number, event in enumerate(steps[:3], start=1):
                    recorder(event)
                    recorder.flush()
                    page.locator(f"#live[data-step='{number}']").wait_for()
                page.evaluate("() => { window.kept = true }")
            page.locator("#connection", has_text="reconnecting").wait_for(state="attached")
            recorder(steps[3])
            recorder.flush()
            with serving(project, tmp_path / "runs", port):
                page.locator("#live[data-step='4']").wait_for()
                page.locator(".progress-line", has_text="4").wait_for()
                assert page.locator("#connection").inner_text() == ""
                page.locator("#curves").get_by_text("table").first.click()
                cells = page.locator("#curves table").first.locator("tbody tr td:first-child").all_inner_texts()
                assert cells == sorted(set(cells)), "a step twice"
            assert page.evaluate("() => window.kept")


def test_a_queue_is_labelled_with_two_keys(visit, project):
    page = visit(f"{RUN}/t?phase=train")
    page.get_by_role("link", name="Label these…").click()
    page.wait_for_url(re.compile(r"train/1/0\?.*queue=1"))
    page.get_by_label("comment").fill("**found**")
    page.locator("h1").click()
    page.keyboard.press("+")
    page.wait_for_url(re.compile(r"train/1/1\?.*queue=1"))
    page.keyboard.press("-")
    page.wait_for_url(re.compile(r"train/2/0\?.*queue=1"))
    lines = (project / "runs/labels.jsonl").read_text().splitlines()
    assert [json.loads(line)["label"] for line in lines] == [True, False]
    page.goto(page.url.replace("train/2/0", "train/1/0"))
    assert page.get_by_label("comment").input_value() == "**found**"
    (project / "runs/labels.jsonl").unlink()


def test_chosen_runs_are_seen_over_each_other_zoomed_smoothed_and_by_tokens(visit):
    page = visit("/runs")
    for run in ("20260102-030400-abc0", "20260102-030401-abc1"):
        page.locator(f"[id='choose-{run}']").check()
    page.get_by_role("button", name=re.compile("^Curves")).click()
    chart = page.locator("#big .u-over")
    chart.wait_for()
    page.get_by_label("metric", exact=True).select_option("reward/mean")
    page.wait_for_url(re.compile("m=reward"))
    chart.wait_for()
    shown = page.locator("#big .u-legend .u-series:not(.edge)")
    assert shown.count() == 3  # x and two runs
    box = chart.bounding_box()
    seen = page.locator("#big canvas").screenshot()
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 120, steps=4)
    page.mouse.up()
    page.mouse.move(box["x"], box["y"] - 40)
    zoomed = page.locator("#big canvas").screenshot()
    assert zoomed != seen
    page.get_by_role("button", name="all of it").click()
    page.mouse.move(box["x"], box["y"] - 40)
    page.get_by_label("smoothing").fill("0.8")
    page.locator("select[name=x]").select_option("tokens")
    assert "smooth=0.8" in page.url and "x=tokens" in page.url
    assert shown.first.inner_text().startswith("tokens")
    shown.nth(1).locator("th").click()
    assert "u-off" in shown.nth(1).get_attribute("class")


def test_a_person_plays_a_world_and_takes_an_action_back(visit):
    page = visit("/worlds/specs/shop.yaml")
    form = page.locator("[data-moves] form", has_text="orders")
    form.locator("input").first.fill("Fodman")
    form.get_by_role("button", name="Call").click()
    page.locator("[data-state]", has_text="1 actions").wait_for()
    assert 'orders({"customer":"Fodman"})' in page.locator("[data-scene]").inner_text()
    page.get_by_role("button", name="Take the last action back").click()
    page.locator("[data-state]", has_text="0 actions").wait_for()
