"""The sandbox's attacks, run on this machine at each level that it offers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rlf.sandbox import probe
from rlf.sandbox.battery import AttackResult, run_battery

__all__ = ["AttackResult", "run_attacks"]


def run_attacks(on_result: Callable[[AttackResult], None]) -> list[AttackResult]:
    """Runs every attack at every level that is there and says that it stops it; tells each result as it comes."""
    return asyncio.run(_run(on_result))


async def _run(on_result: Callable[[AttackResult], None]) -> list[AttackResult]:
    results = []
    for level in [report.level for report in await probe() if report.available]:
        async for result in run_battery(level):
            on_result(result)
            results.append(result)
    return results
