"""The sandbox's attacks, run on this machine at each level that it offers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from rlf.apps.doctor.attacks import AttackResult, run_battery
from rlf.sandbox import probe

__all__ = ["AttackResult", "SandboxAttacks", "run_attacks"]


@dataclass(frozen=True, slots=True)
class SandboxAttacks:
    """Results of all attacks."""

    attacks: tuple[AttackResult, ...]
    JSON_PROPERTIES: ClassVar = ("ok",)

    @property
    def ok(self) -> bool:
        """Whether attacks ran, and all were contained."""
        return bool(self.attacks) and all(attack.contained for attack in self.attacks)


def run_attacks(on_result: Callable[[AttackResult], None]) -> SandboxAttacks:
    """Runs every attack at every available level that claims to stop it; reports each result as it comes."""
    return SandboxAttacks(tuple(asyncio.run(_run_levels(on_result))))


async def _run_levels(on_result: Callable[[AttackResult], None]) -> list[AttackResult]:
    results = []
    for level in [report.level for report in await probe() if report.available]:
        async for result in run_battery(level):
            on_result(result)
            results.append(result)
    return results
