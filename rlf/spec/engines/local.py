"""`engine: {kind: local}`: torch and transformers in one process."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from rlf.spec.engine import EngineSpec


class LocalEngineSpec(EngineSpec):
    """The embedded engine, on a CPU or on one GPU."""

    WITHOUT_EFFECT: ClassVar[tuple[str, ...]] = ("threads",)
    """Each micro-batch is computed on one core and their gradients are added in order, so the number changes no bit."""

    kind: Literal["local"] = "local"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` takes a GPU when there is one."""
    threads: int | None = Field(None, ge=1)
    """CPU cores that the update uses; None takes them all, at most 8. The result is the same for any number."""
