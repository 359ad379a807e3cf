"""The keys of a sandbox in the YAML."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from rlf.core.models import StrictModel
from rlf.sandbox.level import LevelChoice


class SandboxLimits(StrictModel):
    """What one call may use. Calls cannot change it."""

    wall_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Time from start to result; the call is killed at it."""
    cpu_s: int = Field(default=10, ge=1)
    """Processor time of each process of a call. Cells of a session are bounded by `wall_s` alone."""
    memory_mb: int = Field(default=512, ge=16)
    """Memory of a call beside the interpreter and the packages imported before it, in MiB."""
    processes: int = Field(default=32, ge=1)
    """Processes and threads of a call at once, the first included; at level `landlock` there is no second process."""
    disk_mb: int = Field(default=64, ge=1)
    """Files of a call, in MiB."""
    output_bytes: int = Field(default=64_000, ge=1_000)
    """What is kept of stdout and stderr together; a call that writes 16 times as much is killed."""


class SandboxSpec(StrictModel):
    """How calls are contained."""

    level: LevelChoice = LevelChoice.AUTO
    url: str | None = Field(default=None, pattern=r"^https?://")
    """Address of the HTTP sandbox, for level `remote` alone: `/run_code` is added."""
    allow_unsafe: bool = False
    """Whether code may run at level `process`, which does not hold code that means harm."""
    packages: tuple[str, ...] = ()
    """Installed distributions that code may import beside the standard library, e.g. `numpy`; what they require comes
    with them. They are imported once, before the first call."""
    limits: SandboxLimits = SandboxLimits()
    max_sessions: int = Field(default=128, ge=1)
    """Sessions at once; beyond it the one that was idle longest is ended."""

    @model_validator(mode="after")
    def _url_goes_with_remote(self) -> Self:
        if (self.level is LevelChoice.REMOTE) != (self.url is not None):
            raise PydanticCustomError("sandbox", "`url` and `level: remote` go together; write both or neither")
        return self

    @model_validator(mode="after")
    def _process_is_asked_for_by_name(self) -> Self:
        if self.level is LevelChoice.PROCESS and not self.allow_unsafe:
            reason = (
                "level `process` does not hold code that means harm; write `allow_unsafe: true` to run it all the same"
            )
            raise PydanticCustomError("sandbox", "{reason}", {"reason": reason})
        return self
