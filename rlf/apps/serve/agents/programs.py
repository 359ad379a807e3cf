"""The user's program for one trajectory: a command, a function or a service; started, watched, and ended in time."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import aiohttp
from pydantic_core import from_json, to_json

import rlf
from rlf.apps.serve.agents import bridge
from rlf.core import RlfError
from rlf.core.callables import about_to_run, is_async, load_callable, locate
from rlf.core.files import scratch
from rlf.core.mistakes import install
from rlf.core.redact import clean
from rlf.core.text import clean_value, describe
from rlf.processes.child import SUPERVISED_END_S, describe_exit, run_to_end, supervised
from rlf.rollout.by_text import message_of
from rlf.sandbox.launch import BUBBLEWRAP, INSTALL_BUBBLEWRAP, system_options
from rlf.spec.agent import AgentFailure, AgentSpec, fill_in
from rlf.types.task import Task

_MAX_OUTPUT = 16 << 20
"""Bytes that a command may print."""
_SHOWN = 2000
"""Characters of it that are kept with the trajectory."""
_MAX_ANSWER = 4 << 20
"""Bytes of a service's answer, and of the end of what a command prints that is looked at."""
_TRIED_S, _REMOVED_S = 60.0, 3600.0
_MISSING = re.compile(
    r'File "(?P<file>[^"\n]+)", line \d+.*\n(?:    .*\n)*ModuleNotFoundError: No module named \'(?P<name>[\w.]+)\'\s*\Z'
)
"""The end of a traceback, as Python prints it: its last frame, that frame's line with marks below it, and the error."""


@dataclass(frozen=True, slots=True)
class AgentTask:
    """What an agent is given of a task; the gold answer is not."""

    id: str
    prompt: str
    """The last message of the user."""
    messages: list[dict[str, Any]]
    row: Mapping[str, Any] = field(default_factory=dict)
    """The columns of its row, without those of gold answers."""

    @classmethod
    def of(cls, task: Task, gold: frozenset[str]) -> AgentTask:
        """Args: gold: columns that are left out."""
        messages = [message_of(replace(message, content=clean(message.content))) for message in task.messages]
        row = {name: value for name, value in task.columns.items() if name not in gold}
        return cls(task.id, clean(task.question), messages, clean_value(row))


@dataclass(frozen=True, slots=True)
class AgentSession:
    """Where an agent reaches the policy."""

    url: str
    """For clients of OpenAI; `/v1` included."""
    key: str = field(repr=False)
    _ask: Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]] = field(repr=False)

    async def chat(self, **body: Any) -> dict[str, Any]:
        """What `POST {url}/chat/completions` answers to a body, in rlf's own process: without HTTP.

        Raises:
            Refusal: it is not answered; its `status` and `code` are those of the answer over HTTP.
        """
        return await self._ask(body)

    @property
    def described(self) -> dict[str, str]:
        """What a service is given, and by which names a command is filled in."""
        return {"url": self.url, "mcp_url": self.mcp_url, "key": self.key}

    @property
    def mcp_url(self) -> str:
        """The tools and the world of the spec, for clients of MCP's streamable HTTP that send the key."""
        return f"{self.anthropic_url}/mcp"

    @property
    def anthropic_url(self) -> str:
        """For clients of Anthropic, which add `/v1` themselves."""
        return self.url.removesuffix("/v1")


class AgentFault(Exception):
    """The agent failed; the text says how."""

    def __init__(self, failure: AgentFailure, words: str, output: str = "") -> None:
        super().__init__(words)
        self.failure = failure
        self.output = output


@dataclass(frozen=True, slots=True)
class AgentResult:
    """What a program left."""

    answer: str | None
    output: str = ""
    """The end of what it printed."""


class Program(ABC):
    """Plays any number of trajectories at once."""

    end_s: ClassVar[float] = 1.0
    """Time that one has to end in once it is cancelled; then it is left behind."""
    listeners: Sequence[socket.socket] = ()
    """Once entered: where sessions answer too, beside this machine's address."""

    def __init__(self, agent: AgentSpec) -> None:
        self.agent = agent

    @abstractmethod
    async def run(self, task: AgentTask, session: AgentSession) -> AgentResult:
        """Plays one to its end. Cancelled, it leaves nothing running. Raises AgentFault."""

    async def __aenter__(self) -> Program:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


def open_program(agent: AgentSpec, redact: Callable[[str], str]) -> Program:
    """The program of a declaration. Raises RlfError where its function cannot be imported."""
    if agent.command is not None:
        return _Command(agent, redact)
    return _Function(agent) if agent.callable is not None else _Service(agent)


