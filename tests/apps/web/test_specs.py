"""Specs as files: listed, read, saved with an ETag, and nothing beside them."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rlf.apps.schema.schemas import schema_of
from rlf.apps.web.files import ProjectFiles, StaleError
from rlf.apps.web.forks import FreshProcesses
from rlf.core.errors import RunError

ROOT = Path(__file__).parents[3]
SPEC = f"extends: {ROOT}/specs/search_no_tool.yaml\nname: small\n"


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    for name in ("specs", "tool_specs", "reward_specs"):
        (folder / name).mkdir(parents=True)
    (folder / "specs/one.yaml").write_text("name: one\n")
    (folder / ".env").write_text("API_KEY=abcdefgh-secret\n")
    (folder / "secret.yaml").write_text("x: 1\n")
    (folder / "specs/.hidden.yaml").write_text("x: 1\n")
    (folder / "specs/code.py").write_text("print(1)\n")
    return folder


@pytest.fixture
def own(clients, project):
    return clients(project=project)


def test_the_list_has_declared_files_alone(own):
    assert [file["path"] for file in own.get("/api/v1/specs").json()] == ["specs/one.yaml"]


def test_what_was_read_can_be_saved_and_a_stale_text_cannot(own, project):
    first = own.get("/api/v1/specs/specs/one.yaml").json()
    before = sorted(project.rglob("*"))
    saved = own.put("/api/v1/specs/specs/one.yaml", json={"text": "name: two\n"}, headers={"If-Match": first["etag"]})
    assert saved.status_code == 200 and (project / "specs/one.yaml").read_text() == "name: two\n"
    stale = own.put("/api/v1/specs/specs/one.yaml", json={"text": "name: three\n"}, headers={"If-Match": first["etag"]})
    assert (stale.status_code, stale.json()["error"]["code"]) == (412, "stale")
    assert own.put("/api/v1/specs/specs/one.yaml", json={"text": "x"}).status_code == 412
    assert (project / "specs/one.yaml").read_text() == "name: two\n"
    assert sorted(project.rglob("*")) == before


def test_a_new_file_is_one_without_an_etag(own, project):
    assert own.put("/api/v1/specs/specs/sub/new.yaml", json={"text": "name: new\n"}).status_code == 200
    assert (project / "specs/sub/new.yaml").read_text() == "name: new\n"


@pytest.mark.parametrize(
    "path",
    [
        "../etc/passwd",
        "%2e%2e/secret.yaml",
        "specs/../secret.yaml",
        "specs/%2e%2e/secret.yaml",
        "specs/..%2fsecret.yaml",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        ".env",
        "specs/.hidden.yaml",
        "specs/code.py",
        "secret.yaml",
        "runs/rlf.db",
        "specs/%00.yaml",
        "specs",
        "specs/none.yaml",
        "specs/loop.yaml",
        "specs/pipe.yaml",
        "specs//one.yaml",
        "%2e/specs/one.yaml",
        f"specs/{'x' * 300}.yaml",
        "specs/link.yaml",
        "specs/folder/secret.yaml",
    ],
)
def test_nothing_else_can_be_read_or_written(own, project, path):
    (project / "specs/link.yaml").symlink_to(project / "secret.yaml")
    (project / "specs/folder").symlink_to(project)
    (project / "specs/loop.yaml").symlink_to("loop.yaml")
    os.mkfifo(project / "specs/pipe.yaml")
    assert own.get(f"/api/v1/specs/{path}").status_code == 404
    assert own.get(f"/specs/{path}").status_code in (404, 405) or path in ("", "specs")
    assert [file["path"] for file in own.get("/api/v1/specs").json()] == ["specs/one.yaml"]
    if not path.endswith(("none.yaml", "pipe.yaml")):
        assert own.put(f"/api/v1/specs/{path}", json={"text": "x: 2\n"}).status_code in (404, 405)
    assert (project / "secret.yaml").read_text() == "x: 1\n"


def test_secrets_of_the_environment_are_in_no_answer(own, project, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "correct-horse-battery")
    (project / "specs/one.yaml").write_text("key: correct-horse-battery\n")
    shown = own.get("/api/v1/specs/specs/one.yaml").json()
    assert "correct-horse" not in shown["text"]


def test_a_secret_of_an_env_file_is_neither_shown_nor_lost_by_a_save(own, project):
    (project / "specs/.env").write_text("SEARCH_KEY=staple-battery-horse\n")
    (project / "specs/one.yaml").write_text("key: staple-battery-horse\n")
    shown = own.get("/api/v1/specs/specs/one.yaml").json()
    assert shown["text"] == "key: [redacted]\n"
    saved = own.put("/api/v1/specs/specs/one.yaml", json={"text": shown["text"]}, headers={"If-Match": shown["etag"]})
    assert saved.status_code == 422 and "stands for a secret" in saved.json()["error"]["message"]
    assert (project / "specs/one.yaml").read_text() == "key: staple-battery-horse\n"


def test_of_two_saves_of_the_same_text_one_is_stale(project):
    files = ProjectFiles(project)
    etag, gate = files.read("specs/one.yaml").etag, threading.Barrier(8)

    def save(number):
        gate.wait()
        try:
            files.write("specs/one.yaml", f"name: n{number}\n", etag)
        except StaleError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(save, range(8))) == 1


def test_a_file_that_is_a_link_is_saved_where_it_lies(own, project):
    (project / "specs/other.yaml").symlink_to("one.yaml")
    etag = own.get("/api/v1/specs/specs/other.yaml").json()["etag"]
    own.put("/api/v1/specs/specs/other.yaml", json={"text": "name: two\n"}, headers={"If-Match": etag})
    assert (project / "specs/one.yaml").read_text() == "name: two\n" and (project / "specs/other.yaml").is_symlink()


def test_a_file_that_is_too_large_is_refused_and_not_shown_empty(own, project):
    (project / "specs/one.yaml").write_text("#" * 1_000_001)
    assert own.get("/api/v1/specs/specs/one.yaml").status_code == 422


def test_the_editor_has_the_text_as_it_is(own, project):
    (project / "specs/one.yaml").write_bytes(b"name: one\r\nother: </textarea><b>\xe2\x80\xae\n")
    page = own.get("/specs/specs/one.yaml").text
    assert "name: one\r\nother: &lt;/textarea&gt;&lt;b&gt;\u202e\n</textarea>" in page


def test_a_command_to_copy_quotes_what_a_shell_would_run(own, project):
    (project / "specs/$(touch x).yaml").write_text("name: one\n")
    assert "rlf run &#39;specs/$(touch x).yaml&#39;" in own.get("/specs/specs/$(touch x).yaml").text


@pytest.fixture(scope="module")
def checking(tmp_path_factory):
    """A client of a project with a tool; its zygote serves every test of this module."""
    from starlette.testclient import TestClient

    from rlf.apps.web.app import create_app
    from rlf.apps.web.settings import WebSettings

    from .conftest import ORIGIN

    folder = tmp_path_factory.mktemp("checked")
    for name in ("specs", "tool_specs"):
        (folder / name).mkdir()
    (folder / "specs/small.yaml").write_text(SPEC)
    schema = "{type: object, properties: {name: {type: string}}, required: [name]}"
    tool = f"name: hello\ndescription: Says hello.\ninputSchema: {schema}\n"
    (folder / "tool_specs/hello.yaml").write_text(f"{tool}target: {{kind: python, callable: 'mytool.py:hello'}}\n")
    (folder / "tool_specs/mytool.py").write_text("def hello(name: str) -> str:\n    return 'hello ' + name\n")
    with TestClient(create_app(WebSettings(folder, folder / "runs", port=8642)), base_url=ORIGIN) as client:
        client.headers |= {"Origin": ORIGIN, "X-RLF": "1"}
        yield client, folder


def test_an_answer_is_kept_until_a_file_of_the_project_changes(tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/mine.py").write_text("one")
    fresh, asked = FreshProcesses(tmp_path, tmp_path / "runs"), list[str]()
    monkeypatch.setattr(fresh, "call", lambda task, **_: asked.append(task) or len(asked))
    assert [fresh.read("list_tools", files=[]), fresh.read("list_tools", files=[])] == [1, 1]
    (tmp_path / "runs/rlf.db").write_text("a run")
    assert fresh.read("list_tools", files=[]) == 1
    (tmp_path / "tools/mine.py").write_text("other")
    assert fresh.read("list_tools", files=[]) == 2
    assert fresh.read("list_tools", files=["a"]) == 3


WRITER = """
import os, stat


