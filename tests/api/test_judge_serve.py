"""Judges served on this machine: by a command, and by a run that starts and ends them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from rlf.apps.judges.servers import ServedModel, _make_command, _share_gpus, judges_of, serve_judges
from rlf.core import RlfError, RunError
from rlf.processes.servers import listening
from rlf.processes.supervise import descendants
from rlf.rewards.judging.settings import Serve

from ..processes import Process, call_rlf

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "specs" / "writing_judge.yaml"


def started(*arguments: str, folder: Path) -> Process:
    """A command, whose worker processes find this tree."""
    return Process(call_rlf, *arguments, folder=folder, env={**os.environ, "PYTHONPATH": str(ROOT)})


def are_gone(pids: set[int], within_s: float = 20) -> bool:
    """Whether none of the processes is alive, be it after a while."""
    deadline = time.monotonic() + within_s
    while alive := {pid for pid in pids if Path(f"/proc/{pid}").exists() and not _is_zombie(pid)}:
        if time.monotonic() > deadline:
            return not alive
        time.sleep(0.05)
    return True


def _is_zombie(pid: int) -> bool:
    try:
        return (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]) in "ZX"
    except OSError:
        return True


def first_step(process: Process) -> dict[str, Any]:
    """The metrics of the first step that a run with --json tells."""
    for line in process.stdout:
        event = json.loads(line)
        if event.get("event") == "step":
            metrics: dict[str, Any] = event["data"]["metrics"]
            return metrics
    raise AssertionError(process.communicate()[1])


def status_of(url: str, headers: dict[str, str]) -> int:
    """What a server answers to a page of another site, which a browser would let ask it."""
    body = json.dumps({"model": "builtin:tiny", "messages": [{"role": "user", "content": "Hi"}]}).encode()
    request = urllib.request.Request(f"{url}/chat/completions", body, headers)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=20)
    with refused.value as error:
        return error.code


def test_two_servers_answer_until_ctrl_c_and_leave_nothing(tmp_path: Path) -> None:
    with started("judge", "serve", "builtin:tiny", "--num", "2", "--port", "0", "--json", folder=tmp_path) as process:
        served = json.loads(process.stdout.readline())["data"]["endpoints"]
        assert len({server["url"] for server in served}) == 2
        for server in served:
            with urllib.request.urlopen(server["url"] + "/models", timeout=20) as answer:
                assert json.load(answer)["data"][0]["id"] == server["model"] == "builtin:tiny"
            assert status_of(server["url"], {"Host": "evil.example"}) == 421
            assert status_of(server["url"], {"Origin": "http://evil.example"}) == 403
        below = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "interrupted\n")
    assert len(below) >= 4 and are_gone(below)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_serves_its_judge_and_ends_it_however_it_ends_itself(number: signal.Signals, tmp_path: Path) -> None:
    with started("run", str(SPEC), "train.steps=500", "--json", folder=tmp_path) as process:
        metrics = first_step(process)
        below = descendants(process.pid)
        assert any(b"--strict" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in below)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert metrics.keys() >= {"rewards/writing/tokens", "rewards/writing/cost_usd", "rewards/writing/unscorable"}
    assert process.returncode == (130 if number is signal.SIGINT else -signal.SIGKILL)
    assert are_gone(below)


def test_a_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    with listening("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with started("judge", "serve", "builtin:tiny", "--port", str(port), folder=tmp_path) as process:
            _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.startswith(f"port {port} of 127.0.0.1 is in use.")


WELL = "from http.server import *; import sys; HTTPServer(('127.0.0.1', int(sys.argv[1])), SimpleHTTPRequestHandler)"
ENGINE_SAYS = "(Engine pid=1) ERROR 01-01 00:00:00 [core.py:1] ValueError: no room"
TWO_PROCESSES = f"print({ENGINE_SAYS!r}); raise SystemExit('see above')"
HEALTH = f"{WELL}.handle_request(); sys.exit('out of memory')"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("raise SystemExit('no weights')", "m cannot be served: no weights"),
        (TWO_PROCESSES, "m cannot be served: ValueError: no room\nsee above"),
        (HEALTH, "has ended: .*out of memory"),
    ],
)
def test_a_server_that_ends_is_reported_with_what_it_said(
    program: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "health").write_text("ok")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "rlf.apps.judges.servers._make_command",
        lambda serve, host, port, *_: [sys.executable, "-c", program, str(port)],
    )
    served: list[ServedModel] = []
    with pytest.raises(RunError, match=f"(?s){words}"):
        asyncio.run(serve_judges([Serve(model="m")], "127.0.0.1", 0, lambda found: served.extend(found.endpoints)))
    assert len(served) == ("ended" in words)


def test_each_server_sees_its_share_of_the_gpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    tell = "import os, sys; sys.exit('sees ' + os.environ['CUDA_VISIBLE_DEVICES'])"
    monkeypatch.setattr(
        "rlf.apps.judges.servers._make_command", lambda serve, host, port, *_: [sys.executable, "-c", tell]
    )
    with pytest.raises(RunError, match=r"sees (2,3|5,7)$"):
        asyncio.run(serve_judges([Serve(model="m", num=2, gpus=(2, 3, 5, 7))], "127.0.0.1", 0, print))


def test_a_spec_says_which_judges_to_serve(tmp_path: Path) -> None:
    file = tmp_path / "good.yaml"
    file.write_text("kind: judge\nname: good\nserve: {model: ./judge, num: 2, gpus: [2, 3]}\n")
    assert judges_of(str(file), Serve(model="-")) == [Serve(model=f"{tmp_path}/judge", num=2, gpus=(2, 3))]
    assert judges_of("org/model", Serve(model="-", num=3)) == [Serve(model="org/model", num=3)]
    file.write_text("kind: judge\nname: good\nendpoints: [{url: 'http://h/v1', model: m}]\n")
    with pytest.raises(RlfError, match="no judge declares a model to serve"):
        judges_of(str(file), Serve(model="-"))


def test_gpus_are_shared_out_evenly() -> None:
    assert [list(_share_gpus((4, 5, 6, 7), number, 2)) for number in range(2)] == [[4, 5], [6, 7]]
    assert list(_share_gpus((), 0, 2)) == []
    with pytest.raises(RlfError, match="3 GPUs for 2 servers"):
        _share_gpus((0, 1, 2), 0, 2)


def test_vllm_serves_where_it_is_installed_and_never_a_builtin_model(monkeypatch: pytest.MonkeyPatch) -> None:
    serve = Serve(model="org/model", args=("--max-model-len", "8192"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RlfError, match=r"serve\.args: --max-model-len 8192 is for `vllm serve`"):
        _make_command(serve, "127.0.0.1", 8100, 0)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "vllm" else None)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.29.0")
    command = _make_command(serve, "127.0.0.1", 8100, 2)
    assert command[1:5] == ["-m", "vllm.entrypoints.cli.main", "serve", "org/model"]
    assert command[5:] == [
        *("--served-model-name", "org/model", "--host", "127.0.0.1", "--port", "8100"),
        *("--middleware", "rlf.core.servers.VisitorGuard"),
        *("--tensor-parallel-size", "2", "--max-model-len", "8192"),
    ]
    own = _make_command(Serve(model="builtin:tiny"), "127.0.0.1", 8100, 0)
    assert own[1:4] == ["-m", "rlf", "serve"] and "--strict" in own


def test_a_vllm_whose_package_has_another_name_is_started_without_its_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def not_called_vllm(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("importlib.metadata.version", not_called_vllm)
    command = _make_command(Serve(model="org/model"), "127.0.0.1", 8100, 0)
    assert command[1:5] == ["-m", "vllm.entrypoints.openai.api_server", "--model", "org/model"]
