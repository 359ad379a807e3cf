"""`rlf doctor`: what is there, and what to do where something is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from rlf.apps.doctor import findings
from rlf.apps.doctor.findings import MachineFinding, Status, disk_finding, examine, package_finding
from rlf.lineage.store import open_store

Rlf = Callable[..., Result]


def test_this_environment_is_reported_in_full(rlf: Rlf) -> None:
    result = rlf("doctor", "--json")
    data = json.loads(result.stdout)["data"]
    names = {finding["name"] for finding in data["findings"]}
    assert {"python", "torch", "transformers", "cpu", "memory", "disk", "gpu", "database", "git"} <= names
    assert result.exit_code == (0 if data["ok"] else 1)
    assert all(finding["fix"] for finding in data["findings"] if finding["status"] != "ok")


def test_a_failure_exits_with_1_and_says_what_to_do(rlf: Rlf, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = MachineFinding("torch", Status.FAIL, "2.12.0, pinned to ==2.13.0", "pip install 'torch==2.13.0'")
    monkeypatch.setattr(findings, "CHECKS", (lambda _: iter([broken]),))
    result = rlf("doctor")
    assert result.exit_code == 1
    assert "fail" in result.stdout and "pip install 'torch==2.13.0'" in result.stdout


@pytest.mark.parametrize(
    ("pin", "found", "status"),
    [
        ("==2.13.0", "2.13.0+cpu", Status.OK),
        ("==2.13.0", "2.12.0", Status.FAIL),
        (">=2,<3", "2.9.1", Status.OK),
        (">=2,<3", None, Status.FAIL),
    ],
)
def test_packages_are_held_against_their_pins(pin: str, found: str | None, status: Status) -> None:
    finding = package_finding("torch", pin, found)
    assert finding.status is status
    assert finding.fix == ("" if status is Status.OK else f"pip install 'torch{pin}'")


@pytest.mark.parametrize(
    ("gib", "writable", "status"),
    [(50.0, True, Status.OK), (2.0, True, Status.WARN), (0.1, True, Status.FAIL), (50.0, False, Status.FAIL)],
)
def test_runs_need_room_on_the_disk(gib: float, writable: bool, status: Status) -> None:
    assert disk_finding(Path("/x"), int(gib * 2**30), writable=writable).status is status


def database(folder: Path) -> MachineFinding:
    return next(finding for finding in examine(folder).findings if finding.name == "database")


def test_the_lineage_is_opened_and_its_journal_named(tmp_path: Path) -> None:
    assert "no runs" in database(tmp_path).found and not list(tmp_path.iterdir())
    with open_store(tmp_path / "rlf.db"):
        pass
    assert database(tmp_path).status is Status.OK and "0 runs, journal wal" in database(tmp_path).found
    (tmp_path / "rlf.db").write_bytes(b"no database at all" * 100)
    assert database(tmp_path).status is Status.FAIL


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(24, "Too many open files"), "Too many open files"),
        (RuntimeError("can't start new thread"), "can't start new thread"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_a_check_that_the_machines_limits_end_is_a_finding_with_its_cause(monkeypatch, tmp_path, error, why):
    def _memory(_):
        raise error
        yield

    monkeypatch.setattr("rlf.apps.doctor.findings.CHECKS", (_memory,))
    (found,) = examine(tmp_path).findings
    assert (found.name, found.status) == ("memory", Status.FAIL)
    assert found.found == f"this check failed: {'[Errno 24] ' * isinstance(error, OSError)}{why}"


def test_a_home_that_cannot_be_written_is_seen(monkeypatch, tmp_path):
    monkeypatch.setattr("rlf.apps.doctor.findings.os.access", lambda path, mode: False)
    monkeypatch.setattr("rlf.apps.doctor.findings.CHECKS", (findings._check_home,))
    (found,) = examine(tmp_path).findings
    assert (found.name, found.status) == ("home", Status.WARN)
