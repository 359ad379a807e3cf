"""`target: {kind: code}`: a Python interpreter that runs what the model writes, in a sandbox."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from rlf.core.hashing import hash_json
from rlf.sandbox.level import LevelChoice
from rlf.sandbox.spec import SandboxSpec
from rlf.tools.kind import ToolKind, ToolRuntime
from rlf.tools.limits import Limits
from rlf.tools.sandboxed import argument_complaints


class CodeTool(ToolKind):
    """Python: what it prints, the value of its last expression, and its figures."""

    kind: Literal["code"] = "code"
    argument: str = Field(default="code", min_length=1)
    """The argument that holds the program."""
    program: str | None = Field(default=None, min_length=1)
    """The argument with a program that the code tests. It runs in a process of its own, from which the code finds the
    names that it defines; plain values alone go from one to the other, so that no program meddles with its test."""
    session: bool = False
    """Whether names stay from call to call of a trajectory; otherwise each call begins anew."""
    sandbox: SandboxSpec = SandboxSpec()

    @model_validator(mode="after")
    def _level_can(self) -> Self:
        remote = self.sandbox.level is LevelChoice.REMOTE
        if self.session and remote:
            raise PydanticCustomError("code_tool", "level `remote` keeps no sessions; write `session: false`")
        if self.program is not None and (remote or self.session or self.program == self.argument):
            words = (
                "`program` is an argument of its own, without `session`, and at no `level: remote`; remove one of them"
            )
            raise PydanticCustomError("code_tool", words)
        return self

    def complaints(self, input_schema: Mapping[str, Any]) -> list[str]:
        """Code and program must be arguments."""
        names = [self.argument, *([] if self.program is None else [self.program])]
        return [complaint for name in names for complaint in argument_complaints(name, input_schema)]

    def source_hash(self) -> str:
        """Covers what is asked for, and the versions of Python and of the packages."""
        versions = {name: _version(name) for name in self.sandbox.packages}
        return hash_json([self.model_dump(mode="json"), platform.python_version(), versions])

    async def open(self, limits: Limits) -> ToolRuntime:
        """Starts the sandbox at the strongest level there is."""
        from rlf.tools.code import CodeRuntime

        return await CodeRuntime.open(self)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
