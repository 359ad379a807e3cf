"""A conversation with a run's model: the server that a job started is asked, and no other."""

from __future__ import annotations

import json
import os
import shutil
import threading
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from rlf.lineage.process import process_of

from ...reports.synthetic import run_record

RUN = run_record().id
ASKED = {"messages": [{"role": "user", "content": "<b>who?</b>"}]}


@pytest.fixture
def model():
    """A server as `rlf serve` is one; `asked` has the bodies that came."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.asked.append((self.path, body))
            answer = {"choices": [{"message": {"content": "Sadmas"}}], "usage": {"completion_tokens": 3}}
            self.send_response(200 if body["messages"][-1]["content"] != "fail" else 503)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def folder(runs_folder, tmp_path):
    return shutil.copytree(runs_folder, tmp_path / "runs")


def _job(folder, url=None):
    job = folder / ".jobs/20260102-030405-abcd"
    job.mkdir(parents=True, exist_ok=True)
    about = {"action": "chat", "command": f"rlf serve {RUN} --agent --port 0", "started": 0.0}
    (job / "job.json").write_text(json.dumps(about | {"process": asdict(process_of(os.getpid()))}))
    (job / "stdout").write_text(json.dumps({"data": {"url": url, "model": RUN}}) + "\n" if url else "")


def test_a_message_is_passed_on_to_the_runs_model_with_all_before_it(clients, folder, model):
    client = clients(runs_folder=folder)
    place = f"/api/v1/runs/{RUN}/messages"
    assert "no server answers" in client.post(place, json=ASKED).text
    _job(folder)
    assert "the model is loading" in client.get(f"/runs/{RUN}/chat").text
    assert "yet" in client.post(place, json=ASKED).text
    _job(folder, f"http://127.0.0.1:{model.server_port}/v1")
    assert 'data-state="ready"' in client.get(f"/runs/{RUN}/chat").text
    assert client.post(f"/api/v1/runs/{RUN}/chat", json={}).json()["id"] == "20260102-030405-abcd"  # the same one
    assert client.post(place, json=ASKED).json() == {"content": "Sadmas", "num_tokens": 3}
    assert model.asked == [("/v1/chat/completions", {"model": RUN} | ASKED)]
    failed = client.post(place, json={"messages": [{"role": "user", "content": "fail"}]})
    assert failed.status_code == 500 and "answered 503" in failed.json()["error"]["message"]


def test_no_other_machine_is_asked_and_nothing_that_is_no_message_is_sent(clients, folder, model):
    client = clients(runs_folder=folder)
    _job(folder, "http://192.0.2.1:80/v1")
    assert "is not on this machine" in client.post(f"/api/v1/runs/{RUN}/messages", json=ASKED).text
    _job(folder, f"http://127.0.0.1:{model.server_port}/v1")
    for messages in ([], [{"role": "tool", "content": "x"}], [{"role": "user", "content": "x", "more": 1}]):
        assert client.post(f"/api/v1/runs/{RUN}/messages", json={"messages": messages}).status_code == 422
    reader = clients(runs_folder=folder, read_only=True)
    assert reader.post(f"/api/v1/runs/{RUN}/messages", json=ASKED).status_code == 404
    assert "data-chat" not in reader.get(f"/runs/{RUN}/chat").text
    assert model.asked == []
