"""Commands of rlf that a page starts: processes of their own, which outlive the server, and files about them.

A job is a folder: `job.json` with its command and process, `stdout` and `stderr`, and `exit_code` when it has ended.
Any server of the same runs folder finds it there.
"""

from __future__ import annotations

import json
import re
import secrets
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field

from rlf.apps.web.settings import LOOPBACK
from rlf.cli.commands import HOMES
from rlf.core.errors import CheckError, NotFoundError, RlfError, RunError
from rlf.lineage.process import Process, is_gone, is_visible, process_of
from rlf.lineage.reader import Reader
from rlf.lineage.upkeep import send_signal
from rlf.processes.child import start_apart

PAGES = "pages"
"""The folder of what an export writes, in that of its job."""
_FOLDER = ".jobs"
_SHELL = 'trap : INT TERM; "$@" >"$0/stdout" 2>"$0/stderr"; code=$?; echo $code >"$0/exit_code"'
"""Runs a command to its end, whatever signals come, and writes down how it ended."""
# An override is passed on as one word of a command line: it must not begin with `-`, or it would be an option.
_OVERRIDE = re.compile("(?!-)(~|[^=\\0\ud800-\udfff]*=)[^\\0\ud800-\udfff]*")
# The form of `new_run_id` with hex digits; names of files are made from it, so nothing else is accepted.
_JOB_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")
_TAIL_BYTES = 4_000
_HEAD_BYTES = 20_000


class JobState(StrEnum):
    """State of a job."""

    RUNNING = "running"
    DONE = "done"
    """It ended with exit code 0."""
    FAILED = "failed"
    """It ended with another one."""
    GONE = "gone"
    """Its process ended without a word."""


@dataclass(frozen=True, slots=True)
class CommandJob:
    """One command."""

    id: str
    action: str
    """What the page calls it: `run`, `sweep`, `resume`, `tools test`, ..."""
    command: str
    started: float
    state: JobState
    exit_code: int | None
    run_id: str | None
    """The run that it makes, as soon as it is known."""
    address: str | None
    """Of the page or the model that it serves, as soon as it does."""
    result: Any
    """The data of its last JSON line where it has ended well, or a check has failed; else None."""
    tail: str
    """The end of its messages."""


