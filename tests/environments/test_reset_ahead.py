"""Worlds that are reset before their trajectory begins: the same worlds, fewer than there may be, none left open."""

import asyncio

import pytest

from rlf.environments import EnvSpec, WorldPool
from rlf.types import Message, Task, WorldFailure

from .worlds import Counted


def task(name, answer=3):
    return Task(name, (Message("user", "Go."),), answer, columns={"answer": answer})


def spec(max_concurrency=4):
    limits = {"max_concurrency": max_concurrency}
    return EnvSpec.model_validate({"kind": "python", "callable": f"{Counted.__module__}:Counted", "limits": limits})


def run(work, *, max_concurrency=4):
    async def go():
        Counted.events = []
        async with WorldPool(spec(max_concurrency), seed=7) as worlds:
            await work(worlds)
        assert worlds._permits._value == max_concurrency and not worlds._episodes

    asyncio.run(go())


def resets():
    return [seed for event, seed in Counted.events if event == "reset"]


def test_a_prepared_world_is_the_one_that_would_have_been_reset():
    async def work(worlds):
        later = worlds.open("x", task("one"))
        assert await later.reset() == "Count to 3."
        await later.close()
        await worlds.prepare([("a", task("one")), ("b", task("two"))])
        await asyncio.sleep(0.2)
        assert len(resets()) == 3
        ahead = worlds.open("a", task("one"))
        assert await ahead.reset() == "Count to 3." and len(resets()) == 3
        assert ahead.record.first_state == later.record.first_state and resets()[0] in resets()[1:]
        await ahead.close()

    run(work)
    assert [event for event, _ in Counted.events].count("close") == 3, "also the one that nobody asked for"


def test_half_of_the_worlds_are_left_for_what_is_played_before():
    async def work(worlds):
        await worlds.prepare([(name, task(name)) for name in "abcd"])
        await asyncio.sleep(0.2)
        assert len(resets()) == 2
        others = [worlds.open(f"eval/{number}", task("e")) for number in range(2)]
        await asyncio.wait_for(asyncio.gather(*(one.reset() for one in others)), 5)
        await worlds.prepare([("e", task("e"))])
        assert [event for event, _ in Counted.events].count("close") == 2, "those that nobody asked for"
        await asyncio.gather(*(one.close() for one in others))

    run(work)


def test_worlds_wanted_now_wait_for_none_that_is_prepared():
    async def work(worlds):
        await worlds.prepare([(name, task(name)) for name in "abcd"])
        await asyncio.sleep(0.2)
        now = [worlds.open(name, task(name)) for name in ("x", "y", "z", "a")]
        await asyncio.wait_for(asyncio.gather(*(one.reset() for one in now)), 5)
        assert len(resets()) == 6, "`a` gave way to `x`, and was reset again"
        await asyncio.gather(*(one.close() for one in now))

    run(work)


def test_one_world_at_a_time_is_never_taken_ahead():
    async def work(worlds):
        await worlds.prepare([("a", task("a"))])
        await asyncio.sleep(0.1)
        assert resets() == []

    run(work, max_concurrency=1)


def test_a_reset_that_failed_ahead_fails_its_trajectory():
    async def work(worlds):
        await worlds.prepare([("a", task("a", -1)), ("b", task("b", -1))])
        await asyncio.sleep(0.2)
        episode = worlds.open("a", task("a", -1))
        with pytest.raises(WorldFailure, match="no such goal"):
            await episode.reset()
        await episode.close()

    run(work)
