"""Checks of whether this machine can run rlf: each finding has the present state and, if it is wrong, the fix."""

from __future__ import annotations

import asyncio
import errno
import os
import platform
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from rlf.core.errors import RlfError
from rlf.core.process import machine_memory_bytes, usable_cores
from rlf.processes.child import run_to_end
from rlf.reports.sheets import counted
from rlf.sandbox.spec import LevelReport
from rlf.spec.engines import default_engine

_GIB = 2**30
_NO_THREAD = "can't start new thread"
"""Python's message where the machine's limits allow no further thread."""
_MIN_PYTHON = (3, 11)
_MIN_SQLITE = (3, 35)
_LOW_MEMORY, _LOW_DISK, _NO_DISK = 4 * _GIB, 5 * _GIB, _GIB // 4


class Status(StrEnum):
    """How a finding counts."""

    OK = "ok"
    """As it should be."""
    WARN = "warn"
    """Runs work; something is worth knowing."""
    FAIL = "fail"
    """Runs will not work."""


@dataclass(frozen=True, slots=True)
class MachineFinding:
    """Result of one check."""

    name: str
    status: Status
    found: str
    fix: str = ""
    """What to do; empty when nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings about a machine."""

    findings: tuple[MachineFinding, ...]
    JSON_PROPERTIES: ClassVar = ("ok",)

    @property
    def ok(self) -> bool:
        """Whether runs can work here."""
        return all(finding.status is not Status.FAIL for finding in self.findings)


def examine(runs: Path | str) -> Examination:
    """Looks at Python, packages, processor, memory, disk, GPU, the lineage, git and the sandbox. Changes nothing."""
    return Examination(tuple(finding for check in CHECKS for finding in _find_safely(check, Path(runs))))


def _find_safely(check: Callable[[Path], Iterator[MachineFinding]], runs_folder: Path) -> Iterator[MachineFinding]:
    """A check's findings; where the machine's limits end it, that is the finding."""
    try:
        yield from check(runs_folder)
    except (OSError, MemoryError, ImportError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            raise  # of the runs folder, which the user has named
        if isinstance(error, RuntimeError) and _NO_THREAD not in str(error):
            raise
        name, why = check.__name__.strip("_"), str(error) or type(error).__name__
        fix = "Raise the limits of memory, open files and processes (`ulimit -a`), or repair the installation."
        yield MachineFinding(name, Status.FAIL, f"this check failed: {why}", fix)


def _check_home(_: Path) -> Iterator[MachineFinding]:
    folder = next(path for path in (Path.home(), *Path.home().parents) if path.exists())
    if not os.access(folder, os.W_OK):
        fix = "Set HOME, and HF_HOME for models, to folders that can be written."
        yield MachineFinding("home", Status.WARN, f"{folder} is not writable: caches are not kept", fix)


def _check_python(_: Path) -> Iterator[MachineFinding]:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if tuple(map(int, platform.python_version_tuple()[:2])) >= _MIN_PYTHON:
        yield MachineFinding("python", Status.OK, found)
    else:
        yield MachineFinding("python", Status.FAIL, found, "Install Python 3.11 or later and make a new environment.")


def _check_packages(_: Path) -> Iterator[MachineFinding]:
    from packaging.requirements import Requirement

    wanted = [Requirement(text) for text in requires("rlf") or ()]
    for requirement in (item for item in wanted if item.marker is None or item.marker.evaluate()):
        yield package_finding(requirement.name, str(requirement.specifier), _find_version(requirement.name))


def package_finding(name: str, pin: str, found: str | None) -> MachineFinding:
    """Whether an installed version, None for none, satisfies a pin."""
    from packaging.specifiers import SpecifierSet

    fix = f"pip install '{name}{pin}'"
    if found is None:
        return MachineFinding(name, Status.FAIL, "not installed", fix)
    if not SpecifierSet(pin).contains(found, prereleases=True):
        return MachineFinding(name, Status.FAIL, f"{found}, pinned to {pin}", fix)
    return MachineFinding(name, Status.OK, found)


def _find_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _check_processor(_: Path) -> Iterator[MachineFinding]:
    usable, cores = usable_cores(), os.cpu_count() or 1
    found = f"{usable} cores" if usable == cores else f"{usable} of {cores} cores"
    fix = "Sampling, tools and update take turns on 1 core; give the process more." if usable < 2 else ""
    yield MachineFinding("cpu", Status.WARN if fix else Status.OK, found, fix)


def _check_memory(_: Path) -> Iterator[MachineFinding]:
    total = machine_memory_bytes()
    fix = "" if total >= _LOW_MEMORY else "`rlf plan SPEC` shows how much memory a run needs; close other programs."
    yield MachineFinding("memory", Status.WARN if fix else Status.OK, f"{total / _GIB:.1f} GiB", fix)


def _check_disk(runs_folder: Path) -> Iterator[MachineFinding]:
    folder = next(path for path in (runs_folder.absolute(), *runs_folder.absolute().parents) if path.exists())
    yield disk_finding(folder, shutil.disk_usage(folder).free, writable=os.access(folder, os.W_OK))


def disk_finding(folder: Path, free_bytes: int, *, writable: bool) -> MachineFinding:
    """Whether runs can be kept in a folder."""
    found = f"{free_bytes / _GIB:.1f} GiB free for {folder}"
    if not writable:
        return MachineFinding("disk", Status.FAIL, f"{folder} is not writable", "Name another folder with --runs DIR.")
    if free_bytes < _NO_DISK:
        return MachineFinding("disk", Status.FAIL, found, "Make room, or name another folder with --runs DIR.")
    if free_bytes < _LOW_DISK:
        return MachineFinding(
            "disk", Status.WARN, found, "Checkpoints of a large model need more; see checkpoint.keep."
        )
    return MachineFinding("disk", Status.OK, found)


def _check_gpu(_: Path) -> Iterator[MachineFinding]:
    if find_spec("torch") is None:
        return  # reported among the packages
    import torch

    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            yield MachineFinding("gpu", Status.OK, f"{properties.name}, {properties.total_memory / _GIB:.1f} GiB")
    elif shutil.which("nvidia-smi"):
        fix = "Install torch with CUDA, and a driver that supports it; `nvidia-smi` names the driver."
        yield MachineFinding(
            "gpu", Status.WARN, f"torch {torch.__version__} finds no GPU, but nvidia-smi is installed", fix
        )
    else:
        yield MachineFinding("gpu", Status.OK, f"none; {default_engine().TITLE} runs on the CPU")


def _examine_database(runs_folder: Path) -> Iterator[MachineFinding]:
    found = f"SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info[:2] < _MIN_SQLITE:
        yield MachineFinding("database", Status.FAIL, found, "Install a Python built with SQLite 3.35 or later.")
        return
    file = runs_folder / "rlf.db"
    if not file.is_file():
        yield MachineFinding("database", Status.OK, f"{found}; no runs in {runs_folder} yet")
        return
    try:
        yield _check_lineage(file, found)
    except (RlfError, sqlite3.Error) as error:
        yield MachineFinding(
            "database", Status.FAIL, f"{file}: {error}", "Move the file away, or name another with --runs."
        )


def _check_lineage(file: Path, found: str) -> MachineFinding:
    from rlf.lineage.reader import Reader
    from rlf.runs.place import open_lineage

    with open_lineage(file.parent) as store:
        num_runs = Reader(store).num_runs()
    with sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True) as connection:
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    connection.close()
    state = f"{found}; {file} opens, {counted(num_runs, 'run')}, journal {mode}"
    if mode != "wal":
        return MachineFinding("database", Status.WARN, state, "Keep runs on a local disk: WAL needs shared memory.")
    return MachineFinding("database", Status.OK, state)


