"""Times of every GET of `rlf web` over a generated lineage: `python -m benchmarks.web [--runs 1000] [--calls 1000000]`.

One run is recorded, and its rows are copied. Each address is asked once to warm up and then `--repeats` times; what is
printed is time in the process of the server: wall time and CPU time, median and 95th percentile. An address that does
not answer 200 ends the benchmark. With `--browser`, Chromium opens the main pages, each half a second after the one
before, and after the check and the plan of a spec: how long their content takes, and how long until a fault that is
typed is marked and until a step that is recorded is shown.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import uvicorn
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from rlf.apps.web.app import create_app
from rlf.apps.web.jobs import PAGES
from rlf.apps.web.settings import WebSettings
from rlf.lineage.process import process_of
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import RunRecord
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.plan import plan_to_json
from rlf.runs.plans import check_spec
from rlf.types import StepFinished
from tests.reports.synthetic import events, run_record, scored

_ROOT = Path(__file__).parents[1]
_BROWSER = _ROOT / ".venv" / "browser"
_ORIGIN = "http://127.0.0.1:8642"
_LIMIT_MS = 100.0
_PAUSE_MS = 500
_AT_REST = "() => !document.querySelector('#checked') || document.querySelector('#plan dl, #faults li')"
_NUM_STEPS, _PER_STEP = 10, 16
_OF_TRAJECTORY = ("payloads", "tool_calls", "scores", "parse_failures")
_OF_RUN = ("files", "steps", "evaluations", "checkpoints", "events", "collections", "tool_totals")
_SPEC, _NUM_NAMES = "specs/search.yaml", 5
_RUN, _OTHER, _SWEEP = run_record().id, "copy-00005", "20260102-000000-5eeb"
_MEMBERS = range(1, 7)
_JOB = "20260102-030405-0b0b"
_FILLED = {"run": _RUN, "name": _RUN, "phase": "train", "step": "5", "k": "3", "task": "heldout-0003", "job": _JOB}
_FILLED |= {"role": "spec", "which": "train", "path": _SPEC, "spec": _SPEC, "file": "search.yaml"}
_KEY = "spec=run 0&key=train.learning_rate"
_ASKED = {
    "/keys": f"?{_KEY}",
    "/api/v1/keys": f"?{_KEY}",
    "/api/v1/compare/question": f"?task=heldout-0003&arm={_RUN}&arm={_OTHER}",
}
_STREAM, _EXAMINES = "/api/v1/events", "/api/v1/doctor"
"""A stream has no end; the machine is examined anew each time."""
_FURTHER = (
    *(
        f"/api/v1/runs/{_RUN}/t?{query}"
        for query in ("sort=reward", "sort=advantage", "succeeded=false", "tool=search&outcome=failed", "text=Zuller")
    ),
    "/api/v1/runs?q=success > 0.5&sort=success",
    "/runs?q=success > 0.5&sort=success",
    f"/runs?after={_OTHER}&only=rows",
    f"/api/v1/compare?arm={_RUN}&arm={_OTHER}",
    f"/compare?a={_RUN}&a={_OTHER}",
    f"/compare?a={_SWEEP}",
    f"/runs/{_SWEEP}",
    f"/rewards?run={_RUN}",
    f"/runs/{_RUN}/t/train/5/3?view=tokens",
    f"/runs/{_RUN}/t?text=Zuller",
)
_SHOWN = {
    "runs": "/runs",
    "run": f"/runs/{_RUN}",
    "trajectories": f"/runs/{_RUN}/t",
    "trajectory": f"/runs/{_RUN}/t/train/5/3",
    "tokens": f"/runs/{_RUN}/t/train/5/3?view=tokens",
    "compare": f"/compare?a={_RUN}&a={_OTHER}",
    "choose": "/compare",
    "spec": f"/specs/{_SPEC}",
    "tool": "/tools/search.yaml",
    "rewards": f"/rewards?run={_RUN}",
    "data": f"/data/train/{_SPEC}",
    "jobs": "/jobs",
}


def make_project(folder: Path) -> None:
    """Makes a project with the shipped specs, tools and rewards, and a job that has ended."""
    for name in ("specs", "tool_specs", "reward_specs"):
        shutil.copytree(_ROOT / name, folder / name)
    job = folder / "runs" / ".jobs" / _JOB
    job.mkdir(parents=True)
    about = {"action": "run", "command": f"rlf run {_SPEC}", "started": time.time()}
    (job / "job.json").write_text(json.dumps(about | {"process": asdict(process_of(os.getpid()))}))
    (job / "exit_code").write_text("0")
    (job / PAGES).mkdir()
    (job / PAGES / "index.html").write_text("a run")


def make_lineage(path: Path, spec: Path, num_runs: int, num_calls: int) -> None:
    """Records one run and a sweep, and copies the run's rows."""
    plan = json.loads(plan_to_json(check_spec([spec], []).plan))
    with open_store(path) as store:
        _record(store, replace(run_record(), name="run 0", plan=plan))
        members = [{"overrides": [f"seed={seed}"], "plan_hash": f"member {seed}"} for seed in _MEMBERS]
        start_run(store, replace(run_record(_SWEEP), name="sweep", engine="sweep", plan={"members": members}))
    with closing(sqlite3.connect(path)) as connection:
        columns = {
            table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            for table in ("runs", "trajectories", *_OF_TRAJECTORY, *_OF_RUN)
        }
        (num_refs,) = connection.execute("SELECT max(id) FROM trajectories").fetchone()
        (own_calls,) = connection.execute("SELECT count(*) FROM tool_calls").fetchone()
        connection.execute("PRAGMA synchronous=OFF")
        for number in range(1, num_runs):
            _copy(connection, columns, number, number * num_refs)
        # More calls of each turn, until there are as many as were asked for.
        for extra in range(1, max(1, num_calls // max(1, own_calls * num_runs))):
            changed = {"position": f"position + {100 * extra}"}
            _insert(connection, "tool_calls", columns["tool_calls"], changed, "position < 100")
        connection.execute("ANALYZE")
        connection.commit()


def _record(store: Any, record: RunRecord) -> None:
    start_run(store, record)
    with Recorder(store, record.id) as recorder:
        for event in events(num_steps=_NUM_STEPS, eval_every=5, num_questions=32):
            if isinstance(event, StepFinished):
                tries = [scored(number, succeeds=number % 3 > 0) for number in range(_PER_STEP)]
                event = replace(event, trajectories=tries, advantages=[0.1 * k for k in range(_PER_STEP)])
            recorder(event)


def _copy(connection: sqlite3.Connection, columns: dict[str, list[str]], number: int, offset: int) -> None:
    own = {"run_id": f"'copy-{number:05d}'"}
    changed = {"id": own["run_id"], "started": f"started - {number}", "name": f"'run {number % _NUM_NAMES}'"}
    changed["seed"] = str(number)
    rate = 1e-4 * (1 + number % 7)
    changed["plan"] = f"json_set(plan, '$.spec.seed', {number}, '$.spec.train.learning_rate', {rate})"
    if number in _MEMBERS:
        changed |= {"parent_id": f"'{_SWEEP}'", "plan_hash": f"'member {number}'"}
    _insert(connection, "runs", columns["runs"], changed, f"id = '{_RUN}'")
    for table in _OF_RUN:
        names = [name for name in columns[table] if not (table == "events" and name == "id")]
        _insert(connection, table, names, own, f"run_id = '{_RUN}'")
    shifted = {"id": f"id + {offset}"} | own
    _insert(connection, "trajectories", columns["trajectories"], shifted, f"run_id = '{_RUN}'")
    first, last = connection.execute("SELECT min(id), max(id) FROM trajectories WHERE run_id = ?", (_RUN,)).fetchone()
    for table in _OF_TRAJECTORY:
        here = f"trajectory_ref BETWEEN {first} AND {last}"
        _insert(connection, table, columns[table], {"trajectory_ref": f"trajectory_ref + {offset}"}, here)


def _insert(
    connection: sqlite3.Connection, table: str, columns: list[str], changed: dict[str, str], condition: str
) -> None:
    names, values = ", ".join(columns), ", ".join(changed.get(name, name) for name in columns)
    connection.execute(f"INSERT INTO {table} ({names}) SELECT {values} FROM {table} WHERE {condition}")


def addresses(app: object) -> Iterator[str]:
    """Every GET, its parameters filled in, and the lists with what they can be asked."""

    def walk(routes: list[object]) -> Iterator[str]:
        for route in routes:
            if isinstance(route, APIRoute) and "GET" in route.methods:
                yield route.path
            elif hasattr(route, "original_router"):
                yield from walk(route.original_router.routes)

    for path in walk(app.routes):  # type: ignore[attr-defined]
        if path not in (_STREAM, _EXAMINES):
            yield _fill_in(path) + _ASKED.get(path, "")
    yield from _FURTHER


def _fill_in(path: str) -> str:
    known = dict(_FILLED)
    if path.startswith("/api/v1/sweeps"):
        known["run"] = _SWEEP
    if path.startswith("/api/v1/tools"):
        known["name"] = "search"
    return re.sub(r"{(\w+)(:path)?}", lambda match: known[match[1]], path)


def main() -> None:
    """Prints a table, and the worst as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--only", default="", help="addresses that contain this")
    parser.add_argument("--browser", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "project"
        folder.mkdir()
        file = folder / "runs" / "rlf.db"
        make_project(folder)
        made = time.process_time()
        make_lineage(file, folder / _SPEC, asked.runs, asked.calls)
        print(f"made in {time.process_time() - made:.1f} s of CPU: {file.stat().st_size / 1e6:.0f} MB")
        settings = WebSettings(folder, folder / "runs", port=8642)
        if asked.browser:
            print(json.dumps(_open_pages(settings, asked.repeats, asked.only)))
            return
        app = create_app(settings)
        gc.collect()
        gc.freeze()  # as `rlf web` does
        with TestClient(app, base_url=_ORIGIN, raise_server_exceptions=False) as client:
            paths = [path for path in addresses(app) if asked.only in path]
            rows = [(*_measure(client, path, asked.repeats), path) for path in paths]
        over = [path for _, cpu, path in rows if cpu > _LIMIT_MS]
        wall, _, slowest = max(rows)
        cpu, dearest = max((cpu, path) for _, cpu, path in rows)
        print(json.dumps({"p95_ms": wall, "at": slowest, "p95_cpu_ms": cpu, "of": dearest, "over": over}))


def _measure(client: TestClient, path: str, repeats: int) -> tuple[float, float]:
    """The 95th percentiles of an address's times in milliseconds: wall and CPU."""
    for _ in range(2):
        answer = client.get(path)
        if answer.status_code != 200:
            raise SystemExit(f"{path}: {answer.status_code} {answer.text[:500]}")
    walls, cpus = list[float](), list[float]()
    for _ in range(repeats):
        begun = time.perf_counter(), time.process_time()
        client.get(path)
        walls.append(1000 * (time.perf_counter() - begun[0]))
        cpus.append(1000 * (time.process_time() - begun[1]))
    wall, cpu = quantiles(walls, n=20)[-1], quantiles(cpus, n=20)[-1]
    print(
        f"{wall:8.1f} ms p95 {median(walls):8.1f} median, CPU {cpu:8.1f} p95 {median(cpus):8.1f} median "
        f"{len(answer.content):9,} B {path}",
        flush=True,
    )
    return round(wall, 1), round(cpu, 1)


def _open_pages(settings: WebSettings, repeats: int, only: str) -> dict[str, float]:
    """How long the content of the main pages takes in Chromium, in milliseconds: the median of all, and the worst."""
    sys.path += map(str, _BROWSER.glob("lib/python3.*/site-packages"))
    from playwright.sync_api import sync_playwright  # type: ignore[import-not-found]  # of .venv/browser

    every = list[float]()
    with _serving(settings) as address, sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("chromium-headless-shell")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()
        for name, path in ((name, path) for name, path in _SHOWN.items() if only in path):
            times = [_paint_ms(page, address + path) for _ in range(repeats + 1)][1:]
            every += times
            print(f"{median(times):8.1f} ms median {max(times):8.1f} worst {name}", flush=True)
        for name, measure in {"typed fault is marked": _mark_ms, "recorded step is shown": _show_ms}.items():
            if only in name:
                times = list(measure(page, address, settings.runs_folder, repeats))
                print(f"{median(times):8.1f} ms median {max(times):8.1f} worst {name}", flush=True)
        browser.close()
    return {"median_ms": round(median(every), 1), "p95_ms": round(quantiles(every, n=20)[-1], 1)} if every else {}


def _paint_ms(page: Any, address: str) -> float:
    """From the click to the first paint with content, which has the page's figures: they come with the HTML."""
    page.goto(address)
    page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length")
    found = float(page.evaluate("() => performance.getEntriesByName('first-contentful-paint')[0].startTime"))
    page.wait_for_function(_AT_REST)
    page.wait_for_timeout(_PAUSE_MS)
    return found


def _mark_ms(page: Any, address: str, _runs: Path, repeats: int) -> Iterator[float]:
    """Milliseconds from a wrong letter in a key to the mark of its fault."""
    page.goto(f"{address}/specs/{_SPEC}")
    page.wait_for_function(_AT_REST)
    page.locator(".cm-line", has_text="learning_rate").click()
    page.keyboard.press("Home")
    page.keyboard.press("Control+ArrowRight")
    for _ in range(repeats):
        begun = time.perf_counter()
        page.keyboard.press("Backspace")
        page.locator(".cm-lintRange-error").wait_for()
        yield 1000 * (time.perf_counter() - begun)
        page.keyboard.type("e")
        page.locator(".cm-lintRange-error").wait_for(state="detached")


def _show_ms(page: Any, address: str, runs: Path, repeats: int) -> Iterator[float]:
    """Milliseconds from the record of a step to its number on the page of its run."""
    record = run_record("20990101-000000-live")
    with open_store(runs / "rlf.db") as store:
        start_run(store, record)
        with Recorder(store, record.id) as recorder:
            page.goto(f"{address}/runs/{record.id}")
            for event in events(num_steps=repeats, eval_every=repeats + 1, num_questions=3):
                recorder(event)
                if isinstance(event, StepFinished):
                    recorder.flush()
                    begun = time.perf_counter()
                    page.locator(f"#live[data-step='{event.step}']").wait_for()
                    yield 1000 * (time.perf_counter() - begun)


@contextmanager
def _serving(settings: WebSettings) -> Iterator[str]:
    """A server of the page in a thread, and its address."""
    app = create_app(settings)
    server = uvicorn.Server(uvicorn.Config(app, port=settings.port, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.02)
    try:
        yield f"http://127.0.0.1:{settings.port}"
    finally:
        app.state.site.end()
        server.should_exit = server.force_exit = True
        thread.join(10)
        app.state.site.close()


if __name__ == "__main__":
    main()
