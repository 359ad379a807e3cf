"""Times of every GET of `rlf web` over a generated lineage: `python -m benchmarks.web [--runs 1000] [--calls 1000000]`.

One run is recorded, and its rows are copied. Each address is asked once to warm up and then `--repeats` times; what is
printed is wall time in the process of the server, median and 95th percentile, and CPU time for each request.
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles

from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from rlf.lineage import Recorder, open_store, start_run
from rlf.types import StepFinished
from rlf.web.app import create_app
from rlf.web.settings import WebSettings
from tests.reports.synthetic import events, run_record, scored

_ORIGIN = "http://127.0.0.1:8642"
_NUM_STEPS, _PER_STEP = 10, 16
_OF_TRAJECTORY = ("payloads", "tool_calls", "scores", "parse_failures")
_OF_RUN = ("files", "steps", "evaluations", "checkpoints", "events", "collections", "tool_totals")
_SKIPPED = ("/events", "/schema", "/doctor", "/tools", "/rewards", "/worlds", "/data", "/prompt", "/static")
"""A stream, and what is asked in a fork of its own: `rlf.api.fresh`."""


def make_lineage(path: Path, num_runs: int, num_calls: int) -> None:
    """Records one run and copies its rows."""
    with open_store(path) as store:
        start_run(store, run_record())
        with Recorder(store, run_record().id) as recorder:
            for event in events(num_steps=_NUM_STEPS, eval_every=5, num_questions=32):
                if isinstance(event, StepFinished):
                    tries = [scored(number, succeeds=number % 3 > 0) for number in range(_PER_STEP)]
                    event = replace(event, trajectories=tries, advantages=[0.1 * k for k in range(_PER_STEP)])
                recorder(event)
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


def _copy(connection: sqlite3.Connection, columns: dict[str, list[str]], number: int, offset: int) -> None:
    run_id = run_record().id
    own = {"run_id": f"'copy-{number:05d}'"}
    _insert(
        connection,
        "runs",
        columns["runs"],
        {"id": own["run_id"], "started": f"started - {number}", "name": f"'run {number % 20}'"},
        f"id = '{run_id}'",
    )
    for table in _OF_RUN:
        names = [name for name in columns[table] if not (table == "events" and name == "id")]
        _insert(connection, table, names, own, f"run_id = '{run_id}'")
    shifted = {"id": f"id + {offset}"} | own
    _insert(connection, "trajectories", columns["trajectories"], shifted, f"run_id = '{run_id}'")
    first, last = connection.execute("SELECT min(id), max(id) FROM trajectories WHERE run_id = ?", (run_id,)).fetchone()
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
    run = run_record().id
    filled = {"run": run, "name": run, "phase": "train", "step": "5", "k": "3", "task": "heldout-0003", "job": "none"}

    def walk(routes: list[object]) -> Iterator[str]:
        for route in routes:
            if isinstance(route, APIRoute) and "GET" in route.methods:
                yield re.sub(r"{(\w+)(:path)?}", lambda match: filled.get(match[1], "none"), route.path)
            elif hasattr(route, "original_router"):
                yield from walk(route.original_router.routes)

    for path in walk(app.routes):  # type: ignore[attr-defined]
        if not any(part in path for part in _SKIPPED) and not path.startswith(f"/api/v1/runs/{run}/why"):
            yield path
    for query in (
        "sort=reward",
        "sort=advantage",
        "succeeded=false",
        "tool=search&outcome=failed",
        "task=heldout-0003",
    ):
        yield f"/api/v1/runs/{run}/t?{query}"
    yield "/api/v1/runs?q=success > 0.5&sort=success"
    yield "/api/v1/keys?spec=run 1&key=seed"
    yield f"/api/v1/compare?arm={run}&arm=copy-00001"
    yield f"/compare?a={run}&a=copy-00001"


def main() -> None:
    """Prints a table, and the worst as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=20)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs_folder = Path(folder) / "runs"
        made = time.process_time()
        make_lineage(runs_folder / "rlf.db", asked.runs, asked.calls)
        print(
            f"made in {time.process_time() - made:.1f} s of CPU: {(runs_folder / 'rlf.db').stat().st_size / 1e6:.0f} MB"
        )
        app = create_app(WebSettings(Path(folder), runs_folder, port=8642))
        with TestClient(app, base_url=_ORIGIN, raise_server_exceptions=False) as client:
            worst = max(_measure(client, path, asked.repeats) for path in addresses(app))
        print(json.dumps({"p95_ms": worst[0], "address": worst[1]}))


def _measure(client: TestClient, path: str, repeats: int) -> tuple[float, str]:
    status, size = client.get(path).status_code, len(client.get(path).content)
    times, cpu = [], time.process_time()
    for _ in range(repeats):
        begun = time.perf_counter()
        client.get(path)
        times.append(1000 * (time.perf_counter() - begun))
    cpu_ms = 1000 * (time.process_time() - cpu) / repeats
    p95 = quantiles(times, n=20)[-1]
    print(f"{p95:8.1f} ms p95 {median(times):8.1f} median {cpu_ms:8.1f} CPU {size:9,} B {status} {path}", flush=True)
    return (p95, path) if status == 200 else (0.0, path)


if __name__ == "__main__":
    main()
