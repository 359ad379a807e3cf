"""What all tools of an event loop share: opened by the first, ended by the last, whoever is cancelled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rlf.tools.kind import SharedThings


class Things:
    """Opens numbered things, each in a moment, and counts those that are open."""

    def __init__(self, num_failures: int = 0) -> None:
        self.num_failures, self.num_opened, self.num_open = num_failures, 0, 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        await asyncio.sleep(0)
        if self.num_failures:
            self.num_failures -= 1
            raise OSError("not there")
        self.num_opened += 1
        self.num_open += 1
        try:
            yield self.num_opened
        finally:
            self.num_open -= 1
            await asyncio.sleep(0)


def test_one_thing_is_opened_for_a_key_and_ended_with_its_last_user() -> None:
    async def main() -> None:
        shared, things = SharedThings[int](), Things()
        async with shared.use("a", things.open) as first:
            async with shared.use("a", things.open) as second, shared.use("b", things.open) as other:
                assert (first, second, other) == (1, 1, 2)
            assert things.num_open == 1
        assert things.num_open == 0
        async with shared.use("a", things.open) as again:
            assert again == 3

    asyncio.run(main())


def test_a_thing_that_cannot_be_opened_is_tried_again_for_each_that_waits() -> None:
    async def use(shared: SharedThings[int], things: Things) -> int:
        async with shared.use("a", things.open) as thing:
            return thing

    async def main() -> None:
        shared, things = SharedThings[int](), Things(num_failures=1)
        results = await asyncio.gather(*(use(shared, things) for _ in range(3)), return_exceptions=True)
        assert isinstance(results[0], OSError) and results[1:] == [1, 1]
        assert things.num_open == 0
        with pytest.raises(OSError, match="not there"):
            await use(shared, Things(num_failures=1))

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(20))
def test_whoever_is_cancelled_nothing_stays_open_and_nobody_uses_what_has_ended(seed: int) -> None:
    rng = random.Random(seed)

    async def use(shared: SharedThings[int], things: Things) -> None:
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        async with shared.use("a", things.open):
            for _ in range(rng.randrange(4)):
                assert things.num_open
                await asyncio.sleep(0)

    async def main() -> None:
        shared, things = SharedThings[int](), Things()
        users = [asyncio.create_task(use(shared, things)) for _ in range(6)]
        for _ in range(12):
            await asyncio.sleep(0)
            if rng.random() < 0.3:
                rng.choice(users).cancel()
        results = await asyncio.gather(*users, return_exceptions=True)
        assert all(each is None or isinstance(each, asyncio.CancelledError) for each in results), results
        assert things.num_opened and not things.num_open

    asyncio.run(main())
