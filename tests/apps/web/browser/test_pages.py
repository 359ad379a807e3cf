"""Every page in a browser: nothing from other hosts, no error, readable by all, on a phone too."""

from __future__ import annotations

import pytest

from .conftest import AXE, watched

RUN = "/runs/20260102-030400-abc0"
PAGES = {
    "runs": "/runs",
    "run": RUN,
    "paid": f"{RUN}/paid",
    "system": f"{RUN}/system",
    "log": f"{RUN}/log",
    "chat": f"{RUN}/chat",
    "plan": f"{RUN}/plan",
    "files": f"{RUN}/files",
    "trajectories": f"{RUN}/t",
    "turns": f"{RUN}/t/sampled/4/0",
    "tokens": f"{RUN}/t/sampled/4/0?view=tokens",
    "time": f"{RUN}/t/sampled/4/0?view=time",
    "question": f"{RUN}/questions/heldout-0000",
    "choose": "/compare",
    "compare": "/compare?a=20260102-030400-abc0&a=20260102-030401-abc1",
    "labels": "/labels",
    "curves": "/curves?a=20260102-030400-abc0&a=20260102-030401-abc1",
    "specs": "/specs",
    "spec": "/specs/specs/search.yaml",
    "tools": "/tools/search.yaml",
    "rewards": "/rewards?run=20260102-030400-abc0",
    "data": "/data/train/specs/search.yaml",
    "keys": "/keys?spec=synthetic",
    "worlds": "/worlds/specs/shop.yaml",
    "jobs": "/jobs",
    "projects": "/projects",
}

AT_REST = "() => !document.querySelector('#checked') || document.querySelector('#plan dl')"
"""A spec has been checked and planned: axe cannot examine elements that are replaced meanwhile."""


UNREADABLE = """() => {
  const meet = (a, b, near, far) => Math.min(a[far], b[far]) - Math.max(a[near], b[near]);
  const over = (a, b) => meet(a, b, "left", "right") > 1 && meet(a, b, "top", "bottom") > 3;
  const texts = [...document.querySelectorAll("svg")].map(drawing => [...drawing.querySelectorAll("text")]);
  const laid = texts.flatMap(all => all.filter((one, at) => all.slice(0, at).some(
    other => over(one.getBoundingClientRect(), other.getBoundingClientRect()))));
  const pen = document.createElement("canvas").getContext("2d");
  const fields = [...document.querySelectorAll("main input[placeholder]")].filter(one => one.clientWidth);
  const cut = fields.filter(one => {
    const style = getComputedStyle(one), sides = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
    pen.font = style.font;
    return pen.measureText(one.placeholder).width > one.clientWidth - sides + 1;
  });
  return [...laid.map(one => one.textContent), ...cut.map(one => one.placeholder)];
}"""
"""Words of drawings that lie on each other, and words in empty fields that are cut."""


@pytest.fixture(scope="module")
def shown(chromium):
    """A tab that goes from page to page, and what went wrong in it."""
    with watched(chromium) as (open_page, faults):
        yield open_page("about:blank"), faults


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_no_other_host_and_axe_finds_nothing_serious_in_it(shown, server, name):
    page, faults = shown
    faults.clear()
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(server.address + PAGES[name])
    page.wait_for_load_state()
    page.wait_for_function(AT_REST)
    assert page.locator("main").count() == 1
    assert page.evaluate(UNREADABLE) == []
    if AXE.exists():
        page.evaluate(AXE.read_text())
        assert _violations(page, "{resultTypes: ['violations']}") == []
        page.emulate_media(color_scheme="dark")
        assert _violations(page, "{runOnly: ['color-contrast']}") == []
    for width, height in ((640, 400), (390, 844)):  # 1280 by 800 at 200 %, and a phone
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")  # curves are drawn again
    assert faults == []


def _violations(page, options: str) -> list[str]:
    """What axe calls serious or critical, each with the first element that has it."""
    found = page.evaluate(f"() => axe.run({options}).then(found => found.violations)")
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]} {one['nodes'][0]['failureSummary'][:300]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
