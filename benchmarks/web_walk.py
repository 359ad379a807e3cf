"""From an empty folder to a shared bundle, as a person does it: `python -m benchmarks.web_walk [--keys]`.

With the mouse alone, or with the keyboard alone; text is typed into fields either way. A project is made, a tool of
its own is tried, its rewards are scored, a fault of its spec is fixed, a run is started, watched, stopped, resumed and
compared, a trajectory's advantage is explained, and its pages are exported. Needs `make .venv/browser/ready`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any
from zipfile import ZipFile

_PORT = 8752
_BROWSER = Path(__file__).parents[1] / ".venv" / "browser"
_PATIENCE_MS = 180_000
_SETTINGS = ("train.prompts_per_step=2", "rollout.num_generations=4", "eval.limit=8", "checkpoint.every=1")


class Mouse:
    """Clicks."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def press(self, target: Any) -> None:
        """Presses a link, a button or a box."""
        target.click()

    def fill(self, target: Any, text: str) -> None:
        """Types into a field that is chosen first."""
        target.click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)

    def choose(self, target: Any, value: str) -> None:
        """Takes an option of a list."""
        target.select_option(value)

    def go(self, name: str, key: str) -> None:
        """Goes to a place of the navigation."""
        self.page.get_by_role("navigation", name="places").get_by_role("link", name=name, exact=True).click()

    def end_of_editor(self, editor: Any) -> None:
        """Puts the cursor at the end of the text."""
        editor.locator(".cm-line").last.click()
        self.page.keyboard.press("End")

    def save(self) -> None:
        """Saves what the editor holds."""
        self.page.locator("#save").click()


class Keys(Mouse):
    """Tab, Enter, arrows and the page's own keys."""

    def reach(self, target: Any) -> None:
        """Tabs until something has the focus."""
        target.wait_for()
        for _ in range(300):
            if target.evaluate("one => one === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise SystemExit(f"Tab does not reach {target}")

    def press(self, target: Any) -> None:
        """Presses a link or button by Enter, a box by the space bar."""
        self.reach(target)
        is_box = target.evaluate("one => one.type === 'checkbox'")
        self.page.keyboard.press("Space" if is_box else "Enter")

    def fill(self, target: Any, text: str) -> None:
        """Types into a field."""
        self.reach(target)
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)

    def choose(self, target: Any, value: str) -> None:
        """Types the beginning of an option."""
        self.reach(target)
        self.page.keyboard.type(value)

    def go(self, name: str, key: str) -> None:
        """Presses `g` and the key of a place."""
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("g")
        self.page.keyboard.press(key)

    def end_of_editor(self, editor: Any) -> None:
        """Puts the cursor at the end of the text."""
        self.reach(editor)
        self.page.keyboard.press("Control+End")

    def save(self) -> None:
        """Saves what the editor holds."""
        self.page.keyboard.press("Control+s")


