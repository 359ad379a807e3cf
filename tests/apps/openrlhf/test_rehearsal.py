"""The real OpenRLHF job on this CPU: trainer, Ray, DeepSpeed, agent and tools, with a stand-in for vLLM."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from uuid import uuid4

import pytest

from rlf import load_run
from rlf.apps.openrlhf import rehearsal_place
from rlf.apps.openrlhf.rehearsal_place import rehearsal_environment
from rlf.apps.openrlhf.spool import SpoolReader
from rlf.apps.rehearse.rehearsals import rehearse
from rlf.builtin.encyclopedia import search
from rlf.builtin.names import builtin_path
from rlf.chat.encoding import load_tokenizer
from rlf.core import RlfError
from rlf.types import Notice

from ...processes import Process, call_rlf
from ...vision import make_tiny_qwen_vl
from .tools import picture

ROOT = Path(__file__).parents[3]
FAULTS = Path(__file__).with_name("faults.yaml")
needs_environment = pytest.mark.skipif(
    not rehearsal_environment().is_ready(vllm=False),
    reason="THE OPENRLHF JOB IS NOT REHEARSED: its environment is not there (rlf rehearse --setup makes it)",
)


@pytest.fixture
def left_over(monkeypatch):
    """Tells which processes were started since, whosever children they are now: they inherit a variable."""
    with Process(bool):  # what processes are forked from stays, and has begun without the variable
        pass
    mark = uuid4().hex
    monkeypatch.setenv("RLF_TEST_MARK", mark)

    def found():
        pids = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if f"RLF_TEST_MARK={mark}".encode() in (entry / "environ").read_bytes():
                    pids.append(int(entry.name))
            except OSError:
                continue
        return pids

    return found


def call_there(*arguments):
    """A command as from inside the environment of rehearsals, where its job is; test_places.py has some from there."""
    inside = rehearsal_environment()
    rehearsal_place.environment_here = lambda: inside
    call_rlf(*arguments)


class Posts(BaseHTTPRequestHandler):
    """Answers every call, and counts calls and open connections."""

    protocol_version = "HTTP/1.1"
    num_open = num_calls = 0

    def setup(self):
        super().setup()
        Posts.num_open += 1

    def finish(self):
        super().finish()
        Posts.num_open -= 1

    def do_POST(self):
        Posts.num_calls += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"here")

    def log_message(self, *_words):
        pass


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """The HTTP server of `posts`, and the file that the server of `notes` writes to."""
    Posts.num_open = Posts.num_calls = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), Posts) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("RLF_TEST_URL", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setenv("RLF_TEST_PYTHON", sys.executable)
        monkeypatch.setenv("RLF_TEST_NOTES", str(tmp_path / "notes"))
        yield tmp_path / "notes"
        server.shutdown()


@needs_environment
def test_the_real_job_goes_on_whatever_its_tools_do_and_accounts_for_every_sample(outside, left_over):
    told = []
    done = rehearse([FAULTS], [], vllm=False, tell=told.append)
    assert [stage.name for stage in done.stages] == [stage.name for stage in told]
    words = {stage.name: stage.words for stage in done.stages}
    assert [name for name in words if name != "loading"][:5] == ["spec", "model", "parts", "ray", "models"]
    assert {"step 1", "step 2", "evaluation after step 0", "evaluation after step 2", "checkpoint"} < set(words)
    assert words["model saved"].startswith("it loads; training moved its weights by up to")
    assert {change.key for change in done.changes} >= {"engine.packing", "engine.attention", "train.steps"}

    tools = dict(line.split(": ", 1) for line in words["tools"].split("; "))
    assert tools == {
        "waits": "2 ok",
        "raises": "2 tool_error (error: RuntimeError: the index is on fire)",
        "hangs": "2 timeout (error: hangs gave no result within 1 s)",
        "dies": "2 infra (error: the process of the tool ended during the call (exit code 9))",
        "killed": "2 infra (error: the process of the tool ended during the call (SIGKILL))",
        "nowhere": "2 unreachable (error: no connection: Connect call failed ('127.0.0.1', 9))",
        "posts": "2 ok",
        "notes": "2 ok",
    }
    worlds = re.fullmatch(r"32 of training trajectories; heard from 0 to 1; (\d+) failed in score", words["world"])
    steps = [words["step 1"], words["step 2"]]
    assert all(step.startswith("16 trajectories, ") for step in steps)
    assert sum(int(re.search(r"unscorable: (\d+)", step)[1]) for step in steps) == 6 + int(worlds[1]), (
        "dies, killed and nowhere, each twice, and every world that dies"
    )

    assert (Posts.num_calls, Posts.num_open) == (2, 0)
    calls = [line.split()[1] for line in outside.read_text().splitlines() if line.startswith("called")]
    assert (len(calls), len(set(calls))) == (2, 1)
    assert left_over() == []


class Searches(Posts):
    """The encyclopedia's search over HTTP, one call a connection: none outlives the server."""

    protocol_version = "HTTP/1.0"

    def do_POST(self):
        Posts.num_calls += 1
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["query"]
        body = search(query).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def search_server(port=0):
    """A search server on a port."""
    with ThreadingHTTPServer(("127.0.0.1", port), Searches) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


