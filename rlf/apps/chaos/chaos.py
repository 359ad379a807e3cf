"""`rlf chaos`: a short run of a spec for each fault, resumed where it ends, and compared with one that had none."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from rlf.apps.chaos.faults import FAULTS, Hazard, end_marks, prepare_fault
from rlf.core.errors import RlfError
from rlf.core.files import scratch
from rlf.core.identity import hash_json
from rlf.core.plain_json import Jsonable
from rlf.lineage.graph import differing, read_graph
from rlf.lineage.reader import Reader
from rlf.processes.forking import die_with
from rlf.runs.place import open_reader
from rlf.runs.plans import check_spec
from rlf.spec.models import Schedule
from rlf.types import RunStatus, StopReason

NUM_STEPS = 3
_CHANGES = (f"train.steps={NUM_STEPS}", "checkpoint.every=1", "lineage.url=null", "report_to=[]")
"""Of every spec: short runs, in a lineage of their own, that no service hears of."""
_MARK = "RLF_CHAOS"
"""The variable by which the processes of a run are known."""
_LEAST_S, _TIMES = 60.0, 10.0
"""Time that a run under a fault may take: as many times that of the one without, and at least so long."""
_HANGS_S = 600.0
"""The least where servers do not answer: a judge may have two minutes for each request, as its spec says."""
_LONGEST_S = 3600.0
_END_S = 10.0
"""Time in which the processes of a run that is over have to be gone."""
_WORDS = 300
_OVER = "it was over before that"
_WHEN = (0.5, 0.2, 0.9)
"""When a stop strikes, as shares of the time that a step's rollouts take: the next one where it cut nothing off."""


class Survival(StrEnum):
    """How a run got through a fault."""

    SURVIVED = "survived"
    """The run came to its end by itself."""
    RESUMED = "resumed"
    """It ended, and `rlf resume` brought it to its end."""
    LOST = "lost"
    """Something was lost, or it hung: see `broken`."""
    UNTRIED = "untried"
    """The run was over before the fault struck, or did nothing that it could strike."""


@dataclass(frozen=True, slots=True)
class Ordeal:
    """One run under one fault."""

    fault: str
    what: str
    verdict: Survival
    run_id: str | None
    exit_code: int | None
    """Of the run under the fault, negative for a signal; None where it hung and was ended."""
    said: str
    """The last line on stderr, or empty."""
    is_equal: bool | None
    """Whether steps and evaluations have the numbers of the run without a fault; None where that is not promised: by
    the spec's schedule, and of tools that fail."""
    broken: tuple[str, ...]
    """What does not hold."""
    num_cut: int | None = None
    """Trajectories that the stop cut off, whose turns are kept; None where the process did not say."""
    why: str = ""
    """Of one that is untried: why."""


@dataclass(frozen=True, slots=True)
class Chaos(Jsonable):
    """A spec under faults."""

    name: str
    num_steps: int
    plan_hash: str
    code_version: str
    ordeals: tuple[Ordeal, ...]
    JSON_PROPERTIES: ClassVar = ("holds", "certificate")

    @property
    def holds(self) -> bool:
        """Whether nothing was lost."""
        return all(one.verdict is not Survival.LOST for one in self.ordeals)

    @property
    def certificate(self) -> str:
        """The hash of what was tried, of which plan and code, and of the verdicts; messages have times and ids."""
        found = [[one.fault, str(one.verdict), one.is_equal] for one in self.ordeals]
        return hash_json([self.plan_hash, self.code_version, self.num_steps, found])