def walk(hand: Mouse, page: Any, project: Path, address: str) -> None:
    """The whole way; what cannot be reached ends it."""
    page.goto(address)
    hand.press(page.get_by_role("link", name="make a project"))
    here = page.locator("form", has=page.get_by_role("button", name="Make the project here"))
    hand.choose(here.locator("select"), "search")
    hand.press(here.get_by_role("button"))
    page.wait_for_url(re.compile("/specs$"))
    _note("a project from an empty folder", project / "specs")

    tree = page.get_by_role("navigation", name="files")
    hand.press(tree.get_by_role("link", name="search.yaml"))
    hand.press(page.get_by_role("button", name="New file…"))
    hand.fill(page.get_by_label("Name"), "mine")
    hand.press(page.get_by_role("button", name="Make"))
    page.wait_for_url(re.compile("tool_specs/mine.yaml"))
    _edit(hand, page, project / "tool_specs/mine.yaml", {"name: search": "name: mine", "timeout_s: 2": "timeout_s: 30"})
    hand.go("Tools", "t")
    hand.press(page.get_by_role("navigation", name="tools").get_by_role("link", name=re.compile("^mine")))
    hand.fill(page.locator("[data-fields] input"), "Where was Bednox born?")
    hand.press(page.get_by_role("button", name="Call"))
    page.locator("#tool-result .status.ok").wait_for()
    _note("an own tool tried", page.locator("#tool-result pre").inner_text()[:80])

    hand.go("Rewards", "w")
    hand.press(page.get_by_role("button", name=re.compile("^Try all")))
    page.locator("#tried table").wait_for()
    _note("rewards tried", f"{page.locator('#tried .status').count()} trials")

    spec = f"{project.name}.yaml"
    hand.go("Specs", "s")
    hand.press(page.get_by_role("navigation", name="files").get_by_role("link", name=spec))
    page.locator("#checked.ok").wait_for()
    hand.end_of_editor(page.locator(".cm-content"))
    page.keyboard.type("\nlineag: {}\n")
    page.locator("#checked", has_text="1 fault").wait_for()
    hand.press(page.locator("[data-fix]"))
    page.locator("#checked.ok").wait_for()
    hand.save() if isinstance(hand, Keys) else page.locator("#save").click()
    page.locator("#saved", has_text=re.compile("^saved$")).wait_for()
    _note("a fault shown, fixed and saved", "lineage: {}" in (project / "specs" / spec).read_text())

    first = _start(hand, page, ["train.steps=40", *_SETTINGS])
    page.wait_for_function("() => Number(document.getElementById('live').dataset.step) >= 1")
    hand.press(page.get_by_role("button", name="Stop"))
    page.locator("#live[data-status=interrupted]").wait_for(state="attached")
    stopped = int(page.locator("#live").get_attribute("data-step"))
    _note("a run started, watched and stopped", f"{first} at step {stopped}")
    hand.press(page.get_by_role("button", name="Resume"))
    page.locator("#live[data-status=running]").wait_for(state="attached")
    page.locator("#live[data-status=finished]").wait_for(state="attached")
    _note("resumed to its end", page.locator("#live").get_attribute("data-step"))

    hand.go("Specs", "s")
    hand.press(page.get_by_role("navigation", name="files").get_by_role("link", name=spec))
    page.locator("#checked.ok").wait_for()
    second = _start(hand, page, ["train.steps=2", "seed=1", *_SETTINGS])
    page.locator("#live[data-status=finished]").wait_for(state="attached")
    hand.go("Runs", "r")
    for run in (second, first):
        hand.press(page.locator(f"[data-choose][value='{run}']"))
    hand.press(page.get_by_role("button", name="Compare"))
    page.locator(".verdict").first.wait_for()
    _note("compared", page.locator(".verdict").first.inner_text()[:100])

    page.goto(f"{address}/runs/{second}")
    hand.press(page.get_by_role("navigation", name="views of the run").get_by_role("link", name="Trajectories"))
    hand.choose(page.get_by_label("phase"), "train")
    hand.press(page.get_by_role("button", name="Find"))
    hand.press(page.locator(".trajectories tbody a").first)
    hand.press(page.get_by_role("link", name=re.compile("^why")))
    page.locator("#why .status").wait_for()
    _note("its advantage explained", page.locator("#why .status").inner_text())

    hand.press(page.locator("h1 a"))
    with page.expect_download() as begun:
        hand.press(page.get_by_role("button", name="Export"))
    with ZipFile(begun.value.path()) as archive:
        _note("pages exported", f"{len(archive.namelist())} files, {'index.html' in archive.namelist()}")


def _edit(hand: Mouse, page: Any, file: Path, changes: dict[str, str]) -> None:
    """Replaces the whole text of the editor by one with changes, and saves."""
    text = file.read_text()
    for old, new in changes.items():
        text = text.replace(old, new)
    editor = page.locator(".cm-content")
    hand.end_of_editor(editor)
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)
    page.locator("#checked.ok").wait_for()
    hand.save()
    page.locator("#saved", has_text=re.compile("^saved$")).wait_for()


def _start(hand: Mouse, page: Any, overrides: list[str]) -> str:
    """Starts the open spec, and returns the run's id."""
    hand.press(page.get_by_role("button", name="Run…"))
    hand.fill(page.get_by_label("Overrides, one a line"), "\n".join(overrides))
    hand.press(page.get_by_role("button", name="Start"))
    page.wait_for_url(re.compile("/runs/"))
    return str(page.url).rpartition("/")[2]


def _note(what: str, found: object) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}: {found}", flush=True)


def main() -> None:
    """Serves an empty folder and walks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", action="store_true", help="the keyboard alone")
    asked = parser.parse_args()
    sys.path += map(str, _BROWSER.glob("lib/python3.*/site-packages"))
    from playwright.sync_api import sync_playwright  # type: ignore[import-not-found]  # of .venv/browser

    address = f"http://127.0.0.1:{_PORT}"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        project = Path(folder) / "walk"
        project.mkdir()
        command = [sys.executable, "-m", "rlf", "web", str(project), "--port", str(_PORT), "--token", ""]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        program = shutil.which("chromium") or shutil.which("chromium-headless-shell")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            _wait_for(address)
            page = browser.new_page()
            page.set_default_timeout(_PATIENCE_MS)
            try:
                walk(Keys(page) if asked.keys else Mouse(page), page, project, address)
            except BaseException:
                page.screenshot(path="/tmp/web_walk.png")
                raise
        finally:
            browser.close()
            server.terminate()
            server.wait()


def _wait_for(address: str) -> None:
    for _ in range(3000):
        try:
            urllib.request.urlopen(f"{address}/static/icon.svg").close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the server does not answer")


if __name__ == "__main__":
    main()
