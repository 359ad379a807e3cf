"""Sessions of a sandbox for worlds: a process for each, whose state stays from call to call; instances of classes."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from rlf.environments.instances import UNFIT, StandIn, read_instance_answer
from rlf.environments.kind import EnvLimits
from rlf.environments.workers import sandboxed_class
from rlf.environments.world import Step
from rlf.sandbox import LevelChoice, Request, Sandbox, SandboxOutcome, SandboxSpec
from rlf.tools.results import ToolFailure
from rlf.types import Outcome as ToolOutcome
from rlf.types import Task, ToolCall

# One text as Python writes it, and no other expression: deep ones could end the interpreter that reads them.
_TEXT = re.compile(r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\"""")
_HOST = Path(sandboxed_class.__file__).read_text(encoding="utf-8")


def complain_of_level(spec: SandboxSpec | None) -> str | None:
    """The fault of a sandbox for worlds; None where it has none."""
    if spec is not None and spec.level is LevelChoice.REMOTE:
        return "level `remote` keeps no sessions; remove it"
    return None


class NamedSessions:
    """Sessions of one sandbox by name."""

    def __init__(self, sandbox: Sandbox, wall_s: float) -> None:
        self._sandbox, self._wall_s = sandbox, wall_s

    async def ask(self, session: str, source: str) -> Any:
        """The value of a cell's last expression, a text of JSON. Raises ToolFailure without one."""
        limits = self._sandbox.limits.model_copy(update={"wall_s": self._wall_s})
        execution = await self._sandbox.run(Request(source, limits=limits), session=session)
        if execution.outcome is not SandboxOutcome.OK:
            words = f"the world's code ended its process ({execution.outcome}): {execution.error or ''}"
            raise ToolFailure(ToolOutcome.INFRA, words)
        value = execution.value or ""
        if not _TEXT.fullmatch(value):
            words = f"a result has more than {limits.output_bytes} characters; raise env.sandbox.limits.output_bytes"
            raise ToolFailure(ToolOutcome.INFRA, words if len(value) >= limits.output_bytes else UNFIT)
        try:
            return json.loads(ast.literal_eval(value))
        except (ValueError, SyntaxError, RecursionError) as fault:
            raise ToolFailure(ToolOutcome.INFRA, UNFIT) from fault

    async def end(self, session: str) -> None:
        """Ends a session and all that it has started."""
        await self._sandbox.end_session(session)


@asynccontextmanager
async def open_sessions(spec: SandboxSpec, limits: EnvLimits) -> AsyncIterator[NamedSessions]:
    """Starts the sandbox of a run's worlds. Raises RlfError with every reason where no level holds."""
    most = max(spec.max_sessions, limits.max_concurrency)
    async with Sandbox(spec.model_copy(update={"max_sessions": most})) as sandbox:
        yield NamedSessions(sandbox, limits.step_s + limits.reset_s)


class ClassSandbox:
    """Instances of a class, each in a session of its own. A `Place`."""

    runs_on_loop = False

    def __init__(
        self, sessions: NamedSessions, callable_name: str, made_by: Callable[..., Any], args: Mapping[str, Any]
    ) -> None:
        """Takes the class: `path/file.py:name`, the stub that has its signatures, and what instances are made with."""
        self._sessions, self._made_by = sessions, made_by
        file, _, name = callable_name.rpartition(":")
        source = Path(file).read_text(encoding="utf-8")
        start = json.dumps({"source": source, "file": Path(file).name, "name": name, "args": dict(args)})
        self._first_cell = f"{_HOST}\nmake_instance({start!r})"

    async def make(self) -> Any:
        """An instance in a session of its own."""
        stand_in = StandIn(self._made_by, uuid4().hex)
        try:
            read_instance_answer(stand_in, await self._sessions.ask(stand_in.home, self._first_cell))
        except BaseException:
            await self._sessions.end(stand_in.home)
            raise
        return stand_in

    async def call(self, instance: Any, call: ToolCall) -> Any:
        """Calls a tool's method. Raises ToolFailure."""
        return await self._ask(instance, call.name, call.arguments, is_tool=True)

    async def live(self, instance: Any, name: str, /, **arguments: Any) -> Any:
        """Calls a lifecycle method; None where the class has none."""
        if not callable(getattr(instance, name, None)):
            return None
        if isinstance(task := arguments.get("task"), Task):
            shown = {"id": task.id, "answer": task.answer, "columns": dict(task.columns)}
            arguments = arguments | {"task": shown}
        return await self._ask(instance, name, arguments, is_tool=False)

    async def seed(self, instance: Any, seed: int) -> None:
        """Seeds those of its session."""
        await self._ask(instance, "seed", {"seed": seed}, is_tool=False)

    async def discard(self, instance: Any) -> None:
        """Ends the session."""
        await self._sessions.end(instance.home)

    async def _ask(self, stand_in: StandIn, name: str, arguments: Mapping[str, Any], *, is_tool: bool) -> Any:
        asked = json.dumps([name, dict(arguments), is_tool])
        answer = await self._sessions.ask(stand_in.home, f"call_instance({asked!r})")
        value = read_instance_answer(stand_in, answer)
        match answer.get("step"):
            case None:
                return value
            case [said, None | int() | float() as reward, done]:
                return Step(said, reward, bool(done))
        raise ToolFailure(ToolOutcome.INFRA, UNFIT)
