"""Real short runs under faults: what holds is said to hold, and what was damaged on purpose is found."""

from __future__ import annotations

import errno
import json
import mmap
import os
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from rlf.apps.chaos import chaos as module
from rlf.apps.chaos.chaos import Survival, chaos
from rlf.apps.chaos.faults import FAULTS, Hazard, _kill_children
from rlf.cli.main import app
from rlf.core import RlfError
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.runs.plans import check_spec

from ...processes import Process
from ...reports.synthetic import events, run_record
from .fork import Fork

SHOP = Path(__file__).parents[3] / "specs" / "shop.yaml"
SMALL = ["train.prompts_per_step=2", "rollout.num_generations=2", "eval.limit=2", "data.train.limit=16"]


def edit_a_reward(pid: int, runs: Path) -> None:
    """Rewards of a step are edited once they are there."""
    with closing(sqlite3.connect(runs / "rlf.db", timeout=60)) as database:
        database.execute("UPDATE trajectories SET reward = 0.5 WHERE rowid = (SELECT MAX(rowid) FROM trajectories)")
        database.commit()


def damage(pid: int, runs: Path) -> None:
    """A process with the run's mark stays, as one of a tool would that nobody ends; and a reward is edited."""
    edit_a_reward(pid, runs)
    os.spawnve(os.P_NOWAIT, "/bin/sleep", ["sleep", "60"], {"RLF_CHAOS": Fork.marks[pid]})


def stop_for_good(pid: int, runs: Path) -> None:
    os.kill(pid, signal.SIGSTOP)


def test_a_killed_run_is_resumed_and_what_is_damaged_is_found_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("RLF_DB", str(tmp_path / "own.db"))
    monkeypatch.setattr(module, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": Fork}))
    monkeypatch.setattr(module, "_END_S", 2.0)
    monkeypatch.setattr(module, "_LEAST_S", 5.0)
    monkeypatch.setattr(module, "_TIMES", 3.0)
    real = [fault for fault in FAULTS if fault.name in ("kill", "tool errors")]
    planted = [
        Hazard("damage", "a process stays, and a reward is edited", damage),
        Hazard("hang", "it never goes on", stop_for_good),
    ]
    monkeypatch.setattr(module, "FAULTS", [*real, *planted])
    lines: list[str] = []
    found = chaos([SHOP], [*SMALL, f"lineage.url={tmp_path}/own.db"], note=lines.append)
    # Nothing stays, and the user's own lineage has heard of nothing.
    assert not list(tmp_path.glob(".rlf-chaos*")) and not (tmp_path / "own.db").exists()
    kill, tools, *others = found.ordeals
    assert (kill.verdict, kill.exit_code, kill.is_equal) == (Survival.RESUMED, -signal.SIGKILL, True)
    assert (tools.verdict, tools.is_equal) == (Survival.SURVIVED, None)
    assert lines[:2] == ["kill: resumed", "tool errors: survived"]
    broken = {one.fault: "; ".join(one.broken) for one in others}
    assert "processes are still there" in broken["damage"] and "it hung" in broken["hang"]
    assert "rlf runs verify" in broken["all"] and not found.holds


def test_a_name_that_is_no_fault_is_refused_and_every_fault_has_words() -> None:
    with pytest.raises(RlfError, match="'earthquake'; expected some of kill"):
        chaos([SHOP], SMALL, only=["earthquake"], note=lambda line: None)
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) and all(fault.what for fault in FAULTS)


def test_the_command_exits_with_3_where_something_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = module.Ordeal("kill", "killed", Survival.LOST, "r", -9, "", False, ("its steps are [1]",))
    monkeypatch.setattr(module, "chaos", lambda *_, **__: module.Chaos("shop", 3, "p", "c", (lost,)))
    page = tmp_path / "page.html"
    unwritable = CliRunner().invoke(app, ["chaos", str(SHOP), "--json", "--html", str(tmp_path)])
    assert unwritable.exit_code == 2 and json.loads(unwritable.stdout)["data"]["holds"] is False
    done = CliRunner().invoke(app, ["chaos", str(SHOP), "--json", "--html", str(page)])
    assert done.exit_code == 3 and json.loads(done.stdout)["data"]["holds"] is False
    text = page.read_text(encoding="utf-8")
    assert "something was lost" in text and "its steps are [1]" in text and "certificate" in text


