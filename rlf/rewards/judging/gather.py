"""The rollouts of a task brought together for a verdict on all of them. Each waits for its own group only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from rlf.core.clocks import within
from rlf.rewards.term import Verdict
from rlf.types import Trajectory

JudgeGroup: TypeAlias = Callable[[Sequence[Trajectory]], Awaitable[Mapping[str, Verdict]]]
"""Verdicts on the members of a group, by trajectory id."""


class Gathering:
    """Groups under way, by key. A group is judged once, when all its members have come or left, or time is up."""

    def __init__(self, judge: JudgeGroup, timeout_s: float) -> None:
        self._judge = judge
        self._timeout_s = timeout_s
        self._groups: dict[tuple[int, str], _Group] = {}

    async def join(self, key: tuple[int, str], size: int, trajectory: Trajectory) -> Verdict:
        """The verdict on a member, once its group is judged.

        One that comes after the time of its group was up is in a group with those that come later still.
        """
        group = self._groups.setdefault(key, _Group(size))
        group.members.append(trajectory)
        group.num_waiting += 1
        self._close_if_full(key, group)
        try:
            await self._wait_for_others(key, group)
            assert group.verdicts is not None, "a closed group is being judged"
            return (await asyncio.shield(group.verdicts))[trajectory.id]
        finally:
            group.num_waiting -= 1
            if group.verdicts is not None and not group.num_waiting:
                group.verdicts.cancel()

    def leave(self, key: tuple[int, str], size: int) -> None:
        """Reports that a member will not come."""
        group = self._groups.setdefault(key, _Group(size))
        group.size -= 1
        self._close_if_full(key, group)

    async def _wait_for_others(self, key: tuple[int, str], group: _Group) -> None:
        try:
            with within(self._timeout_s):
                await group.closed.wait()
        except TimeoutError:
            self._close_group(key, group)

    def _close_if_full(self, key: tuple[int, str], group: _Group) -> None:
        if len(group.members) >= group.size:
            self._close_group(key, group)

    def _close_group(self, key: tuple[int, str], group: _Group) -> None:
        if group.closed.is_set():
            return
        del self._groups[key]
        group.closed.set()
        if group.num_waiting:
            group.verdicts = asyncio.ensure_future(self._judge(group.members))


class _Group:
    """Those who have come so far."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.members: list[Trajectory] = []
        self.num_waiting = 0
        """Members whose scoring was not cancelled; without any the group is not judged further."""
        self.closed = asyncio.Event()
        self.verdicts: asyncio.Future[Mapping[str, Verdict]] | None = None