class Jobs:
    """The jobs of a runs folder."""

    def __init__(self, runs_folder: Path, project: Path, max_running: int = 8) -> None:
        self._runs_folder = runs_folder
        self._folder = runs_folder / _FOLDER
        self._project = project
        self._max_running = max_running
        self._starting = threading.Lock()

    def start(self, action: str, words: Sequence[str], *, records: bool = True, writes: str = "") -> CommandJob:
        """Starts `rlf WORDS --json` in a session of its own. Raises RunError where too many run.

        Args:
            records: whether the command takes `--runs`.
            writes: the name of a folder in the job's own that the command makes: its last word.
        """
        with self._starting:
            num_running = sum(job.state is JobState.RUNNING for job in self.list())
            if num_running >= self._max_running:
                raise RunError(f"{num_running} jobs are running, which is the limit. Wait for one, or stop it.")
            return self._start_job(action, words, records=records, writes=writes)

    def _start_job(self, action: str, words: Sequence[str], *, records: bool, writes: str) -> CommandJob:
        job_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        folder = self._folder / job_id
        folder.mkdir(parents=True)
        words = [*words, str(folder / writes)] if writes else words
        command = [sys.executable, "-m", "rlf", *words, "--json"]
        command += ["--runs", str(self._runs_folder)] if records else []
        shell, nowhere = ["/bin/sh", "-c", _SHELL, str(folder), *command], subprocess.DEVNULL
        child = start_apart(shell, stdout=nowhere, stderr=nowhere, cwd=self._project)
        threading.Thread(target=child.wait, daemon=True).start()  # so that it leaves no zombie
        about = {"action": action, "command": shlex.join(["rlf", *words]), "started": time.time()}
        draft = folder / "job.draft"
        draft.write_text(json.dumps(about | {"process": asdict(process_of(child.pid))}))
        draft.rename(folder / "job.json")  # whole, or not there
        return self.get(job_id)

    def list(self) -> tuple[CommandJob, ...]:
        """Every job, the newest first."""
        folders = sorted(self._folder.glob("*/job.json"), reverse=True) if self._folder.is_dir() else []
        return tuple(_read_job(file.parent)[0] for file in folders)

    def messages(self, run_id: str) -> tuple[tuple[str, Path], ...]:
        """The files with the messages of the jobs that made a run, by job, the oldest first."""
        return tuple((job.id, self._folder / job.id / "stderr") for job in self.list()[::-1] if job.run_id == run_id)

    def served(self, job_id: str) -> tuple[str, str] | None:
        """Where a job answers, and what requests call its model; None for one that does not, or not yet."""
        found = [_read_first(self._find_folder(job_id) / "stdout", key) for key in ("url", "model")]
        return (found[0], found[1]) if found[0] and found[1] else None

    def get(self, job_id: str) -> CommandJob:
        """One job. Raises NotFoundError where there is none."""
        return _read_job(self._find_folder(job_id))[0]

    def pages(self, job_id: str) -> Path:
        """The pages that an export has written. Raises NotFoundError where there are none."""
        folder = self._find_folder(job_id) / PAGES
        if self.get(job_id).state is not JobState.DONE or not folder.is_dir():
            raise NotFoundError(f"job {job_id}: has written no pages.")
        return folder

    def stop(self, job_id: str) -> CommandJob:
        """Interrupts a job as Ctrl-C does."""
        folder = self._find_folder(job_id)
        job, process = _read_job(folder)
        if job.state is JobState.RUNNING:
            send_signal(process, signal.SIGINT, to_session=True)
        return job

    def _find_folder(self, job_id: str) -> Path:
        folder = self._folder / job_id
        if not _JOB_ID.fullmatch(job_id) or not (folder / "job.json").is_file():
            raise NotFoundError(f"job {job_id[:80]!r}: no such job.")
        return folder


def checked_words(files: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Files and overrides as arguments of a command. Raises RlfError for one that would be an option."""
    for override in overrides:
        if not _OVERRIDE.fullmatch(override):
            raise RlfError(f"override: got {override[:80]!r}; expected e.g. `train.steps=20` or `~eval`.")
    return [*files, *overrides]


def _read_job(folder: Path) -> tuple[CommandJob, Process]:
    about = json.loads((folder / "job.json").read_text())
    process = Process(**about["process"])
    runs = is_visible(process) and not is_gone(process)
    code = None  # asked after the process: one that ends in between has left it
    with suppress(OSError, ValueError):
        code = int((folder / "exit_code").read_text())
    if code is not None:
        state = JobState.FAILED if code else JobState.DONE
    else:
        state = JobState.RUNNING if runs else JobState.GONE
    return (
        CommandJob(
            id=folder.name,
            action=about["action"],
            command=about["command"],
            started=about["started"],
            state=state,
            exit_code=code,
            run_id=_read_first(folder / "stdout", "run_id"),
            address=_read_first(folder / "stdout", "address") or _read_first(folder / "stdout", "url"),
            result=_read_result(folder / "stdout") if code in (0, CheckError.exit_code) else None,
            tail=_read_tail(folder / "stderr"),
        ),
        process,
    )


def _read_first(file: Path, key: str) -> str | None:
    """The value of a key in the first event on stdout that has it."""
    with suppress(OSError), file.open("rb") as stream:
        for line in stream.read(_HEAD_BYTES).splitlines():
            data = _read_data(line)
            if isinstance(data, dict) and isinstance(data.get(key), str):
                return str(data[key])
    return None


def _read_result(file: Path) -> Any:
    with suppress(OSError, IndexError):
        return _read_data(file.read_bytes().splitlines()[-1])
    return None


def _read_data(line: bytes) -> Any:
    """The data of a line of JSON; None for another one, as the user's code may print."""
    with suppress(ValueError, LookupError, TypeError):
        return json.loads(line)["data"]
    return None


def _read_tail(file: Path) -> str:
    with suppress(OSError), file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _TAIL_BYTES))
        return stream.read().decode(errors="replace")
    return ""


