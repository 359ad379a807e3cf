"""Judges that a run serves on this machine: it starts and ends them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlf.apps.judges import panel
from rlf.apps.judges.panel import served
from rlf.apps.judges.settings import Serve
from rlf.core import RunError
from rlf.processes.supervise import descendants

from ..processes import Process, call_rlf
from ..warm import COMMON, warm_python

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


@pytest.fixture
def _warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is forked from what has imported torch."""
    monkeypatch.setattr(panel, "sys", SimpleNamespace(executable=warm_python(*COMMON)))


@pytest.mark.usefixtures("_warm")
def test_a_judge_that_cannot_be_served_is_reported_with_what_its_server_said(tmp_path: Path) -> None:
    async def serve() -> None:
        async with served(Serve(model=str(tmp_path / "none"))):
            raise AssertionError("there is no such model")

    with pytest.raises(RunError, match=f"(?s)^serve: the judge {tmp_path}/none cannot be served: .*none"):
        asyncio.run(serve())


@pytest.mark.usefixtures("_warm")
def test_its_server_asks_for_no_key_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLF_API_KEY", "of another server")

    async def ask() -> tuple[str, str]:
        async with served(Serve(model="builtin:tiny")) as judges:
            ((model, (endpoint,)),) = judges.items()
            with await asyncio.to_thread(urllib.request.urlopen, f"{endpoint.url}/models", timeout=60) as answer:
                return model, json.load(answer)["data"][0]["id"]

    assert asyncio.run(ask()) == ("builtin:tiny", "builtin:tiny")
