"""`python -m benchmarks.worlds`: many worlds at once against the floor, a step's overhead, forks of the shop.

The floor of many worlds is their own waiting with nothing around it: as many coroutines that sleep as long as resets
and steps do. Both are also given by a clock that counts this process's CPU time and what it slept, which is the wall
time of a machine that does nothing else. The overhead of a step is CPU time of a call of a world that does nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence

from benchmarks.embedded.shop.tasks import draw_task
from rlf.builtin.encyclopedia.names import NameSplit
from rlf.builtin.shop.world import Shop
from rlf.environments import EnvSpec, WorldPool
from rlf.tools import Executor
from rlf.types import Task, ToolCall

RESET_S, STEP_S = 0.05, 0.02


class Waiting:
    """Takes its time to reset and to step."""

    async def reset(self) -> None:
        """Waits."""
        await asyncio.sleep(RESET_S)

    async def act(self) -> str:
        """Act."""
        await asyncio.sleep(STEP_S)
        return "done"

    def score(self) -> float:
        """Nothing to score."""
        return 1.0


class QuietLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock counts the CPU time of this process and the time that it would sleep."""

    def __init__(self) -> None:
        super().__init__()
        self._slept_s = 0.0
        self._look, self._selector.select = self._selector.select, self._skip  # type: ignore[attr-defined]

    def time(self) -> float:
        return time.process_time() + self._slept_s

    def _skip(self, timeout_s: float | None = None) -> list[object]:
        """Looks for what is ready; else lets the clock jump."""
        found: list[object] = self._look(0 if timeout_s is not None else None)
        if not found and timeout_s is not None:
            self._slept_s += max(timeout_s, 0.0)
        return found


class Idle:
    """Does nothing."""

    def act(self) -> str:
        """Act."""
        return "done"

    def score(self) -> float:
        """Nothing to score."""
        return 1.0


def world(made_by: type, **keys: object) -> EnvSpec:
    return EnvSpec.model_validate({"kind": "python", "callable": f"{__file__}:{made_by.__name__}"} | keys)


async def play_many(num_worlds: int, num_steps: int) -> float:
    async with (
        WorldPool(world(Waiting, isolation="inline"), seed=0) as worlds,
        Executor(worlds.declarations) as executor,
    ):

        async def play(number: int) -> None:
            episode = worlds.open(f"t{number}", Task(f"t{number}", ()))
            await episode.reset()
            for _ in range(num_steps):
                await executor.invoke(ToolCall("act", {}), trajectory_id=f"t{number}")
            await episode.score()
            await episode.close()

        now = asyncio.get_running_loop().time
        started = now()
        await asyncio.gather(*map(play, range(num_worlds)))
        return now() - started


async def wait_many(num_worlds: int, num_steps: int) -> float:
    async def wait() -> None:
        await asyncio.sleep(RESET_S)
        for _ in range(num_steps):
            await asyncio.sleep(STEP_S)

    now = asyncio.get_running_loop().time
    started = now()
    await asyncio.gather(*(wait() for _ in range(num_worlds)))
    return now() - started


def compare(num_worlds: int, num_steps: int, make_loop: Callable[[], asyncio.AbstractEventLoop]) -> str:
    """Seconds of worlds, and how many times the floor that is."""

    def least(work: Callable[[int, int], Coroutine[object, object, float]]) -> float:
        found = []
        for _ in range(3):
            with asyncio.Runner(loop_factory=make_loop) as runner:
                found.append(runner.run(work(num_worlds, num_steps)))
        return min(found)

    floor_s, wall_s = least(wait_many), least(play_many)
    return f"{wall_s:.3f} s, {wall_s / floor_s:.2f} x the floor of {floor_s:.3f} s"


async def time_step(isolation: str, num_calls: int) -> float:
    """CPU seconds of one call of a no-op tool, through executor and episode."""
    async with WorldPool(world(Idle, isolation=isolation), seed=0) as worlds, Executor(worlds.declarations) as executor:
        episode = worlds.open("t", Task("t", ()))
        await episode.reset()
        call = ToolCall("act", {})
        for _ in range(200):
            await executor.invoke(call, trajectory_id="t")
        started = time.process_time()
        for _ in range(num_calls):
            await executor.invoke(call, trajectory_id="t")
        return (time.process_time() - started) / num_calls


def time_fork(num_forks: int) -> float:
    """CPU seconds of a fork of the shop: a snapshot put in place in a world of its own."""
    import random

    shop = draw_task(random.Random(0), NameSplit.TRAIN).open_shop()
    started = time.process_time()
    for _ in range(num_forks):
        fork = Shop()
        fork.restore(shop.snapshot())
        fork.close()
    return (time.process_time() - started) / num_forks


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=256)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--calls", type=int, default=5000)
    given = parser.parse_args(arguments)
    for name, make_loop in (("as it is", asyncio.new_event_loop), ("quiet", QuietLoop)):
        print(f"{given.worlds} worlds of {given.steps} steps, {name}: {compare(given.worlds, given.steps, make_loop)}")
    for isolation in ("inline", "thread", "process"):
        step_s = min(asyncio.run(time_step(isolation, given.calls)) for _ in range(3))
        print(f"overhead of a step, {isolation}: {step_s * 1e6:.0f} us of CPU")
    print(f"forks of the shop: {1 / time_fork(given.calls):,.0f} per CPU second")


if __name__ == "__main__":
    main()
