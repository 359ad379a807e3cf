"""`env: {kind: verifiers}`: a taskset of verifiers v1, in the environment that has the package."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from rlf.apps.peers.workers import verifiers_tasks
from rlf.core import RlfError
from rlf.core.callables import about_to_run
from rlf.core.files import scratch
from rlf.core.identity import hash_json, hash_path
from rlf.environments.instances import make_class_world
from rlf.environments.kind import EnvSpec
from rlf.environments.processes import ClassProcesses
from rlf.environments.world import MakeWorld
from rlf.processes.child import run_to_end
from rlf.types import ToolDescription

_LOOK_S = 120.0
_TOOLS: dict[tuple[str, ...], Sequence[ToolDescription]] = {}
"""Tools by the command that printed them: loading the package takes many seconds."""


class VerifiersEnv(EnvSpec):
    """A taskset: its prompts, the tools of its toolsets, and the scores of its `@vf.reward` functions. Where its
    package has an `Env` of its own, this one plays: its words are the user's, and its rewards count.

    The taskset is loaded by the Python that has verifiers; each world is a process forked from it. It lives as in
    verifiers: `setup`, the toolsets with the trace's state, `Env.run`, `@vf.stop` of a trace, `finalize`, scoring. A
    row's column `index` picks the task, else the world's seed does. Tools have verifiers' names (`TOOLSET_TOOL`).
    Scores are each reward and metric by the name of its function, and `reward`, their weighted sum.
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
    def _taskset(self) -> str:
        return self.file or self.package or ""

    @property
    def _command(self) -> list[str]:
        """The command of a process that imports the taskset."""
        return [self.python or sys.executable, "-u", verifiers_tasks.__file__]

    @property
    def _describe_command(self) -> tuple[str, ...]:
        return (*self._command, "describe", self._taskset, json.dumps(dict(self.args)))

    def describe_tools(self) -> Sequence[ToolDescription]:
        """Those of the taskset's first task, as they were last looked at. Raises RlfError where it cannot be set up."""
        if self._describe_command not in _TOOLS and (complaints := self.complaints()):
            raise RlfError(f"env: {complaints[0]}")
        return _TOOLS[self._describe_command]

    def complaints(self) -> list[str]:
        """Loads the taskset once, and sets its first task up."""
        command = self._describe_command
        about_to_run(f"start {command[0]} with the taskset {self._taskset}")
        try:
            done = run_to_end(command, _LOOK_S)
            found = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError) as fault:
            return [f"python: {command[0]} cannot be run: {fault}"]
        except ValueError:
            return [f"the taskset's process printed nothing: {done.stderr[-300:].strip()}"]
        if "error" in found:
            return [found["error"]]
        _TOOLS[command] = [
            ToolDescription(one["name"], one["description"], one["input_schema"]) for one in found["tools"]
        ]
        return []

    def source_hash(self) -> str:
        """Covers the file, or the package's name."""
        source = self.package if self.file is None else hash_path(Path(self.file))
        return hash_json([source, dict(self.args)])

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MakeWorld]:
        """Starts the process that loads the taskset, which those of its worlds are forked from. Raises RlfError."""
        tools = await asyncio.to_thread(lambda: [tool.name for tool in self.tools])
        made_by = verifiers_tasks.TasksetWorld
        with scratch("rlf-verifiers") as folder:
            args = {"args": dict(self.args), "tools": tools, "folder": str(folder)}
            async with ClassProcesses(self._taskset, made_by, args, command=self._command, start_s=_LOOK_S) as place:
                yield partial(make_class_world, place)
