"""A search server that dies in the middle of a run of the local engine, and comes back."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from rlf.builtin.encyclopedia import search
from rlf.core import RunError
from rlf.runs.place import open_reader
from rlf.runs.resume import resume
from rlf.runs.start import run
from rlf.types import RunStatus
from rlf.types.events import Interrupted, Notice, StepFinished


class Searches(BaseHTTPRequestHandler):
    """The encyclopedia over HTTP, one request a connection."""

    def do_POST(self):
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["query"]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(search(query).encode())

    def log_message(self, *_words):
        pass


class Outage:
    """A view that ends the server after step 1, and starts it again where that is wanted."""

    def __init__(self, *, ends_at: str):
        self.steps, self.cut_off, self.ends_at = [], [], ends_at
        self.server = self.start(0)
        self.port = self.server.server_port

    def start(self, port):
        server = ThreadingHTTPServer(("127.0.0.1", port), Searches)
        Thread(target=server.serve_forever, daemon=True).start()
        return server

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def __call__(self, _info):
        return self.see

    def see(self, event):
        if isinstance(event, Notice) and self.ends_at and self.ends_at in event.text:
            self.server, self.ends_at = self.start(self.port), ""
        if isinstance(event, Interrupted):
            self.cut_off.append(event)
        if isinstance(event, StepFinished):
            self.steps.append(event)
            if event.step == 1:
                self.stop()


def spec_of(outage, small, folder):
    """The search spec with that server, whose policy always searches."""
    spec = folder / "outage.yaml"
    spec.write_text(
        f"extends: {small[0][0]}\n"
        "tools:\n"
        "  - name: search\n"
        "    description: Find passages.\n"
        "    inputSchema: {type: object, properties: {query: {type: string}}, required: [query]}\n"
        f"    target: {{kind: http, url: 'http://127.0.0.1:{outage.port}/', method: POST}}\n"
        "    limits: {breaker: {pause_s: 0.001}}\n"
    )
    return spec, [*small[1], "train.steps=3", "eval.limit=2", "train.prompts_per_step=4", "checkpoint.every=5"]


def num_scored(event):
    return sum(scored.reward is not None for scored in event.trajectories)


def test_a_tool_that_is_down_for_a_while_costs_no_trajectory(small, tmp_path):
    outage = Outage(ends_at="tool 'search' has been down")
    spec, sizes = spec_of(outage, small, tmp_path)
    done = run([spec], sizes, runs_folder=tmp_path / "runs", view=outage, command=["rlf"])
    outage.stop()
    assert done.status is RunStatus.FINISHED
    broken = {event.step: [s.trajectory for s in event.trajectories if s.reward is None] for event in outage.steps}
    assert broken[1] == [] and len(broken[2] + broken[3]) > 2
    assert all(trajectory.error.startswith("tool 'search': unreachable: ") for trajectory in broken[2] + broken[3])
    assert min(num_scored(event) for event in outage.steps) >= 14, "more than an eighth of 16 is played again"
    assert [event.metrics["unscorable"] for event in outage.steps] == [len(broken[step]) for step in range(1, 4)]
    assert all(value == value for event in outage.steps for value in event.metrics.values()), "a metric is NaN"


def test_a_tool_that_stays_down_ends_the_run_with_its_last_good_step_saved_and_a_resume_finishes_it(small, tmp_path):
    outage, runs = Outage(ends_at=""), tmp_path / "runs"
    spec, sizes = spec_of(outage, small, tmp_path)
    with pytest.raises(RunError, match=r"tool 'search' has not answered for 0\.5 s .*unreachable.*`rlf resume`"):
        run([spec], [*sizes, "engine.outage_s=0.5"], runs_folder=runs, view=outage, command=["rlf"])
    last = outage.steps[-1].step
    assert last < 3 and min(num_scored(event) for event in outage.steps) >= 14, "no step is made of a remnant"
    assert {event.step for event in outage.cut_off} == {last + 1}
    assert sum(num_scored(event) < len(event.trajectories) for event in outage.cut_off) > 0
    with open_reader(runs) as reader:
        stopped = reader.get_run("latest")
        saved = [one.step for one in reader.checkpoints(stopped.record.id)]
        assert (stopped.status, saved) == (RunStatus.FAILED, [last])
    outage.server = outage.start(outage.port)
    again = resume("latest", runs_folder=runs, view=lambda _info: lambda _event: None, command=["rlf"])
    outage.stop()
    assert (again.status, again.step) == (RunStatus.FINISHED, 3)