def ordeal(faults: Sequence[Hazard], *, is_lost: bool) -> module.Ordeal:
    verdict, name = Survival.LOST if is_lost else Survival.SURVIVED, ", ".join(fault.name for fault in faults)
    return module.Ordeal(name, "", verdict, "r", 0, "", None, ("lost",) * is_lost)


@pytest.mark.parametrize(
    ("guilty", "found"),
    [({"c"}, ["c"]), ({"a", "d"}, ["d, a"]), ({"a", "b", "c", "d"}, []), ({"nothing"}, [])],
)
def test_a_failing_plan_is_cut_to_the_faults_that_matter(guilty: set[str], found: list[str]) -> None:
    faults = [Hazard(name, name, stop_for_good) for name in "abcd"]
    tried = list[str]()

    def attempt(some: Sequence[Hazard]) -> module.Ordeal:
        tried.append(", ".join(fault.name for fault in some))
        return ordeal(some, is_lost=guilty <= {fault.name for fault in some})

    whole, *least = module._minimise(faults, attempt)
    assert whole.fault == "d, c, b, a" and [one.fault for one in least] == found
    assert len(tried) <= 5


def test_a_certificate_is_of_what_was_tried_and_found_and_not_of_times_and_ids() -> None:
    good = module.Chaos("shop", 3, "p", "c", (ordeal(FAULTS[:1], is_lost=False),))
    renamed = replace(good, ordeals=(replace(good.ordeals[0], run_id="other", said="x"),))
    assert good.certificate == renamed.certificate and len(good.certificate) == 64
    others = [replace(good, plan_hash="q"), replace(good, code_version="d"), replace(good, ordeals=())]
    lost = replace(good, ordeals=(ordeal(FAULTS[:1], is_lost=True),))
    assert len({one.certificate for one in (good, lost, *others)}) == 5


def make_lineage(runs: Path) -> None:
    """A lineage of a run that finished, of some hundred pages."""
    with open_store(runs / "rlf.db") as store:
        start_run(store, run_record())
        with Recorder(store, run_record().id) as recorder:
            for event in events():
                recorder(event)


def test_a_damaged_page_is_noticed_and_the_rest_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_lineage(tmp_path / "runs")
    found = module._damage(tmp_path / "runs", tmp_path / "damaged", "a")
    assert (found.verdict, found.broken) == (Survival.SURVIVED, ())
    monkeypatch.setattr(module, "_verify", lambda runs: "")
    again = module._damage(tmp_path / "runs", tmp_path / "again", "a")
    assert again.verdict is Survival.LOST and again.broken == ("rlf runs verify finds nothing",)


def test_a_database_that_refuses_rows_takes_them_again_afterwards(tmp_path: Path) -> None:
    (fault,) = [fault for fault in FAULTS if fault.name == "database"]
    assert fault.end is not None
    with closing(sqlite3.connect(tmp_path / "rlf.db", isolation_level=None)) as database:
        database.execute("CREATE TABLE trajectories (k INTEGER)")
        fault.strike(0, tmp_path)
        with pytest.raises(sqlite3.IntegrityError, match="the disk fails"):
            database.execute("INSERT INTO trajectories VALUES (1)")
        fault.end(tmp_path)
        fault.end(tmp_path)  # also where it never struck
        database.execute("INSERT INTO trajectories VALUES (1)")


def test_what_ends_a_run_strikes_in_the_middle_of_a_steps_rollouts() -> None:
    assert {fault.name for fault in FAULTS if fault.waits} == {"kill", "stop", "interrupt", "hang-up"}
    assert {fault.name for fault in FAULTS if fault.overrides} == {"tool errors", "tool time-outs", "cut results"}


