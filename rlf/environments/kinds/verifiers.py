"""`env: {kind: verifiers}`: a taskset of verifiers v1, in the environment that has the package."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from rlf.core import RlfError
from rlf.core.foreign import about_to_run
from rlf.core.hashing import hash_json, hash_path
from rlf.environments.kind import EnvSpec, WorldMaker
from rlf.environments.workers import verifiers_tasks
from rlf.environments.world import Step, World
from rlf.types import Task

_LOOK_S = 120.0
_MAX_LINE_BYTES = 16_000_000


class VerifiersEnv(EnvSpec):
    """Tasks and rewards of a taskset: its prompt, the model's answer, and the scores of its `@vf.reward` functions.

    The taskset runs in a process of its own, by the Python that has verifiers. A row's column `index` picks the task,
    else the world's seed does. Scores are each reward and metric by the name of its function, and `reward`, their
    weighted sum. Toolsets are MCP servers; a taskset that has any is refused.
    """

    FILES: ClassVar[tuple[str, ...]] = ("file",)

    kind: Literal["verifiers"] = "verifiers"
    file: str | None = None
    """A file that exports one `Taskset` in `__all__`, relative to the file that says so; or `package`."""
    package: str | None = None
    """An installed module that exports one."""
    args: Mapping[str, Any] = {}
    """Fields of the taskset's config, by name."""
    python: str | None = None
    """The Python whose environment has verifiers, relative to where rlf runs; None: the one that runs rlf."""

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if (self.file is None) is (self.package is None):
            words = "a taskset is either a `file` or a `package`; write one of them"
            raise PydanticCustomError("verifiers", "{reason}", {"reason": words})
        return self

    @property
    def speaks(self) -> bool:
        """Answers are what is scored."""
        return True

    @property
    def command(self) -> list[str]:
        """What starts the taskset's process."""
        return [
            self.python or sys.executable,
            verifiers_tasks.__file__,
            self.file or self.package or "",
            json.dumps(dict(self.args)),
        ]

    def complaints(self) -> list[str]:
        """Loads the taskset once."""
        about_to_run(f"start {self.command[0]} with the taskset {self.file or self.package}")
        asked = json.dumps({"do": "describe"}) + "\n"
        try:
            done = subprocess.run(self.command, input=asked, capture_output=True, text=True, timeout=_LOOK_S)
            found = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError) as fault:
            return [f"python: {self.command[0]} cannot be run: {fault}"]
        except ValueError:
            return [f"the taskset's process printed nothing: {done.stderr[-300:].strip()}"]
        return [f"the taskset cannot be loaded: {found['error']}"] if "error" in found else []

    def source_hash(self) -> str:
        """Covers the file, or the package's name."""
        source = self.package if self.file is None else hash_path(Path(self.file))
        return hash_json([source, dict(self.args)])

    @asynccontextmanager
    async def open(self) -> AsyncIterator[WorldMaker]:
        """Starts the process, which all worlds share, and loads the taskset. Raises RlfError."""
        maker = _Maker(self.command)
        try:
            try:
                await maker.ask({"do": "describe"})
            except (OSError, RuntimeError) as fault:
                raise RlfError(f"env: the taskset cannot be loaded: {fault}") from fault
            yield maker
        finally:
            await maker.close()


class _Maker:
    """The taskset's process; one that was interrupted in an answer is started again."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._lock = asyncio.Lock()
        """One request is answered at a time, so that answers are not mixed up."""
        self._process: asyncio.subprocess.Process | None = None

    async def make(self) -> World:
        """A world of the taskset."""
        return _VerifiersWorld(self)

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request. Raises RuntimeError."""
        async with self._lock:
            process = self._process = self._process or await self._started()
            assert process.stdin is not None and process.stdout is not None, "a process without pipes"
            line = b""
            try:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                await process.stdin.drain()
                line = await process.stdout.readline()
            finally:
                if not line:
                    await self.close()
        if not line:
            raise RuntimeError("the taskset's process ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    async def _started(self) -> asyncio.subprocess.Process:
        pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        return await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, stderr=none, limit=_MAX_LINE_BYTES
        )

    async def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


class _VerifiersWorld(World):
    """One task of the taskset."""

    ends_when_cancelled = True

    def __init__(self, maker: _Maker) -> None:
        self._maker = maker
        self._index = 0
        self._messages: list[dict[str, str]] = []

    async def reset(self, task: Task, seed: int) -> str | None:
        self._index = int(task.columns.get("index", seed))
        prompt: str = (await self._maker.ask({"do": "task", "index": self._index}))["prompt"]
        self._messages = [{"role": "user", "content": prompt}]
        return prompt or None

    async def reply(self, text: str) -> Step:
        self._messages.append({"role": "assistant", "content": text})
        return Step(None, done=True)

    async def score(self) -> Mapping[str, float]:
        asked = {"do": "score", "index": self._index, "messages": self._messages}
        scores: dict[str, float] = (await self._maker.ask(asked))["scores"]
        return scores