SEARCHES = """
extends: {base}
model: {{path: {model}}}
data:
  train: {{path: {rows}, prompt: question, answer: answer, images: images}}
tools:
  - name: search
    description: Finds.
    inputSchema: {{type: object, properties: {{query: {{type: string}}}}, required: [query]}}
    target: {{kind: http, url: "http://127.0.0.1:{port}/", method: POST}}
rewards:
  - {{kind: python, name: spread, callable: "{tools}:spread", range: [0, 1], weight: 1.0}}
rollout: {{num_generations: 4, max_images: 3}}
train: {{steps: 4, prompts_per_step: 4, micro_batch_tokens: 320, loss: {{correction: {{level: token}}}}}}
eval: {{every: 2, limit: 4}}
engine: {{kind: openrlhf, packing: false}}
"""
"""Micro-batches of one trajectory, of which none may be without a sampled token."""


def write_rows(folder, *, images):
    """Two steps of questions to search for, most on one image or on two: which come first is the job's."""
    rows = list(map(json.loads, builtin_path("encyclopedia/train").read_text().splitlines()[: 2 if images else 8]))
    for name, colour in ("red", (200, 10, 10)), ("blue", (10, 10, 200)):
        (folder / f"{name}.png").write_bytes(picture(colour).data)
    asked = [("<image> is?", ["red.png"]), ("<image> or <image>?", ["blue.png", "red.png"])] * 3 if images else []
    seen = [{"question": question, "answer": "red", "kind": "seen", "images": files} for question, files in asked]
    rows = [{"images": [], **row, "id": str(number)} for number, row in enumerate(rows + seen)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "rows.jsonl"


@needs_environment
def test_the_real_job_waits_for_a_killed_server_trains_what_saw_images_and_leaves_no_process_at_ctrl_c(
    tmp_path, left_over
):
    Posts.num_calls = 0
    spec, inside, runs = tmp_path / "outage.yaml", rehearsal_environment(), tmp_path / "runs"
    sees = inside.takes_images
    with search_server() as port:
        spec.write_text(
            SEARCHES.format(
                base=ROOT / "specs" / "search.yaml",
                model=make_tiny_qwen_vl(tmp_path / "model", calls_tools=True) if sees else "builtin:tiny",
                rows=write_rows(tmp_path, images=sees),
                port=port,
                tools=Path(__file__).with_name("tools.py"),
            )
        )
        job = Process(call_there, "run", str(spec), "--runs", str(runs), "--json", env=os.environ)
        wait_until(lambda: Posts.num_calls > 0, job)
    with job:
        try:
            wait_until(lambda: "tool 'search' has been down" in spooled(runs), job)
            with search_server(port):
                wait_until(lambda: "tool 'search' answers again after" in spooled(runs), job)
                steps = (line for line in job.stdout if json.loads(line)["event"] == "step")
                assert next(steps) and next(steps)
                job.send_signal(signal.SIGINT)
                out, words = job.communicate(timeout=600)
        finally:
            job.kill()
    assert job.returncode == 130, words
    assert json.loads(out.splitlines()[-1])["data"]["status"] == "interrupted"
    assert left_over() == []
    check_learned(load_run(runs_folder=runs), num_images={0, 1, 2} if sees else {0})
    if not sees:
        pytest.skip("THE OPENRLHF JOB WITH IMAGES IS NOT REHEARSED: no torchvision is there (rlf rehearse --setup)")


def check_learned(run, num_images):
    """The trajectories of both steps have their images, and were trained as they were sampled."""
    scored = [item for step in (1, 2) for item in run.scored(step=step)]
    trajectories = [item.trajectory for item in scored if item.reward is not None]
    assert len(trajectories) == 32
    found = {len(trajectory.task.images) for trajectory in trajectories}
    assert found | {0} == num_images
    place = load_tokenizer(run.spec["model"]["path"]).convert_tokens_to_ids("<|image_pad|>")
    assert all(trajectory.tokens.count(place) == 8 * len(trajectory.task.images) for trajectory in trajectories)
    for step in run.steps():
        # Thousandths by rounding to bfloat16; were the images exchanged, it would be 0.12 where they are, on average.
        assert abs(step.metrics["policy/mismatch_kl"]) < 0.04
        assert 0 < step.metrics["policy/grad_norm"] < 1e4


def wait_until(holds, job):
    """Returns when a condition holds; fails when the job ends before."""
    deadline = time.monotonic() + 600
    while not holds():
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < deadline, "it never held"
        time.sleep(0.1)


def spooled(runs):
    """What the job's agents have reported."""
    lines = [line for folder in runs.glob("*/job/spool/*") for line in SpoolReader(folder).read()]
    return "\n".join(line.text for line in lines if isinstance(line, Notice))


def test_a_rehearsal_is_of_openrlhf_jobs_alone():
    with pytest.raises(RlfError, match=r"got local; only the engine .* Add `engine.kind=openrlhf`"):
        rehearse([ROOT / "specs" / "search.yaml"], [], vllm=False, tell=print)


def test_without_its_environment_a_rehearsal_says_how_to_make_it(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(RlfError, match=r"does not exist yet\. Make it once with `rlf rehearse --setup --vllm`"):
        rehearse([ROOT / "specs" / "search_openrlhf.yaml"], [], vllm=True, tell=print)
