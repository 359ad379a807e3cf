"""A whole run whose tool is given secrets and lets them out: they are nowhere that somebody reads."""

import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from typer.testing import CliRunner

from rlf.cli import app
from rlf.core import RlfError
from rlf.lineage.reader import Reader
from rlf.lineage.records import TrajectoryFilter
from rlf.runs.place import open_lineage
from rlf.runs.resume import resume
from rlf.runs.start import run
from rlf.types import RunStatus, StepFinished, StopReason

from .conftest import ROOT

HEADER, URL = "canary-in-the-header", "canary/in the?url"
SPEC = """
extends: {spec}
tools: [search.yaml]
train: {{steps: 1, prompts_per_step: 8}}
eval: {{every: 9, limit: 2}}
rollout: {{num_generations: 8}}
"""
TOOL = """
name: search
description: Find passages about a person, a town, a river or a company.
inputSchema: {{type: object, properties: {{query: {{type: string}}}}, required: [query]}}
target:
  kind: http
  url: http://127.0.0.1:{port}/?key=${{oc.env:IN_THE_URL}}
  method: POST
  headers: {{X-Key: "${{oc.env:HEADER_API_KEY}}"}}
  response: passage
limits: {{retries: 1, breaker: null}}
idempotent: true
"""


class Indiscreet(BaseHTTPRequestHandler):
    """Says all that it was told: as a result, as an error, as what is no JSON, as a redirect."""

    asked: ClassVar[list[str]] = []

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        said = f"{self.headers['X-Key']} {self.path} {URL} no passage"
        self.asked.append(self.headers["X-Key"])
        way = len(self.asked) % 4
        body = said if way == 2 else json.dumps({"passage": said})
        self.send_response({1: 500, 3: 307}.get(way, 200))
        if way == 3:
            self.send_header("Location", f"http://{HEADER}.invalid/?{URL.replace(' ', '+')}")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        """Says nothing on stderr."""


@pytest.fixture
def port():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Indiscreet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_secrets_of_a_tool_are_in_no_file_log_event_or_page(port, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADER_API_KEY", HEADER)
    monkeypatch.setenv("IN_THE_URL", URL)
    (tmp_path / "spec.yaml").write_text(SPEC.format(spec=ROOT / "specs" / "search.yaml"))
    (tmp_path / "search.yaml").write_text(TOOL.format(port=port))
    events, runs = [], tmp_path / "runs"

    def train(*overrides):
        return run(
            [tmp_path / "spec.yaml"],
            overrides,
            runs_folder=runs,
            view=lambda info: lambda event: events.append(repr((info, event))),
            command=["rlf", "run"],
            record=True,
        ).run_id

    with caplog.at_level(logging.DEBUG):
        told, other = train(), train("train.prompts_per_step=1")
    assert len(Indiscreet.asked) > 8 and set(Indiscreet.asked) == {HEADER}
    seen = {str(file): file.read_bytes() for file in runs.rglob("*") if file.is_file()}
    assert any(b"[redacted]" in content for content in seen.values())
    seen |= {"log": caplog.text.encode(), "events": "".join(events).encode()}
    place = ["--runs", str(runs)]
    for command in (
        ["runs", "show", told, *place],
        ["runs", "compare", told, other, *place, "--html", str(tmp_path / "page.html")],
        ["trace", told, "--json", *place],
        ["trace", told, _one_with_a_call(runs, told), "--phase", "train", *place],
        ["plan", str(tmp_path / "spec.yaml")],
        ["tools", "show", "search", str(tmp_path / "spec.yaml")],
    ):
        shown = CliRunner().invoke(app, command)
        assert shown.exit_code in (0, 3), (command, shown.output)
        seen[" ".join(command[:3])] = shown.output.encode()
    assert any(where.startswith(f"trace {told}") and b"[redacted]" in content for where, content in seen.items())
    seen["page"] = (tmp_path / "page.html").read_bytes()
    forms = {HEADER, URL, json.dumps(URL)[1:-1], "canary%2Fin%20the%3Furl", "in+the?url", "in%20the?url"}
    hits = [(where, form) for where, content in seen.items() for form in forms if form.encode() in content]
    assert not hits


def test_a_secret_that_a_file_writes_out_is_not_stored_and_its_run_not_resumed(port, tmp_path, monkeypatch):
    monkeypatch.setenv("IN_THE_URL", URL)
    (tmp_path / "spec.yaml").write_text(SPEC.format(spec=ROOT / "specs" / "search.yaml"))
    (tmp_path / "search.yaml").write_text(TOOL.format(port=port).replace("${oc.env:HEADER_API_KEY}", HEADER))

    def stop(event):
        if isinstance(event, StepFinished):
            raise KeyboardInterrupt

    runs, sizes = tmp_path / "runs", ["train.steps=2", "train.prompts_per_step=1"]
    stopped = run([tmp_path / "spec.yaml"], sizes, runs_folder=runs, view=lambda _: stop, command=["rlf", "run"])
    assert stopped.status is RunStatus.INTERRUPTED
    assert not [file for file in runs.rglob("*") if file.is_file() and HEADER.encode() in file.read_bytes()]
    with pytest.raises(RlfError, match="file of the run holds a secret, and secrets are not stored"):
        resume(stopped.run_id, runs_folder=runs, view=lambda _: stop, command=["rlf", "resume"])


def _one_with_a_call(runs, run_id):
    """The place in its step of a trajectory that was told a secret."""
    with open_lineage(runs) as store:
        found = Reader(store).trajectories(run_id, TrajectoryFilter(step=1, phase="train"))
    return str(next(summary.k for summary in found if summary.num_calls and summary.stop is StopReason.ANSWERED))
