"""`engine: {kind: local}`: torch and transformers in one process."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rlf.spec.engine import EngineSpec


class LocalEngineSpec(EngineSpec):
    """The embedded engine, on a CPU or on one GPU."""

    kind: Literal["local"] = "local"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` takes a GPU when there is one."""
    threads: int | None = Field(None, ge=1)
    """CPU threads for torch; None takes one per core, at most 8. Part of what makes two runs bit-identical."""