def chaos(
    files: Sequence[Path],
    overrides: Sequence[str],
    *,
    only: Sequence[str] = (),
    minimise: bool = False,
    note: Callable[[str], None],
) -> Chaos:
    """Runs a spec for a few steps, once without a fault and once under each. Nothing of it stays.

    Args:
        only: names of faults; none: all.
        minimise: one run meets all of them, in their order; where it loses something, they are left out one by one
            until those are left that matter.
        note: takes a line for each run.

    Raises:
        RlfError, SpecError: the spec is wrong, a fault has another name, or the run without a fault does not finish.
    """
    known = {fault.name: fault for fault in FAULTS}
    if unknown := [name for name in only if name not in known]:
        raise RlfError(f"--only: got {unknown[0]!r}; expected some of {', '.join(known)}.")
    changes = [*overrides, *_CHANGES]
    plan = check_spec(files, changes).plan
    with ExitStack() as stack:
        folder = stack.enter_context(scratch("rlf-chaos"))
        if (lineage := os.environ.pop("RLF_DB", None)) is not None:  # would have the runs in a lineage that stays
            stack.callback(os.environ.__setitem__, "RLF_DB", lineage)
        runs = folder / "runs"
        # What is down longer hangs. A spec that names no engine has none whose key could be changed.
        engine = [f"engine.kind={plan.spec.engine.kind}", "engine.outage_s=20"]
        command = ["run", *map(str, files), *changes, *(engine if hasattr(plan.spec.engine, "outage_s") else ())]
        started = time.monotonic()
        with _Process(command, runs, {}) as plain:
            if plain.wait(_LONGEST_S) != 0 or plain.run_id is None:
                raise RlfError(f"the run without a fault did not finish: {plain.said}")
        limit_s = max(_LEAST_S, _TIMES * (time.monotonic() - started))
        with open_reader(runs) as reader:
            record = reader.get_run(plain.run_id).record
        # The same tokens, whatever the timing.
        is_exact = record.host["device"] == "cpu" and plan.spec.rollout.schedule is not Schedule.CLOCK
        original = plain.run_id if is_exact else None

        def attempt(faults: Sequence[Hazard]) -> Ordeal:
            most_s = max(limit_s, _HANGS_S) if any(fault.name == "service hangs" for fault in faults) else limit_s
            for share in _WHEN:
                found = _try(faults, command, runs, most_s, original, share * plain.rollouts_s)
                if found.num_cut != 0 or found.verdict is Survival.LOST:
                    break
            note(f"{found.fault}: {found.verdict}" + (f" ({found.why})" if found.why else ""))
            return found

        faults = [known[name] for name in dict.fromkeys(only or known)]
        found = list(_minimise(faults, attempt)) if minimise else [attempt([fault]) for fault in faults]
        if broken := _verify(runs):
            found.append(Ordeal("all", "what the lineage holds", Survival.LOST, None, None, "", None, (broken,)))
        elif not only:
            found.append(_damage(runs, folder / "damaged", plain.run_id))
            note(f"{found[-1].fault}: {found[-1].verdict}")
    if check_spec(files, changes).plan.plan_hash != plan.plan_hash:
        raise RlfError("a file of the spec was changed while it was tried, so that its runs differ. Try it again.")
    return Chaos(plan.spec.name, NUM_STEPS, record.plan_hash, record.code_version, tuple(found))


def _minimise(faults: Sequence[Hazard], attempt: Callable[[Sequence[Hazard]], Ordeal]) -> Iterator[Ordeal]:
    """The run under all faults, and where it is lost the one under the fewest of them that is."""
    # What ends the process comes first in the table, and last here: nothing else would strike.
    kept = list(reversed(faults))
    whole = least = attempt(kept)
    yield whole
    if whole.verdict is not Survival.LOST:
        return
    for fault in faults:
        rest = [one for one in kept if one is not fault]
        if rest and (found := attempt(rest)).verdict is Survival.LOST:
            kept, least = rest, found
    if least is not whole:
        yield least


