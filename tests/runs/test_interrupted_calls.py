"""A run that is stopped while tools are under way: what was cancelled is told, and the resume makes it anew."""

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from safetensors.torch import load_file

from rlf.apps.keep.damage import find_damage
from rlf.builtin.encyclopedia import search
from rlf.cli.live import event_line
from rlf.lineage.calls import tool_call_summary
from rlf.lineage.reader import Reader
from rlf.lineage.records import TrajectoryFilter
from rlf.runs.place import open_lineage
from rlf.runs.resume import resume
from rlf.runs.start import run
from rlf.types import Interrupted, Outcome, RunStatus, StepFinished, StopReason

from .conftest import ROOT
from .test_runs import NUMBERS, Watch

SIZES = ["train.prompts_per_step=8", "rollout.num_generations=4", "train.steps=2", "eval.limit=16", "engine.threads=1"]
TOOLS = """
import asyncio, time
from pathlib import Path
from rlf.builtin import encyclopedia

HERE = Path(__file__).parent

def held():
    if not (HERE / "hold").exists():
        return False
    with (HERE / "log.txt").open("a") as log:
        log.write("held\\n")
    return True

def search(query: str) -> str:
    if held():
        time.sleep(4)
    return encyclopedia.search(query)

async def search_async(query: str) -> str:
    if held():
        try:
            await asyncio.sleep(60)
        finally:
            with (HERE / "log.txt").open("a") as log:
                log.write("ended\\n")
    return encyclopedia.search(query)
"""
SERVER = """
import json, sys
from tools import HERE, held, search

def send(number, result):
    print(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}), flush=True)

about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
for line in sys.stdin:
    message = json.loads(line)
    match message["method"]:
        case "initialize":
            send(message["id"], about)
        case "tools/list":
            send(message["id"], {"tools": [{"name": "search", "inputSchema": schema}]})
        case "tools/call" if not held():
            said = search(message["params"]["arguments"]["query"])
            send(message["id"], {"content": [{"type": "text", "text": said}]})
        case "notifications/cancelled":
            with (HERE / "log.txt").open("a") as log:
                log.write("cancelled\\n")
"""


class Place:
    """A folder with a tool named `search` that never answers while a file `hold` is there, and says so in a log."""

    def __init__(self, folder):
        self.folder = folder
        for name, code in (("tools.py", TOOLS), ("server.py", SERVER)):
            (folder / name).write_text(code)

    def hold(self):
        (self.folder / "hold").touch()

    def release(self):
        for name in ("hold", "log.txt"):
            (self.folder / name).unlink()

    def log(self):
        file = self.folder / "log.txt"
        return Counter(file.read_text().split() if file.exists() else ())

    def spec(self, target):
        known = yaml.safe_load((ROOT / "tool_specs/search.yaml").read_text())
        tool = {name: known[name] for name in ("name", "description", "inputSchema")}
        tool |= {"target": target, "limits": {"timeout_s": 30, "max_concurrency": 2}}
        tools = [tool, str(ROOT / "tool_specs/calculator.yaml")]
        file = self.folder / "spec.yaml"
        file.write_text(json.dumps({"extends": str(ROOT / "specs/search.yaml"), "tools": tools}))
        return [file]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.fixture
def service(place):
    """The address of an HTTP server of the tool."""
    left = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if (place.folder / "hold").exists():
                with (place.folder / "log.txt").open("a") as log:
                    log.write("held\n")
                left.wait(60)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            said = search(parse_qs(urlsplit(self.path).query)["q"][0]).encode()
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_):
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, args=(0.05,))
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}/search"
    left.set()
    server.shutdown()
    serving.join()
    server.server_close()


def stop_when_held(place):
    """Sends Ctrl-C once two calls are under way."""

    def watch():
        deadline = time.monotonic() + 60
        while place.log()["held"] < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    place.hold()
    threading.Thread(target=watch, daemon=True).start()


def start(place, target, watch, **keys):
    return run(place.spec(target), SIZES, runs_folder=place.folder / "runs", view=watch, command=["rlf"], **keys)


def go_on(place, run_id, watch):
    return resume(run_id, runs_folder=place.folder / "runs", view=watch, command=["rlf"])


def holds_in_step_2(place):
    """A view that lets Ctrl-C come while calls of step 2 are under way; step 1 has none."""

    def at(event):
        if isinstance(event, StepFinished) and event.step == 1:
            stop_when_held(place)

    return Watch(at)


def target_of(kind, place, service):
    return {
        "thread": {"kind": "python", "callable": "tools.py:search", "isolation": "thread"},
        "process": {"kind": "python", "callable": "tools.py:search", "isolation": "process", "processes": 2},
        "async": {"kind": "python", "callable": "tools.py:search_async"},
        "http": {"kind": "http", "url": service, "query": {"q": "{{ query }}"}},
        "mcp": {
            "kind": "mcp",
            "server": {"command": sys.executable, "args": [str(place.folder / "server.py")]},
            "tool": "search",
        },
    }[kind]


