"""A search server that dies in the middle of a run of the local engine, and comes back."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from rlf.api.running.start import run
from rlf.builtin.encyclopedia import search
from rlf.types import RunStatus
from rlf.types.events import StepFinished


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
    """A view that ends the server after step 1 and starts it again after step 2."""

    def __init__(self):
        self.steps = []
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
        if isinstance(event, StepFinished):
            self.steps.append(event)
            if event.step == 1:
                self.stop()
            if event.step == 2:
                self.server = self.start(self.port)


def test_an_outage_of_a_tool_costs_its_trajectories_alone_and_is_named(small, tmp_path):
    outage, spec = Outage(), tmp_path / "outage.yaml"
    spec.write_text(
        f"extends: {small[0][0]}\n"
        "tools:\n"
        "  - name: search\n"
        "    description: Find passages.\n"
        "    inputSchema: {type: object, properties: {query: {type: string}}, required: [query]}\n"
        f"    target: {{kind: http, url: 'http://127.0.0.1:{outage.port}/', method: POST}}\n"
        "    limits: {breaker: {pause_s: 0.001}}\n"
    )
    sizes = [*small[1], "train.steps=3", "eval.limit=2", "train.prompts_per_step=4"]
    done = run([spec], sizes, runs_folder=tmp_path / "runs", view=outage, command=["rlf"])
    outage.stop()
    assert done.status is RunStatus.FINISHED
    broken = {event.step: [s.trajectory for s in event.trajectories if s.reward is None] for event in outage.steps}
    assert [step for step, trajectories in broken.items() if trajectories] == [2]
    assert all(trajectory.error.startswith("tool 'search': unreachable: ") for trajectory in broken[2])
    assert [event.metrics["unscorable"] for event in outage.steps] == [len(broken[step]) for step in range(1, 4)]
    assert all(value == value for event in outage.steps for value in event.metrics.values()), "a metric is NaN"