def write(highest: int) -> str:
    \"\"\"Writes to every socket up to a number.

    Args:
        highest: the number.
    \"\"\"
    for number in range(3, highest):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                os.write(number, b"Loading model... 100%")
        except OSError:
            pass
    return "done"
"""


def test_code_of_the_project_that_writes_to_sockets_breaks_no_answer_unseen(tmp_path):
    (tmp_path / "writer.py").write_text(WRITER)
    tool = {"name": "write", "target": {"kind": "python", "callable": "writer.py:write", "isolation": "inline"}}
    (tmp_path / "writer.yaml").write_text(json.dumps(tool))
    fresh = FreshProcesses(tmp_path, tmp_path / "runs")
    try:
        called = fresh.call("call_tool", file="writer.yaml", name=None, arguments={"highest": 200}, deadline_s=60)
        assert "done" in json.dumps(called)
        with pytest.raises(RunError, match="sent something else than an answer"):
            fresh.call("call_tool", file="writer.yaml", name=None, arguments={"highest": 5000}, deadline_s=60)
    finally:
        fresh.close()


@pytest.mark.parametrize("role", ["spec", "tool", "reward"])
def test_threads_that_ask_at_a_time_get_the_schema_that_is_made_once(checking, role, monkeypatch):
    client, _ = checking
    fresh, made = client.app.state.site.fresh, list[str]()
    call = fresh.call
    monkeypatch.setattr(fresh, "call", lambda *args, **named: made.append(role) or call(*args, **named))
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: client.get(f"/api/v1/schema/{role}").json(), range(4)))
    assert made == [role] and answers == [schema_of(role)] * 4


def test_a_text_that_is_not_saved_is_checked_with_the_places_of_its_faults(checking):
    client, folder = checking
    text = (folder / "specs/small.yaml").read_text()
    right = client.post("/api/v1/check", json={"path": "specs/small.yaml", "text": text})
    assert right.json()["ok"], right.text
    wrong = client.post("/api/v1/check", json={"path": "specs/small.yaml", "text": text + "\ntrane: 1\n"}).json()
    (fault,) = wrong["faults"]
    assert (fault["place"]["line"], fault["place"]["column"]) == (len(text.splitlines()) + 2, 1)
    plan = client.post("/api/v1/plan", json={"path": "specs/small.yaml", "overrides": ["train.steps=3"]}).json()
    assert any(value["path"] == "train.steps" and value["value"] == 3 for value in plan["report"]["values"])
    assert (plan["last_run"], plan["changes"]) == (None, [])


def test_code_that_was_edited_is_seen(checking):
    client, folder = checking
    call = {"arguments": {"name": "Ann"}}
    first = client.post("/api/v1/tools/hello.yaml/call", json=call)
    assert first.status_code == 200, first.text
    assert first.json()["result"]["text"] == "hello Ann"
    os.utime(folder / "tool_specs/mytool.py", (1, 1))
    (folder / "tool_specs/mytool.py").write_text("def hello(name: str) -> str:\n    return 'good day ' + name\n")
    assert client.post("/api/v1/tools/hello.yaml/call", json=call).json()["result"]["text"] == "good day Ann"


def test_a_secret_of_an_env_file_is_in_no_answer_of_user_code(checking):
    client, folder = checking
    (folder / "specs/.env").write_text("SEARCH_KEY=staple-battery-horse\n")
    text = (folder / "specs/small.yaml").read_text() + "trane: ${oc.env:SEARCH_KEY}\nseed: ${oc.env:SEARCH_KEY}\n"
    answer = client.post("/api/v1/check", json={"path": "specs/small.yaml", "text": text})
    assert answer.status_code == 200 and not answer.json()["ok"] and "staple" not in answer.text


def test_a_call_that_waits_returns_where_the_server_ends(checking):
    client, folder = checking
    (folder / "tool_specs/mytool.py").write_text("import time\ndef hello(name: str) -> str:\n    time.sleep(20)\n")
    fresh, began = client.app.state.site.fresh, time.monotonic()
    ending = threading.Timer(0.5, fresh.end_calls)
    ending.start()
    with pytest.raises(RunError, match="no answer"):
        fresh.call("call_tool", file="tool_specs/hello.yaml", name=None, arguments={"name": "Ann"}, deadline_s=15)
    assert time.monotonic() - began < 10


def test_user_code_ends_when_nobody_waits_for_its_answer_any_more(checking):
    client, folder = checking
    code = (
        "import os, pathlib, time\ndef hello(name: str) -> str:\n    pathlib.Path(name).write_text(str(os.getpid()))\n"
    )
    (folder / "tool_specs/mytool.py").write_text(code + "    time.sleep(60)\n")
    tool = (folder / "tool_specs/hello.yaml").read_text().replace("hello", "slow").replace(":slow", ":hello")
    (folder / "tool_specs/slow.yaml").write_text(tool + "limits: {timeout_s: 60}\n")
    began, note = time.monotonic(), folder / "pid"
    body = json.dumps({"arguments": {"name": str(note)}}).encode()
    messages = iter([{"type": "http.request", "body": body}, {"type": "http.disconnect"}])

    async def receive():
        message = next(messages)
        while message["type"] == "http.disconnect" and not (note.exists() and note.read_text()):
            await asyncio.to_thread(time.sleep, 0.05)
        return message

    async def send(message):
        pass

    headers = [(name.lower().encode(), value.encode()) for name, value in client.headers.items()]
    headers += [(b"content-type", b"application/json"), (b"host", b"127.0.0.1:8642")]
    path = "/api/v1/tools/slow.yaml/call"
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    asyncio.run(asyncio.wait_for(client.app(scope, receive, send), 20))
    while _is_there(int(note.read_text())) and time.monotonic() - began < 20:
        time.sleep(0.05)
    assert not _is_there(int(note.read_text())), "it still runs"


def _is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_options_cannot_be_put_into_a_command(checking):
    client, _ = checking
    body = {"files": ["specs/small.yaml"], "overrides": ["--runs=/tmp"]}
    assert client.post("/api/v1/runs", json=body).status_code == 422
    assert client.post("/api/v1/runs", json={"files": ["../x.yaml"]}).status_code == 404