def cut_off(place, run_id):
    with open_lineage(place.folder / "runs") as store:
        reader = Reader(store)
        assert list(find_damage(store)) == []
        heads = reader.trajectories(run_id, TrajectoryFilter(phase="interrupted"))
        return [(head.step, head.k, reader.whole(run_id, head).scored) for head in heads]


def numbers(place, run_id):
    """What a run came to, but for the clock."""
    with open_lineage(place.folder / "runs") as store:
        reader = Reader(store)
        steps = [(s.step, {name: s.metrics.get(name) for name in NUMBERS}) for s in reader.steps(run_id)]
        evaluations = [(e.step, e.mode, e.metrics["success"]) for e in reader.evaluations(run_id)]
        heads = reader.trajectories(run_id, TrajectoryFilter(phase="train"))
        scored = [reader.whole(run_id, head).scored for head in heads]
        tokens = [list(item.trajectory.tokens) for item in scored]
        calls = [(tool.name, tool.num_by_outcome) for tool in tool_call_summary(reader, run_id)]
        weights = load_file(Path(reader.checkpoints(run_id)[-1].path) / "weights.safetensors")
        rewards = [item.reward for item in scored]
        return steps, evaluations, tokens, rewards, calls, {name: value.tolist() for name, value in weights.items()}


@pytest.mark.parametrize("kind", ["thread", "process", "async", "http", "mcp"])
@pytest.mark.usefixtures("own_lists")
def test_calls_under_way_and_queued_at_ctrl_c_are_reported_as_cancelled(kind, place, service):
    watch = holds_in_step_2(place)
    outcome = start(place, target_of(kind, place, service), watch)
    assert (outcome.status, outcome.step) == (RunStatus.INTERRUPTED, 1)
    left = cut_off(place, outcome.run_id)
    assert {step for step, _, _ in left} == {2}
    trajectories = [scored.trajectory for _, _, scored in left]
    results = [record.result for trajectory in trajectories for record in trajectory.calls]
    cancelled = [result for result in results if result.outcome is Outcome.CANCELLED]
    under_way, queued = [r for r in cancelled if r.attempts], [r for r in cancelled if not r.attempts]
    assert len(under_way) == 2 and queued
    for result in under_way:
        assert [attempt.outcome for attempt in result.attempts] == [Outcome.CANCELLED]
        assert 0.05 < result.attempts[0].run_s <= result.run_s < 30
        assert result.isolation
    assert all(result.queue_s > 0 and result.run_s == 0 for result in queued)
    assert all((s.reward, s.success) == (None, None) for _, _, s in left if s.trajectory.stop is StopReason.CANCELLED)
    (told,) = [event for event in watch.events if isinstance(event, Interrupted)]
    assert [item.trajectory.id for item in told.trajectories] == [trajectory.id for trajectory in trajectories]
    assert event_line(told, 2).endswith(f"{len(cancelled)} calls of tools cancelled")
    told_there = {"mcp": "cancelled", "async": "ended"}
    if kind in told_there:
        assert place.log()[told_there[kind]] == 2


def test_a_run_stopped_three_times_keeps_what_was_cut_off_and_comes_to_the_numbers_of_one_that_was_not(
    place, tmp_path_factory
):
    target = {"kind": "python", "callable": "tools.py:search_async"}
    unhurried = Place(tmp_path_factory.mktemp("whole"))
    whole = numbers(unhurried, start(unhurried, target, Watch()).run_id)
    stop_when_held(place)
    run_id = start(place, target, Watch()).run_id
    in_evaluation = cut_off(place, run_id)
    assert {step for step, _, _ in in_evaluation} == {0}
    assert all(scored.trajectory.id.startswith("eval/") for _, _, scored in in_evaluation)
    place.release()
    assert go_on(place, run_id, holds_in_step_2(place)).status is RunStatus.INTERRUPTED
    place.release()
    stop_when_held(place)
    assert go_on(place, run_id, Watch()).status is RunStatus.INTERRUPTED
    place.release()
    left = cut_off(place, run_id)
    assert left[: len(in_evaluation)] == in_evaluation
    in_step = [k for step, k, _ in left if step == 2]
    assert in_step == list(range(len(in_step)))
    ids = Counter(scored.trajectory.id for step, _, scored in left if step == 2)
    assert max(ids.values()) == 2, "a rollout is cut off by each stop"
    assert go_on(place, run_id, Watch()).status is RunStatus.FINISHED
    assert cut_off(place, run_id) == left
    assert numbers(place, run_id) == whole
    again = start(place, target, Watch(), replay=run_id)
    assert numbers(place, again.run_id) == whole
