"""The base of engine specs and their registry."""

from __future__ import annotations

from typing import ClassVar

from rlf.core import Registry
from rlf.spec.section import Section


class EngineSpec(Section):
    """Which engine trains, and the keys that only it understands."""

    WITHOUT_EFFECT: ClassVar[tuple[str, ...]] = ()
    """Keys that cannot change a run's results: they are no part of the plan's hash."""

    kind: str
    """The engine's name."""


ENGINES: Registry[EngineSpec] = Registry("engine", "rlf.spec.engines", EngineSpec)
