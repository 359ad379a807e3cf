"""A run that was started from the page outlives browser and server: `python -m benchmarks.web_outlive`.

The browser is closed and the server is killed once the run has begun; the run must end as finished, with the very
numbers of the same run started from Python. Needs `make .venv/browser/ready`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import rlf
from rlf.lineage.reader import Reader
from rlf.lineage.store import open_store

_BROWSER = Path(__file__).parents[1] / ".venv" / "browser"
_OVERRIDES = ["train.steps=2", "train.prompts_per_step=2", "rollout.num_generations=2", "eval.limit=4", "eval.every=1"]
_TIMED = ("time/", "throughput/", "memory/", "tools/", "overlap/")
_PATIENCE_S = 300


def main() -> None:
    """Starts, kills, waits and compares."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    sys.path += map(str, _BROWSER.glob("lib/python3.*/site-packages"))
    from playwright.sync_api import sync_playwright  # type: ignore[import-not-found]  # of .venv/browser

    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        for name in ("specs", "tool_specs", "reward_specs"):
            shutil.copytree(Path(__file__).parents[1] / name, project / name)
        command = [sys.executable, "-m", "rlf", "web", str(project), "--port", "0", "--token", "", "--json"]
        runs = project / "runs"
        with subprocess.Popen([*command, "--runs", str(runs)], stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            found = re.search(r'http://[^"]*', server.stdout.readline())
            assert found is not None, "no address"
            with sync_playwright() as playwright:
                program = shutil.which("chromium") or shutil.which("chromium-headless-shell")
                browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
                run_id = _start(browser.new_page(), found[0])
                browser.close()
            server.kill()
        mine = rlf.run(project / "specs/search.yaml", _OVERRIDES, runs_folder=Path(folder) / "other")
        pages, own = _numbers(runs, run_id), _numbers(Path(folder) / "other", mine.id)
        print(f"run {run_id} is finished; {len(pages)} rows of numbers are equal: {pages == own}")
        raise SystemExit(pages != own)


def _start(page: Any, address: str) -> str:
    page.set_default_timeout(1000 * _PATIENCE_S)
    page.goto(f"{address}specs/specs/search.yaml")
    page.get_by_role("button", name="Run…").click()
    page.get_by_label("Overrides, one a line").fill("\n".join(_OVERRIDES))
    page.get_by_role("button", name="Start").click()
    page.wait_for_url(re.compile("/runs/"))
    return str(page.url).rpartition("/")[2]


def _numbers(runs: Path, run_id: str) -> list[dict[str, float]]:
    """What a run measured, without times, once it is finished."""
    with open_store(runs / "rlf.db", create=False) as store:
        reader, deadline = Reader(store), time.monotonic() + _PATIENCE_S
        while reader.get_run(run_id).status == "running" and time.monotonic() < deadline:
            time.sleep(0.2)
        if reader.get_run(run_id).status != "finished":
            raise SystemExit(f"run {run_id} is {reader.get_run(run_id).status}")
        rows = [*reader.steps(run_id), *reader.evaluations(run_id)]
    return [{name: value for name, value in row.metrics.items() if not name.startswith(_TIMED)} for row in rows]


if __name__ == "__main__":
    main()
