"""The base of engine specs and their registry."""

from __future__ import annotations

from typing import ClassVar

from rlf.core import Registry
from rlf.core.kinds import Kind


class EngineSpec(Kind, allow_inf_nan=False):
    """Which engine trains, and the keys that only it understands."""

    chosen_by: ClassVar[str] = "kind"
    WITHOUT_EFFECT: ClassVar[tuple[str, ...]] = ()
    """Keys that cannot change a run's results: they are no part of the plan's hash."""

    kind: str
    """The engine's name."""


ENGINES: Registry[EngineSpec] = Registry("engine", "rlf.spec.engines", EngineSpec)
