"""The contract between a call that is cut off and what records it."""

import asyncio

import pytest

from rlf.types import Outcome, ToolResult

SO_FAR = ToolResult(Outcome.CANCELLED, "cut off", run_s=0.5)


async def call():
    """A call as the executor runs it."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        raise SO_FAR.as_cancellation() from None


def test_a_cancelled_call_carries_its_result_through_tasks_and_gatherings():
    async def go():
        async def beside():
            await asyncio.gather(call(), asyncio.sleep(60))

        for work in (call, beside):
            task = asyncio.create_task(work())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as cancelled:
                await task
            assert ToolResult.carried_by(cancelled.value) is SO_FAR

    asyncio.run(go())


def test_a_deadline_around_a_call_that_carries_its_result_is_a_deadline_still():
    async def go():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await call()

    asyncio.run(go())


def test_a_cancellation_of_nothing_carries_nothing():
    assert ToolResult.carried_by(asyncio.CancelledError()) is None
    assert ToolResult.carried_by(asyncio.CancelledError("a word of somebody's")) is None
