"""Time limits that share one timer of the loop."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from rlf.core.clocks import Deadline, Timers


def test_a_block_that_takes_too_long_ends_in_a_timeout_and_others_go_on() -> None:
    async def main() -> tuple[float, object]:
        timers = Timers()

        async def limited(limit_s: float) -> str:
            with timers.within(limit_s):
                await asyncio.sleep(0.5)
            return "done"

        started = monotonic()
        long = asyncio.create_task(limited(60))
        await asyncio.sleep(0)  # so that the timer is set for the later limit first
        with pytest.raises(TimeoutError):
            await limited(0.05)
        return monotonic() - started, await long

    took_s, other = asyncio.run(main())
    assert 0.05 <= took_s < 0.5
    assert other == "done"


def test_every_limit_is_kept_when_many_end_at_different_times() -> None:
    async def main() -> list[float]:
        timers = Timers()

        async def late_by(limit_s: float) -> float:
            started = monotonic()
            with pytest.raises(TimeoutError), timers.within(limit_s):
                await asyncio.Event().wait()
            return monotonic() - started - limit_s

        return await asyncio.gather(*(late_by(0.05 * (1 + number % 4)) for number in (3, 1, 2, 0, 7, 5)))

    assert all(late_s >= 0 for late_s in asyncio.run(main()))


def test_a_limit_within_a_limit_tells_whose_time_was_up() -> None:
    async def main() -> list[str]:
        timers, told = Timers(), list[str]()
        try:
            with timers.within(0.05):
                try:
                    with timers.within(60):
                        await asyncio.sleep(60)
                except TimeoutError:
                    told.append("inner")
        except TimeoutError:
            told.append("outer")
        return told

    assert asyncio.run(main()) == ["outer"]


def test_a_cancellation_from_outside_stays_one() -> None:
    async def main() -> bool:
        timers = Timers()

        async def limited() -> None:
            with timers.within(60):
                await asyncio.sleep(60)

        task = asyncio.create_task(limited())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(main())


def test_a_task_can_go_on_after_its_limit() -> None:
    async def main() -> int:
        timers = Timers()
        for _ in range(3):
            with pytest.raises(TimeoutError), timers.within(0.01):
                await asyncio.sleep(60)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert asyncio.run(main()) == 0


def test_a_stopped_deadline_does_not_ring() -> None:
    async def main() -> list[str]:
        timers, rung, kept_rang = Timers(), list[str](), asyncio.Event()

        def ring() -> None:
            rung.append("kept")
            kept_rang.set()

        stopped, kept = Deadline(0.02), Deadline(0.04)
        timers.start(stopped, lambda: rung.append("stopped"))
        timers.start(kept, ring)
        timers.stop(stopped)
        with timers.within(60):
            await kept_rang.wait()
        return rung

    assert asyncio.run(main()) == ["kept"]