@dataclass(frozen=True, slots=True)
class RunStop:
    """A run that was asked to stop."""

    run_id: str
    pid: int
    signal: str


def stop_run(reader: Reader, name: str, *, force: bool) -> RunStop:
    """Asks a run's process to stop after what it is doing, or at once.

    Args:
        force: sends SIGTERM in place of SIGINT, for a process that does not stop.

    Raises:
        RlfError: nothing runs it, or its process is of another machine or container.
    """
    run_id = reader.get_run(name).record.id
    process = reader.owner(run_id)
    if process is None:
        raise RlfError(f"run {run_id}: no process runs it. `rlf resume {run_id}` continues it.")
    if not is_visible(process):
        raise RlfError(f"run {run_id}: runs as process {process.pid} on {process.node}. Stop it there.")
    number = signal.SIGTERM if force else signal.SIGINT
    if not send_signal(process, number):
        raise RlfError(f"run {run_id}: its process {process.pid} has just ended.")
    return RunStop(run_id, process.pid, number.name)


_ACTION = "chat"
_ANSWER_S = 120


class ChatMessage(BaseModel, extra="forbid", frozen=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str = Field(max_length=100_000)


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What the model answers, its tools run."""

    content: str
    num_tokens: int | None


def talk_commands(reader: Reader, run_id: str) -> list[str]:
    """The commands that talk to a run's newest checkpoint; none without one."""
    kept = any(saved.dropped is None for saved in reader.checkpoints(run_id))
    return [f"rlf {word} {run_id}" for word in ("chat", "serve") if word in HOMES and kept]


def find_server(jobs: Jobs, run_id: str) -> CommandJob | None:
    """The job that serves a run's model, or None."""
    running = (job for job in jobs.list() if job.action == _ACTION and job.state is JobState.RUNNING)
    return next((job for job in running if run_id in job.command.split()), None)


def start_server(jobs: Jobs, run_id: str) -> CommandJob:
    """Serves a run's newest checkpoint with its tools on a free port of this machine; once for a run."""
    if "serve" not in HOMES:
        raise NotFoundError("chat: `rlf serve` is not installed here.")
    return find_server(jobs, run_id) or jobs.start(_ACTION, ["serve", run_id, "--agent", "--port", "0"])


def ask(jobs: Jobs, run_id: str, messages: Sequence[ChatMessage]) -> ChatAnswer:
    """The answer of a run's served model. Raises RunError where there is none."""
    job = find_server(jobs, run_id)
    served = None if job is None else jobs.served(job.id)
    if served is None:
        raise RunError(f"chat: no server answers for {run_id}{' yet' if job else ''}. Start it, and wait a moment.")
    url, model = served
    if urlsplit(url).hostname not in LOOPBACK:  # of our own job; a file that somebody changed leads nowhere else
        raise RunError(f"chat: {url} is not on this machine.")
    body = {"model": model, "messages": [one.model_dump() for one in messages]}
    request = urllib.request.Request(
        f"{url.rstrip('/')}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_ANSWER_S) as answer:
            found = json.load(answer)
        text = found["choices"][0]["message"]["content"] or ""
        return ChatAnswer(text, found.get("usage", {}).get("completion_tokens"))
    except urllib.error.HTTPError as error:
        words = error.read(500).decode(errors="replace")
        raise RunError(f"chat: the model's server answered {error.code}: {words}") from error
    except (OSError, ValueError, LookupError) as error:
        raise RunError(f"chat: the model's server did not answer: {error}") from error