class _Command(Program):
    end_s = SUPERVISED_END_S + 5.0

    def __init__(self, agent: AgentSpec, redact: Callable[[str], str]) -> None:
        super().__init__(agent)
        self._words = agent.command or ()
        self._redact = redact
        program = self._words[0]
        if "{{" not in program and shutil.which(program, path=_search_path()) is None:
            raise RlfError(f"rollout.agent.command: there is no program {program!r}. Install it, or write its path.")
        about_to_run(f"start {program}")
        self._place = _Containment(agent) if agent.isolation == "sandbox" else None

    async def __aenter__(self) -> Program:
        with ExitStack() as stack:
            self._folders = stack.enter_context(scratch("rlf-agents"))
            if self._place is not None:
                self.listeners = (await asyncio.to_thread(self._place.open, self._folders),)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stack.close()

    async def run(self, task: AgentTask, session: AgentSession) -> AgentResult:
        values = {"prompt": task.prompt} | {f"session.{name}": value for name, value in session.described.items()}
        values |= {f"row.{name}": str(value) for name, value in task.row.items()}
        async with _own_folder(self._folders) as folder:
            await asyncio.to_thread(Path(folder, "task.json").write_bytes, _encode(asdict(task)))
            words = [fill_in(word, values) for word in self._words]
            words = words if self._place is None else self._place.wrap(words, folder, session)
            env = _environment(folder, session) | {name: fill_in(text, values) for name, text in self.agent.env.items()}
            pipe, both = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
            try:
                async with supervised(words, stdout=pipe, stderr=both, env=env, cwd=Path(folder)) as process:
                    assert process.stdout is not None, "a process without output"
                    printed = await self._read(process.stdout)
                    code = await process.wait()
            except (OSError, ValueError) as error:  # a word that no command line holds: too long, or with a zero byte
                raise AgentFault(AgentFailure.EXIT, f"it could not be started: {error}") from error
        output = self._redact(printed.decode(errors="replace")).replace(session.key, "***")
        if code:
            last = next((line for line in reversed(output.splitlines()) if line.strip()), "it printed nothing")
            # A supervisor's exit code is the command's, or 128 and the signal that ended it.
            words_of_exit = describe_exit(code if code < 128 else 128 - code)
            missing = self._find_missing(output)
            failure = AgentFailure.GONE if missing else AgentFailure.EXIT
            raise AgentFault(failure, f"{words_of_exit}: {last.strip():.300}{missing}", output[-_SHOWN:])
        return AgentResult(_printed_answer(output), output[-_SHOWN:])

    def _find_missing(self, output: str) -> str:
        """What to do where its output ends as Python's does whose own file imports a module that is not there."""
        found = _MISSING.search(output)
        if found is None:
            return ""
        file, own = Path(found["file"]), {Path(name).parent for name in self.agent.own_files}
        is_own = file.parent in own or not {"site-packages", "dist-packages"}.isdisjoint(file.parts)
        return f". {install(found['name'].partition('.')[0])}".removesuffix(".") if is_own else ""

    async def _read(self, stream: asyncio.StreamReader) -> bytes:
        kept, total = bytearray(), 0
        while piece := await stream.read(1 << 16):
            kept += piece
            total += len(piece)
            del kept[:-_MAX_ANSWER]
            if total > _MAX_OUTPUT:
                shown = self._redact(kept.decode(errors="replace"))[-_SHOWN:]
                raise AgentFault(AgentFailure.FLOOD, f"it printed more than {_MAX_OUTPUT >> 20} MB", shown)
        return bytes(kept)


class _Containment:
    """Bubblewrap around commands: of the machine they read its programs, Python, rlf and their own files; they write
    their folder; of any network they reach the sessions alone, by a socket that `bridge` makes an address of."""

    def __init__(self, agent: AgentSpec) -> None:
        self._program = shutil.which(BUBBLEWRAP)
        if self._program is None:
            raise RlfError(f"rollout.agent.isolation: bubblewrap is not installed. Run `{INSTALL_BUBBLEWRAP}`.")
        started = shutil.which((agent.command or ("",))[0], path=_search_path())
        shown = [sys.base_prefix, sys.prefix, *rlf.__path__, *agent.own_files, *([started] if started else [])]
        self._shown: list[str] = []
        for path in (*map(os.path.realpath, shown), *shown):  # what is in a folder that is shown is there already
            if not any(Path(path).is_relative_to(other) for other in ("/usr", *self._shown)):
                self._shown.append(path)

    def open(self, folders: Path) -> socket.socket:
        """The socket at which sessions answer. Raises RlfError where nothing can be contained here."""
        self._folder = tempfile.mkdtemp(dir=folders)
        tried = run_to_end(self._bind(self._folder, ["true"]), _TRIED_S)
        if tried.returncode:
            why = tried.stderr.strip() or f"exit code {tried.returncode}"
            raise RlfError(f"rollout.agent.isolation: bubblewrap contains nothing here: {why:.300}")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{self._folder}/socket")
        listener.listen(1024)
        return listener

    def wrap(self, words: Sequence[str], folder: str, session: AgentSession) -> list[str]:
        """A command, contained. Args: folder: its own."""
        reach = [f"{self._folder}/socket", str(urlsplit(session.url).port)]
        return self._bind(folder, [sys.executable, "-I", "-S", bridge.__file__, *reach, *words])

    def _bind(self, folder: str, words: Sequence[str]) -> list[str]:
        reads = [word for bind in system_options() for word in bind]
        for path in (*_READABLE, *self._shown, self._folder):
            reads += ["--ro-bind-try", path, path]
        # Where rlf is root, what it starts would keep all capabilities, with which a mount can be undone.
        apart = ["--unshare-all", "--cap-drop", "ALL", "--die-with-parent", "--new-session", "--proc", "/proc"]
        apart += ["--dev", "/dev"]
        own = ["--bind", folder, folder, "--chdir", folder]
        return [str(self._program), *apart, "--tmpfs", "/tmp", *reads, *own, *words]


