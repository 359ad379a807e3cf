"""A run that waits says for what and for how long."""

import asyncio

from rlf.core.clocks import describe_waits, reporting_waits, waiting_for


def test_the_longest_wait_is_named_with_the_number_of_others():
    with waiting_for("tool search (t1)"), waiting_for("tool sql (t2)"):
        assert describe_waits(0.0) == "waiting for tool search (t1) for 0 s, and for 1 more"
        assert describe_waits(60.0) is None
    assert describe_waits(0.0) is None


def test_waits_are_logged_again_and_again_while_they_last(caplog):
    async def wait() -> None:
        async with reporting_waits(0.01):
            with waiting_for("tool slow (t1)"):
                await asyncio.sleep(0.06)

    asyncio.run(wait())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) >= 2 and set(lines) == {"waiting for tool slow (t1) for 0 s"}
