"""Whole commands with a lineage on a real PostgreSQL: kill, restart of the server, two runs at once, and the page."""

from __future__ import annotations

import json
import signal
import time
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from rlf.apps.keep.upkeep import remove_with_folders
from rlf.apps.keep.verification import verify_folder
from rlf.lineage.reader import Reader
from rlf.runs.place import open_lineage

from ..postgres import lent_server
from ..processes import Process, call_rlf
from .conftest import ROOT, SMALL

RUNS = Path("runs")
CURVES = ("reward/mean", "loss/policy")
_BOUND_S = 240


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server that holds the lineage, for commands in a folder that is empty."""
    with lent_server() as server:
        monkeypatch.setenv("RLF_DB", server.url())
        monkeypatch.chdir(tmp_path)
        yield server


def start_run(name):
    changes = [*SMALL, "train.steps=12", "eval.every=12", "checkpoint.every=1", f"name={name}"]
    return Process(call_rlf, "run", str(ROOT / "specs" / "search.yaml"), *changes)


def await_step(process, name, step):
    """The id of a run, once it has recorded a step."""
    deadline = time.monotonic() + _BOUND_S
    while time.monotonic() < deadline:
        with open_lineage(RUNS) as store:
            reader = Reader(store)
            for run in reader.list_runs():
                if run.record.name == name and len(reader.steps(run.record.id)) >= step:
                    return run.record.id
        assert process.poll() is None, process.communicate(_BOUND_S)
        time.sleep(0.05)
    raise AssertionError(f"{name} did not record step {step}")


def end_of(process, code):
    with process:
        out, errors = process.communicate(_BOUND_S)
    assert process.returncode == code, errors
    return out + errors


def test_runs_at_once_are_killed_cut_off_and_resumed_to_the_numbers_of_one_that_was_not(server):
    with start_run("whole") as whole, start_run("killed") as killed:
        run_id = await_step(killed, "killed", 2)
        killed.kill()
        end_of(whole, 0)
    server.restart()
    with Process(call_rlf, "resume", run_id) as resumed:
        await_step(resumed, "killed", 4)
        resumed.send_signal(signal.SIGSTOP)  # or it might finish meanwhile
        server.restart()
        resumed.send_signal(signal.SIGCONT)
        words = "".join(resumed.communicate(_BOUND_S))
    if resumed.returncode:  # the restart fell into a write
        assert resumed.returncode == 1 and f"rlf resume {run_id}" in words and "Traceback" not in words
        end_of(Process(call_rlf, "resume", run_id), 0)
    found = verify_folder(RUNS)
    assert (found.num_runs, found.faults, found.remarks) == (2, (), ())
    with open_lineage(RUNS) as store:
        reader = Reader(store)
        runs = {run.record.name: run for run in reader.list_runs()}
        curves = {
            name: [[done.metrics[key] for key in CURVES] for done in reader.steps(run.record.id)]
            for name, run in runs.items()
        }
        assert curves["killed"] == curves["whole"] and len(curves["whole"]) == 12
        ids = [runs[name].record.id for name in ("whole", "killed")]
        assert "agree on each of" in end_of(Process(call_rlf, "runs", "compare", *ids), 0)
        remove_with_folders(reader, [runs["killed"]], RUNS, keep_files=False)
        assert [run.record.name for run in reader.list_runs()] == ["whole"] and not (RUNS / run_id).exists()


def test_the_page_reads_on_after_a_restart_of_the_server(server):
    end = build_opener(HTTPCookieProcessor(CookieJar()))
    open_lineage(RUNS, create=True).close()
    with Process(call_rlf, "web", "--port", "0", "--json") as page:
        address = json.loads(page.stdout.readline())["data"]["address"]
        end.open(address, timeout=_BOUND_S).read()
        for _ in range(2):
            with end.open(f"{address.partition('?')[0]}api/v1/runs", timeout=_BOUND_S) as answer:
                assert json.load(answer)["num_runs"] == 0
            server.restart()
