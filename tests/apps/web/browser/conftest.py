"""One browser and one server for all checks of pages: Debian's Chromium, driven by Playwright from `.venv/browser`.

They end with this package: Playwright keeps an event loop in the main thread, where no other test could run one then.

`make .venv/browser/ready` has both. Where they cannot be had, every test here is skipped and says so.
"""

from __future__ import annotations

import random
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvicorn

from rlf.apps.web.app import create_app
from rlf.apps.web.settings import WebSettings
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.types import CallRecord, Outcome, StepFinished, ToolCall, ToolResult, Turn

from ....reports.synthetic import events, run_record, scored, step_metrics, trajectory

ENVIRONMENT = Path(__file__).parents[4] / ".venv" / "browser"
AXE = ENVIRONMENT / "node_modules" / "axe-core" / "axe.min.js"
PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")
HOSTILE = '<script>window.attacked = true</script></textarea><img src=x onerror="window.attacked = true">\u202e\x1b[31m'
SPEC = """name: search
model: {path: builtin:tiny}
data:
  train: {path: builtin:encyclopedia/train, prompt: question, answer: answer, kind: kind}
  eval: {path: builtin:encyclopedia/heldout, prompt: question, answer: answer, kind: kind}
tools: [../tool_specs/search.yaml]
rewards:
  - {use: ../reward_specs/exact_match.yaml, weight: 1.0}
train:
  algorithm: reinforce_baseline
  learning_rate: 3e-4
  steps: 2
  prompts_per_step: 2
rollout: {num_generations: 2, max_turns: 2, max_total_tokens: 128}
eval: {every: 2, limit: 4}
engine: {kind: local}
"""


@pytest.fixture(scope="package")
def chromium() -> Iterator[object]:
    """The browser."""
    for packages in ENVIRONMENT.glob("lib/python3.*/site-packages"):
        sys.path.append(str(packages))
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("Playwright is not in .venv/browser: `make .venv/browser/ready` installs it")
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"there is no Chromium: `apt-get install {PROGRAMS[0]}`, or `make .venv/browser/ready` as root")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a spec that has one fault, a tool, a reward and two runs."""
    root, shipped = tmp_path_factory.mktemp("browser") / "project", Path(__file__).parents[4]
    for folder in ("specs", "tool_specs", "reward_specs"):
        (root / folder).mkdir(parents=True)
    (root / "specs" / "search.yaml").write_text(SPEC)
    (root / "specs" / "broken.yaml").write_text(SPEC.replace("learning_rate", "learning_rat"))
    for file in ("specs/shop.yaml", "tool_specs/search.yaml", "reward_specs/exact_match.yaml"):
        shutil.copy(shipped / file, root / file)
    with open_store(root / "runs" / "rlf.db") as store:
        for place, seed in enumerate((0, 1)):
            record = run_record(f"20260102-03040{place}-abc{place}")
            start_run(store, record)
            with Recorder(store, record.id) as recorder:
                for event in events(num_steps=4, eval_every=2, num_questions=12, seed=seed):
                    recorder(event)
        _record_hostile(store)
    return root


def _record_hostile(store) -> None:
    """A run whose tool returned what would run in a careless page, the second time with 5 MB behind it."""
    record = run_record("20260102-030402-abc2")
    start_run(store, record)
    call = CallRecord(ToolCall("search", {"query": HOSTILE}), ToolResult(Outcome.OK, HOSTILE))
    turn = Turn(2, 4, 5, f"{HOSTILE}<|im_end|>", calls=(call,))
    played = replace(trajectory(0, succeeds=True), turns=(turn,))
    item = replace(scored(0, succeeds=True), trajectory=played)
    longest = replace(call, result=ToolResult(Outcome.OK, HOSTILE + "\u4e16" * 5_000_000))
    other = replace(item, trajectory=replace(played, turns=(replace(turn, calls=(longest,)),)))
    with Recorder(store, record.id) as recorder:
        recorder(StepFinished(1, step_metrics(0.5, random.Random(0)), (item, other), (0.5, 0.5)))


@pytest.fixture(scope="package")
def server(project: Path, chromium: object) -> Iterator[SimpleNamespace]:
    """The page on a port of its own; `address` is where."""
    with serving(project, project / "runs") as port:
        yield SimpleNamespace(address=f"http://127.0.0.1:{port}", runs=["20260102-030401-abc1", "20260102-030400-abc0"])


@contextmanager
def serving(project: Path, runs_folder: Path, port: int = 0) -> Iterator[int]:
    """A server of the page; the port that it has."""
    app = create_app(WebSettings(project=project, runs_folder=runs_folder))
    served = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    thread = threading.Thread(target=served.run)
    thread.start()
    while not served.started:
        thread.join(0.02)
    try:
        yield served.servers[0].sockets[0].getsockname()[1]
    finally:
        app.state.site.end()
        served.should_exit = True
        served.force_exit = True
        thread.join(10)
        app.state.site.close()  # a server that is forced to exit does not


@pytest.fixture
def visit(chromium, server: SimpleNamespace) -> Iterator[Callable[..., object]]:
    """Opens pages in a context of their own, without any other host; what goes wrong in them fails the test."""
    with watched(chromium) as (open_page, faults):
        yield lambda path, **settings: open_page(path if "://" in path else server.address + path, **settings)
    assert faults == []


@contextmanager
def watched(chromium) -> Iterator[tuple[Callable[..., object], list[str]]]:
    """What opens an address in a context of its own, and the list of what goes wrong there."""
    faults, contexts = list[str](), []

    def open_page(address: str, **settings: object):
        context = chromium.new_context(**({"viewport": {"width": 1280, "height": 800}} | settings))
        contexts.append(context)
        context.on("request", lambda request: _note_host(request.url, faults))
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: _note(message, faults))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(address)
        return page

    yield open_page, faults
    for context in contexts:
        context.close()


def _note(message, faults: list[str]) -> None:
    """Errors of the console; refused saves, reads of other origins, and requests that a server's or a page's end cut
    off are there where made."""
    refused = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE")
    ended = ("status of 503", "Status Error Code 503")  # a request that was under way when its server ended
    gone = (*refused, *ended, "htmx:afterRequest", "htmx:sendError", "htmx:sendAbort")
    expected = ("status of 412", "ERR_BLOCKED_BY_RESPONSE", *gone)
    if message.type == "error" and not any(words in message.text for words in expected):
        faults.append(message.text)


def _note_host(url: str, faults: list[str]) -> None:
    """Any other host than this one, which the browser finds no address of."""
    if not url.startswith(("http://127.0.0.1:", "data:")):
        faults.append(f"another host was asked: {url}")