def _check_git(_: Path) -> Iterator[MachineFinding]:
    fix = "Install git: the lineage then names the commit that a run was made from."
    if shutil.which("git") is None:
        yield MachineFinding("git", Status.WARN, "not found", fix)
        return
    done = run_to_end(["git", "--version"], 10)
    version = done.stdout.strip().removeprefix("git version ")
    yield (
        MachineFinding("git", Status.OK, version)
        if done.returncode == 0
        else MachineFinding("git", Status.WARN, "broken", fix)
    )


def _check_sandbox(_: Path) -> Iterator[MachineFinding]:
    from rlf.sandbox.fork_servers import probe

    yield sandbox_finding(asyncio.run(probe()))


def sandbox_finding(reports: Sequence[LevelReport]) -> MachineFinding:
    """How strongly model-written code would be contained, and what prevents stronger containment.

    `reports` come strongest first.
    """
    best = next((report for report in reports if report.available and report.level.contains_hostile_code), None)
    weaker = [report for report in reports[: None if best is None else reports.index(best)] if not report.available]
    why = "".join(f"; {report.level}: {report.why}" for report in weaker)
    fix = " ".join(dict.fromkeys(report.fix for report in weaker if report.fix))
    if best is None:
        limit = "Tools of kind code and sql run only with `allow_unsafe: true`."
        return MachineFinding(
            "sandbox", Status.WARN, f"none that can contain model-written code{why}", f"{fix} {limit}".strip()
        )
    return MachineFinding("sandbox", Status.WARN if fix else Status.OK, f"{best.level}: {best.why}{why}", fix)


CHECKS: tuple[Callable[[Path], Iterator[MachineFinding]], ...] = (
    _check_python,
    _check_packages,
    _check_processor,
    _check_memory,
    _check_disk,
    _check_home,
    _check_gpu,
    _examine_database,
    _check_git,
    _check_sandbox,
)
"""In the order that they are reported."""
