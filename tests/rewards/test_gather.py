"""The rollouts of a task brought together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from rlf.apps.judges.scorer import Gathering
from rlf.rewards import TrajectoryFacts, Verdict
from rlf.types import Trajectory


def test_a_member_that_is_cancelled_takes_no_verdict_from_the_others_and_the_last_one_ends_the_judging() -> None:
    ends: list[str] = []

    async def judge(members: Sequence[Trajectory]) -> Mapping[str, Verdict]:
        try:
            await asyncio.sleep(0.05 if members[0].id == "a0" else 60)
        finally:
            ends.append(members[0].id)
        return {member.id: Verdict(1.0) for member in members}

    async def gather(key: str, num_cancelled: int) -> list[object]:
        joining = [
            asyncio.create_task(gathering.join((1, key), 2, TrajectoryFacts().trajectory(f"{key}{number}")))
            for number in range(2)
        ]
        await asyncio.sleep(0.01)
        for each in joining[:num_cancelled]:
            each.cancel()
        return await asyncio.gather(*joining, return_exceptions=True)

    async def main() -> list[object]:
        nonlocal gathering
        gathering = Gathering(judge, 60)
        results = [*await gather("a", 1), *await gather("b", 2)]
        await asyncio.sleep(0)
        return results

    gathering: Gathering
    results = asyncio.run(main())
    assert [type(each).__name__ for each in results] == [
        "CancelledError",
        "Verdict",
        "CancelledError",
        "CancelledError",
    ]
    assert ends == ["a0", "b0"]


def test_a_group_whose_members_were_all_cancelled_is_not_judged_when_the_last_one_leaves() -> None:
    judged: list[Sequence[Trajectory]] = []

    async def judge(members: Sequence[Trajectory]) -> Mapping[str, Verdict]:
        judged.append(members)
        return {}

    async def main() -> None:
        gathering = Gathering(judge, 60)
        joining = asyncio.create_task(gathering.join((1, "a"), 2, TrajectoryFacts().trajectory("a0")))
        await asyncio.sleep(0)
        joining.cancel()
        await asyncio.wait((joining,))
        gathering.leave((1, "a"), 2)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert judged == []
