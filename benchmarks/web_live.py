"""A live run with eight tabs, its server killed and restarted: `python -m benchmarks.web_live PROJECT SPEC`.

Needs what `make .venv/browser/ready` installs. Prints a line each minute with the step that each tab shows, the memory
of the server, and of the first tab after garbage is collected its memory, nodes and listeners; at the end whether a
step was lost, doubled or stuck in any tab (charts of long runs leave steps out, in a new tab too), or in the stream of
events of a client that reconnects as browsers do.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

_PORT = 8751
_PATIENCE = 3000
"""Tenths of a second until a server answers, on a machine with other work."""
_BROWSER = Path(__file__).parents[1] / ".venv" / "browser"


def serve(project: Path) -> subprocess.Popen[bytes]:
    """A server of a project, once it answers."""
    command = [sys.executable, "-m", "rlf", "web", str(project), "--port", str(_PORT), "--token", ""]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    for _ in range(_PATIENCE):
        try:
            ask("GET", "/api/v1/jobs")
        except OSError:
            time.sleep(0.1)
        else:
            return server
    server.kill()
    raise SystemExit("the server does not answer")


def ask(method: str, path: str, body: object = None) -> Any:
    """JSON of an address."""
    origin = f"http://127.0.0.1:{_PORT}"
    headers = {"Origin": origin, "X-RLF": "1", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(origin + path, data, headers, method=method)) as answer:
        return json.load(answer)


def start_run(spec: str, overrides: list[str]) -> str:
    """The id of a run that the page started."""
    job = ask("POST", "/api/v1/runs", {"files": [spec], "overrides": overrides})
    while not job["run_id"]:
        time.sleep(0.5)
        job = ask("GET", f"/api/v1/jobs/{job['id']}")
        if job["state"] != "running":
            raise SystemExit(f"the run did not start: {job['tail']}")
    return str(job["run_id"])


def resident_mb(pid: int) -> float:
    """Memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


class Stream(threading.Thread):
    """Reads the events of a run, from behind the last one after the server was gone."""

    def __init__(self, run_id: str) -> None:
        super().__init__(daemon=True)
        self._address = f"http://127.0.0.1:{_PORT}/api/v1/events?runs={run_id}"
        self.steps = list[int]()
        self.num_connections = 0

    def run(self) -> None:
        """Until the process ends."""
        last = ""
        while True:
            try:
                headers = {"Last-Event-ID": last} if last else {}
                with urllib.request.urlopen(urllib.request.Request(self._address, headers=headers)) as answer:
                    self.num_connections += 1
                    event = {}
                    for line in answer:
                        name, _, text = line.decode().strip().partition(": ")
                        event[name] = text
                        if not name and event.get("event") == "run":
                            self.steps += [step["step"] for step in json.loads(event["data"])["steps"]]
                        if not name:
                            last, event = event.get("id", last), {}
            except (OSError, http.client.HTTPException):
                time.sleep(1)


def weigh(session: Any) -> str:
    """What a tab holds once garbage is collected."""
    session.send("HeapProfiler.collectGarbage")
    found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    heap = found["JSHeapUsedSize"] / 1e6
    return f"{heap:.2f} MB, {found['Nodes']:.0f} nodes, {found['JSEventListeners']:.0f} listeners"


def steps_of(page: Any) -> list[int]:
    """The steps in the table below the first curve of a tab."""
    page.evaluate("() => document.querySelectorAll('#curves details').forEach(one => { one.open = true })")
    page.wait_for_timeout(300)
    rows = page.locator("#curves table").last.locator("tbody tr td:first-child").all_inner_texts()
    return [int(row) for row in rows]


def main() -> None:
    """Starts the run, opens the tabs, kills the server a third into it, and counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("project", type=Path)
    parser.add_argument("spec")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--tabs", type=int, default=8)
    asked = parser.parse_args()
    sys.path += map(str, _BROWSER.glob("lib/python3.*/site-packages"))
    from playwright.sync_api import sync_playwright  # type: ignore[import-not-found]  # of .venv/browser

    server = serve(asked.project)
    run_id = start_run(asked.spec, asked.overrides)
    with sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("chromium-headless-shell")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        context = browser.new_context()
        context.set_default_timeout(120_000)
        tabs = [context.new_page() for _ in range(asked.tabs)]
        stream = Stream(run_id)
        stream.start()
        session = context.new_cdp_session(tabs[0])
        session.send("Performance.enable")
        for tab in tabs:
            tab.goto(f"http://127.0.0.1:{_PORT}/runs/{run_id}")
            tab.evaluate("() => { window.kept = true }")
        for minute in range(1, asked.minutes + 1):
            if minute == max(2, asked.minutes // 3):
                server.send_signal(signal.SIGKILL)
                server.wait()
                tabs[0].wait_for_timeout(10_000)
                server = serve(asked.project)
            tabs[0].wait_for_timeout(60_000)
            shown = [tab.locator("#live").get_attribute("data-step") for tab in tabs]
            now = tabs[0].locator("#now").inner_text() if tabs[0].locator("#now").count() else ""
            print(f"{minute} min: steps {','.join(map(str, shown))}, server {resident_mb(server.pid):.0f} MB, ", end="")
            print(f"tab {weigh(session)}, now: {now}", flush=True)
        if tabs[0].locator("#live").get_attribute("data-status") == "running":
            ask("POST", f"/api/v1/runs/{run_id}/stop", {"force": False})
        for tab in tabs:
            tab.locator("#live[data-status='interrupted'], #live[data-status='finished']").wait_for(state="attached")
        curves = ask("GET", f"/api/v1/runs/{run_id}/curves?names=success")
        wanted = [
            step for step, value in zip(curves["steps"], curves["values"]["success"], strict=True) if value is not None
        ]
        fresh = context.new_page()
        fresh.goto(tabs[0].url)
        fresh.locator("#curves table").last.wait_for(state="attached")
        shown = steps_of(fresh)
        print(f"a new tab: {len(shown)} of {len(wanted)} steps, {shown[:2]}..{shown[-2:]}")
        for number, tab in enumerate(tabs, start=1):
            found = steps_of(tab)
            state = (
                "as a new one" if found == shown and found[-1] == wanted[-1] else f"differs: {found[:3]}..{found[-3:]}"
            )
            print(f"tab {number}: {len(found)} steps, {state}; kept {tab.evaluate('() => window.kept === true')}")
        state = "as the lineage" if stream.steps == wanted else f"differs: {stream.steps[-5:]}"
        print(f"stream: {len(stream.steps)} steps over {stream.num_connections} connections, {state}")
        browser.close()
    server.send_signal(signal.SIGINT)
    server.wait()


if __name__ == "__main__":
    main()