_READABLE = tuple(
    f"/etc/{name}" for name in ("passwd", "group", "hosts", "nsswitch.conf", "localtime", "mime.types", "ssl/certs")
)


@asynccontextmanager
async def _own_folder(folders: Path) -> AsyncIterator[str]:
    """A folder that is removed with what was left in it: by a process, whatever its depth, and off the event loop."""
    folder = tempfile.mkdtemp(dir=folders)
    try:
        yield folder
    finally:
        await asyncio.to_thread(run_to_end, ["rm", "-rf", "--", folder], _REMOVED_S)


def _encode(value: Any) -> bytes:
    """JSON of what a row holds: dates and bytes as text, NaN as null."""
    return to_json(value, serialize_unknown=True, inf_nan_mode="null", bytes_mode="base64")


def _search_path() -> str:
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


def _environment(folder: str, session: AgentSession) -> dict[str, str]:
    """A clean environment: what a program needs to run, and the addresses that clients look for by themselves."""
    return {
        "PATH": _search_path(),
        "HOME": folder,
        "TMPDIR": folder,
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "PYTHONUNBUFFERED": "1",
        "OPENAI_BASE_URL": session.url,
        "OPENAI_API_KEY": session.key,
        "ANTHROPIC_BASE_URL": session.anthropic_url,
        "ANTHROPIC_API_KEY": session.key,
    }


def _printed_answer(output: str) -> str | None:
    """The `answer` of the last line, where that is a JSON object with one."""
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
    try:
        found = from_json(last)  # bounded in depth, unlike `json.loads`
    except ValueError:
        return None
    answer = found.get("answer") if isinstance(found, dict) else None
    return None if answer is None else str(answer)


class _Function(Program):
    def __init__(self, agent: AgentSpec) -> None:
        super().__init__(agent)
        self._run = load_callable(agent.callable or "")
        if not is_async(self._run):
            raise RlfError(
                f"rollout.agent.callable: {agent.callable!r} is no `async def`, and would hold up everything else "
                "while it waits for the model. Write `async def`, or a `command` for a program that blocks."
            )

    async def run(self, task: AgentTask, session: AgentSession) -> AgentResult:
        try:
            answer = await self._run(task, session)
            return AgentResult(None if answer is None else clean(str(answer)))
        except asyncio.CancelledError as error:
            running = asyncio.current_task()
            if running is not None and running.cancelling():
                raise
            raise AgentFault(AgentFailure.EXIT, "it cancelled itself") from error
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # SystemExit on a task would stop the loop itself
            where, missing = locate(error)
            failure = AgentFailure.GONE if missing else AgentFailure.EXIT
            raise AgentFault(failure, describe(error) + where + missing) from error


class _Service(Program):
    async def __aenter__(self) -> Program:
        # Without cookies: what a service remembers by them would be shared by all trajectories.
        jar = aiohttp.DummyCookieJar()
        self._client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), cookie_jar=jar)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def run(self, task: AgentTask, session: AgentSession) -> AgentResult:
        body = _encode({"task": asdict(task), "session": session.described})
        url, timeout = str(self.agent.url), aiohttp.ClientTimeout(total=None)
        headers = {"Content-Type": "application/json"}
        try:
            # No redirects: the session's key is for the address that the spec names.
            async with self._client.post(
                url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                data = await _read_all(response.content)
                if response.status >= 300:
                    shown = data.decode(errors="replace")
                    raise AgentFault(AgentFailure.EXIT, f"{url} answered {response.status}: {shown:.300}")
                found = from_json(data)
        except (aiohttp.ClientError, OSError) as error:
            raise AgentFault(AgentFailure.EXIT, f"{url}: {describe(error)}") from error
        except ValueError as error:
            raise AgentFault(AgentFailure.EXIT, f"{url} answered no JSON: {error}") from error
        answer = found.get("answer") if isinstance(found, dict) else None
        return AgentResult(None if answer is None else str(answer))


async def _read_all(stream: aiohttp.StreamReader) -> bytes:
    try:
        await stream.readexactly(_MAX_ANSWER)
    except asyncio.IncompleteReadError as whole:
        return whole.partial
    raise AgentFault(AgentFailure.FLOOD, f"it answered more than {_MAX_ANSWER >> 20} MB")