def test_a_file_of_the_spec_that_changes_meanwhile_is_named_and_nothing_is_called_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, record = tmp_path / "own.yaml", replace(run_record(), host={"device": "cpu"})

    def change(*_: object) -> module.Ordeal:
        spec.write_text(f"extends: {SHOP}\nname: own\nseed: 7\n", encoding="utf-8")
        return ordeal(FAULTS[:1], is_lost=True)

    plain = SimpleNamespace(wait=lambda _: 0, run_id="a", rollouts_s=0.0)
    reader = SimpleNamespace(get_run=lambda _: SimpleNamespace(record=record))
    spec.write_text(f"extends: {SHOP}\nname: own\n", encoding="utf-8")
    monkeypatch.setattr(module, "_Process", lambda *_: nullcontext(plain))
    monkeypatch.setattr(module, "open_reader", lambda _: nullcontext(reader))
    monkeypatch.setattr(module, "_try", change)
    monkeypatch.setattr(module, "_verify", lambda _: "")
    with pytest.raises(RlfError, match="a file of the spec was changed while it was tried"):
        chaos([spec], SMALL, only=["kill"], note=lambda line: None)


def test_a_spec_that_names_no_engine_waits_no_longer_than_others_for_what_is_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = SHOP.with_name("writing_judge.yaml")

    def start(command: Sequence[str], *_: object) -> None:
        raise RlfError(str(check_spec([spec], command[2:]).plan.spec.engine))

    monkeypatch.setattr(module, "_Process", start)
    with pytest.raises(RlfError, match=r"outage_s=20\.0"):
        chaos([spec], [], only=["kill"], note=lambda line: None)


def start_and_wait(others: Sequence[str], preexec: bool) -> None:
    """Starts a process as a run is started, and waits for its end."""
    heed = partial(module._heed, os.getpid()) if preexec else None
    with subprocess.Popen(others, preexec_fn=heed) as process:
        print(process.pid, flush=True)
        process.wait()
    print("over", flush=True)
    time.sleep(60)


def test_a_run_ends_with_the_command_that_tries_it_however_that_ends() -> None:
    with Process(start_and_wait, ["sleep", "60"], True) as command:
        run = int(command.stdout.readline())
        command.kill()
        command.wait()
        until = time.monotonic() + 10
        while Path(f"/proc/{run}/cmdline").exists() and Path(f"/proc/{run}/cmdline").read_bytes():
            assert time.monotonic() < until, "the run is still there"
            time.sleep(0.05)


def test_a_run_without_workers_has_none_to_lose() -> None:
    with Process(start_and_wait, ["sleep", "60"], False) as command:
        command.stdout.readline()
        _kill_children(command.pid, Path())
        assert command.stdout.readline() == "over\n"
        with pytest.raises(ProcessLookupError, match="it had started none"):
            _kill_children(command.pid, Path())


def work_in_a_child() -> None:
    """The child has most of the memory; it opens a file and takes memory again and again, until it may not."""
    if os.fork():
        os.wait()
        return
    kept: list[object] = [bytearray(b"x") * (1 << 25)]
    print("working", flush=True)
    try:
        for _ in range(3000):
            kept.append(mmap.mmap(-1, 1 << 20))
            os.close(os.open(os.devnull, os.O_RDONLY))
            time.sleep(0.01)
    except OSError as error:
        print(error.errno, flush=True)
    os._exit(0)


@pytest.mark.parametrize(("name", "number"), [("memory", errno.ENOMEM), ("descriptors", errno.EMFILE)])
def test_a_limit_strikes_the_process_that_trains_though_another_one_has_started_it(name: str, number: int) -> None:
    (fault,) = [fault for fault in FAULTS if fault.name == name]
    with Process(work_in_a_child) as command:
        assert command.stdout.readline() == "working\n"
        fault.strike(command.pid, Path())
        assert command.stdout.readline() == f"{number}\n"


@pytest.mark.parametrize(
    ("name", "code", "heard", "has_mark", "met"),
    [
        ("memory", 0, "step 2\nstep 3", False, False),
        ("memory", 0, "a call failed: DefaultCPUAllocator: can't allocate memory", False, True),
        ("memory", 1, "", False, True),
        ("descriptors", 0, "[Errno 24] Too many open files", False, True),
        ("descriptors", 0, "", False, False),
        ("disk errors", 1, "", False, False),
        ("disk errors", 0, "", True, True),
        ("pause", 0, "", False, True),
    ],
)
def test_a_fault_that_nothing_shows_was_not_tried(name: str, code: int, heard: str, has_mark: bool, met: bool) -> None:
    (fault,) = [fault for fault in FAULTS if fault.name == name]
    assert fault.is_met(code, heard, has_mark=has_mark) is met