class _Process:
    """A command of rlf with its own folder of runs, read as it goes."""

    def __init__(self, command: Sequence[str], runs: Path, env: Mapping[str, str]) -> None:
        self.mark = f"{os.getpid()}-{time.monotonic_ns()}"
        self.run_id: str | None = None
        self.begun, self.kept = threading.Event(), threading.Event()
        """Set when it has an id, when the first checkpoint is there, which it resumes from, and at its last line."""
        self.has_checkpoint = False
        self.num_cut: int | None = None
        """Trajectories that a stop cut off."""
        self.rollouts_s = 0.0
        """Time that the last step's rollouts took."""
        arguments = [sys.executable, "-m", "rlf", *command, "--runs", str(runs), "--json"]
        self.lines = list[str]()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._process = subprocess.Popen(
            arguments,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, **env, _MARK: self.mark},
            start_new_session=True,
            preexec_fn=partial(_heed, os.getpid()),
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the process, which is over but for a defect."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reading.join(_END_S)
        assert self._process.stdout is not None, "a process without stdout"
        self._process.stdout.close()
        self._errors.close()

    @property
    def pid(self) -> int:
        """Raises ProcessLookupError where it is over."""
        if self._process.poll() is not None:
            raise ProcessLookupError(_OVER)
        return self._process.pid

    @property
    def said(self) -> str:
        """The last line on stderr."""
        lines = self.errors.strip().splitlines()
        return lines[-1][:_WORDS] if lines else ""

    @property
    def errors(self) -> str:
        """All of stderr."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def wait(self, limit_s: float) -> int | None:
        """The exit code; None where time is up, after which it is killed with what it started."""
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reading.join(_END_S)
        return code

    def end_left(self) -> Iterator[str]:
        """Kills processes of it that are still there after some time in which they may end, and says how many."""
        until = time.monotonic() + _END_S
        while (found := list(_marked(self.mark))) and time.monotonic() < until:
            time.sleep(0.1)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if found:
            yield f"{len(found)} of its processes are still there after it"

    def _read(self) -> None:
        assert self._process.stdout is not None, "a process without stdout"
        for line in self._process.stdout:
            self.lines.append(line)
            try:
                event: dict[str, Any] = json.loads(line)
            except ValueError:  # cut off by a kill
                continue
            if event.get("event") == "started":
                self.run_id = event["data"]["run_id"]
                self.begun.set()
            elif event.get("event") == "step":
                self.rollouts_s = event["data"]["metrics"].get("time/generate_s", 0.0)
            elif event.get("event") == "interrupted":
                self.num_cut = event["data"]["num_trajectories"]
            elif event.get("event") == "checkpoint":
                self.has_checkpoint = True
                self.kept.set()
        self.begun.set()
        self.kept.set()


def _heed(parent: int) -> None:
    """Signals that are ignored here, as in the background of a shell, are not in a run; it ends with this process."""
    die_with(parent)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _marked(mark: str) -> Iterator[int]:
    wanted = f"{_MARK}={mark}".encode()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in entry.read_bytes().split(b"\0"):
                yield int(entry.parent.name)
        except OSError:  # of another user, or over
            continue


def _try(
    faults: Sequence[Hazard], command: Sequence[str], runs: Path, limit_s: float, original: str | None, wait_s: float
) -> Ordeal:
    """The run under faults, and what it left.

    Args:
        original: the run without a fault, where the numbers have to be its own.
        wait_s: after the first checkpoint, before what strikes in the middle of a step's rollouts.
    """
    name, what = (", ".join(getattr(fault, key) for fault in faults) for key in ("name", "what"))
    overrides = [change for fault in faults for change in fault.overrides]
    broken = list[str]()
    original = None if any(fault.changes_numbers for fault in faults) else original
    with _Process([*command, *overrides], runs, prepare_fault(runs.parent)) as process:
        is_early = all(fault.early for fault in faults)
        (process.begun if is_early else process.kept).wait(limit_s)
        why = "" if process.has_checkpoint or is_early else _OVER
        for fault in faults if not why else ():
            if fault.waits:
                time.sleep(wait_s)
            try:
                fault.strike(process.pid, runs)
            except (ProcessLookupError, FileNotFoundError) as error:
                why = "" if len(faults) > 1 else str(error)  # those before it have ended the run
        code, run_id = process.wait(limit_s), process.run_id
        said = process.said if code else ""
        for fault in faults:
            if fault.end is not None:
                fault.end(runs)
        has_mark, heard = end_marks(runs.parent), "".join([*process.lines, process.errors])
        if not why and not any(fault.is_met(code, heard, has_mark=has_mark) for fault in faults):
            why = "it came to its end, and nothing shows that it met this"
        if code is None:
            broken.append(f"it hung: not over after {limit_s:.0f} s")
        broken += process.end_left()
    if run_id is None:
        return Ordeal(name, what, Survival.LOST, None, code, said, None, ("no run began",))
    if code != 0:
        with _Process(["resume", run_id], runs, {}) as again:
            if (end := again.wait(limit_s)) != 0:
                broken.append(f"rlf resume ended with {end}: {again.said}")
            broken += again.end_left()
    with open_reader(runs) as reader:
        broken += _look(reader, run_id)
        is_equal = None
        if original is not None:
            changed = differing(read_graph(reader, original), read_graph(reader, run_id))
            is_equal = not any(node.kind in ("step", "evaluation") for node in changed)
    if is_equal is False:
        broken.append("its numbers are not those of the run without a fault")
    verdict = Survival.UNTRIED if why else Survival.RESUMED if code != 0 else Survival.SURVIVED
    if broken:
        verdict = Survival.LOST
    return Ordeal(name, what, verdict, run_id, code, said, is_equal, tuple(broken), process.num_cut, why)


def _look(reader: Reader, run_id: str) -> Iterator[str]:
    """What a run that is over has to hold."""
    run = reader.get_run(run_id)
    if run.status is not RunStatus.FINISHED:
        yield f"it is {run.status}"
    steps = [step.step for step in reader.steps(run_id)]
    if steps != list(range(1, NUM_STEPS + 1)):
        yield f"its steps are {steps}"
    zeros = [
        head
        for head in reader.trajectories(run_id)
        if head.stop in (StopReason.INFRA_FAILURE, StopReason.CANCELLED) and head.reward is not None
    ]
    if zeros:
        yield f"{len(zeros)} trajectories that something outside the policy broke have a reward"


def _damage(runs: Path, copy: Path, run_id: str) -> Ordeal:
    """A page in the middle of a copy of the database is overwritten: it has to be noticed, and the rest to be saved."""
    shutil.copytree(runs, copy)
    with closing(sqlite3.connect(copy / "rlf.db")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = database.execute("PRAGMA page_size").fetchone()
    with (copy / "rlf.db").open("r+b") as file:
        file.seek(file.seek(0, os.SEEK_END) // size // 2 * size)
        file.write(b"\xff" * size)
    broken = [] if _verify(copy) else ["rlf runs verify finds nothing"]
    saved = copy / "saved" / "rlf.db"
    saved.parent.mkdir()
    arguments = [sys.executable, "-m", "rlf", "runs", "salvage", str(copy / "rlf.db"), "--out", str(saved)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    said = (done.stdout or done.stderr).strip()[-_WORDS:]
    if not saved.is_file():
        broken.append(f"rlf runs salvage saves nothing: {said}")
    elif done.returncode != 0:
        broken.append(f"rlf runs salvage ended with {done.returncode}: {said}")
    verdict = Survival.LOST if broken else Survival.SURVIVED
    what = "a page of a copy of the database is overwritten, and the rest saved"
    return Ordeal("damage", what, verdict, run_id, done.returncode, "", None, tuple(broken))


def _verify(runs: Path) -> str:
    """What `rlf runs verify` finds in the lineage of all these runs; empty where it is whole."""
    arguments = [sys.executable, "-m", "rlf", "runs", "verify", "--runs", str(runs)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"rlf runs verify: {(done.stdout or done.stderr).strip()[-_WORDS:]}"
