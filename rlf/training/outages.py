"""Outages: what broke a trajectory outside the policy, and whether it is worth playing again.

OpenRLHF takes a group only whole, so that a trajectory that broke is played again before it is left out. While a tool
or a reward term is down, those that need it wait, and one after the other tries whether it is back. What is down for
one trajectory and answers others is not waited for: its tries are counted.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from rlf.training.counting import REWARD, SAMPLER, counts, find_cause, world_name
from rlf.types.score import Scored
from rlf.types.tool import Outcome
from rlf.types.trajectory import CallRecord, Trajectory

logger = logging.getLogger(__name__)

MAX_TRIES = 3
"""How often a trajectory is played while what broke it answers other calls."""
_FIRST_PAUSE_S = 1.0
_LAST_PAUSE_S = 30.0
_NO_VALUE = "the term has no value"
_ANSWERS = frozenset({Outcome.OK, Outcome.TOOL_ERROR, Outcome.OUTPUT_REJECTED})
"""Outcomes that show a tool to be up."""


@dataclass(slots=True)
class Tries:
    """The tries of one trajectory."""

    since: float = field(default_factory=time.monotonic)
    """When the last try was over; at first when the first begins."""
    num: int = 0
    """Tries so far."""
    num_answered: int = 0
    """Those since whose beginning what broke them has answered some call."""


@dataclass(slots=True)
class _Service:
    """One cause of failures: when it answered and failed, by the monotonic clock."""

    answered_at: float = -math.inf
    failed_at: float = -math.inf
    down_since: float | None = None
    """The first failure after the last answer; None where none is later."""
    is_reported: bool = False
    is_given_up: bool = False
    """Whether it was down for longer than trajectories wait."""
    pause_s: float = field(default_factory=lambda: _FIRST_PAUSE_S)
    num_waiting: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the trajectory that tries next, while it pauses."""
    is_back: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while it is up: nobody pauses for it any longer."""


class Outages:
    """Which tools and reward terms of one agent are down, and which trajectories wait for them."""

    def __init__(self, patience_s: float, notify: Callable[[str, str], None]) -> None:
        """Everything is up.

        Args:
            patience_s: how long trajectories wait for what is down before they are left out.
            notify: takes a level and what happened, for the run's events.
        """
        self._patience_s = patience_s
        self._notify = notify
        self._services: dict[str, _Service] = {}

    def note(self, scored: Scored, began: float) -> None:
        """Learns from a trajectory what is up and what is down.

        Args:
            began: when it began, by the monotonic clock: a call that ended before another failed shows nothing.
        """
        now = time.monotonic()
        if counts(scored):
            self._note_answer(SAMPLER, now)
            self._note_answer(REWARD, now)
        for ended_at, record in _timed_calls(scored.trajectory, began):
            if record.result.outcome in _ANSWERS and not record.result.cached:
                self._note_answer(f"tool {record.call.name!r}", ended_at)
            elif record.result.outcome.is_infrastructure:
                self._note_failure(f"tool {record.call.name!r}", ended_at)
        world = scored.trajectory.world
        if world is not None and world.failed is None:
            self._note_answer(world_name(world), now)
        cause = find_cause(scored)
        if cause is not None and not cause.startswith("tool "):  # whose calls were noted above
            self._note_failure(cause, now)

    async def may_play_again(self, scored: Scored, tries: Tries) -> bool:
        """Whether a trajectory is to be played again; returns when it should be."""
        cause = find_cause(scored)
        if cause is None:
            return False
        service = self._service(cause)
        tries.num += 1
        tries.num_answered += service.answered_at > tries.since
        tries.since = time.monotonic()
        if (tries.num if cause == SAMPLER else tries.num_answered) >= MAX_TRIES:
            return False
        if cause == SAMPLER or service.down_since is None:
            return True
        service.num_waiting += 1
        try:
            async with service.turn:
                return await self._wait(cause, service, scored)
        finally:
            service.num_waiting -= 1

    async def _wait(self, cause: str, service: _Service, scored: Scored) -> bool:
        """Pauses before the next try; no longer once the service is known to be up, or when patience is at its end."""
        if service.down_since is None:
            return True
        left_s = service.down_since + self._patience_s - time.monotonic()
        if left_s <= 0:
            self._give_up(cause, service, scored.trajectory.error)
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(min(service.pause_s, left_s)):
                await service.is_back.wait()
        if service.down_since is not None:
            service.pause_s = min(2 * service.pause_s, _LAST_PAUSE_S)
            self._report_down(cause, service, scored.trajectory.error)
        return True

    def _report_down(self, cause: str, service: _Service, error: str | None) -> None:
        assert service.down_since is not None, f"{cause} is up"
        down_s = time.monotonic() - service.down_since
        text = f"{cause} has been down for {down_s:.0f} s; {service.num_waiting} trajectories wait for it, at most "
        text += f"{self._patience_s:g} s in all (engine.outage_s). The last error: {error or _NO_VALUE}"
        service.is_reported = True
        self._notify("warning", text)

    def _give_up(self, cause: str, service: _Service, error: str | None) -> None:
        if not service.is_given_up:
            text = (
                f"{cause} has not answered for {self._patience_s:g} s (engine.outage_s): until it does, trajectories "
            )
            self._notify(
                "warning", f"{text}that need it are left out immediately. The last error: {error or _NO_VALUE}"
            )
        service.is_given_up = True

    def _service(self, cause: str) -> _Service:
        return self._services.setdefault(cause, _Service())

    def _note_failure(self, cause: str, at: float) -> None:
        service = self._service(cause)
        service.failed_at = max(service.failed_at, at)
        if at > service.answered_at and service.down_since is None:
            service.down_since = at
            service.is_back.clear()

    def _note_answer(self, cause: str, at: float) -> None:
        service = self._service(cause)
        service.answered_at = max(service.answered_at, at)
        if service.down_since is None or at <= service.failed_at:
            return
        if service.is_reported or service.is_given_up:
            self._notify("info", f"{cause} answers again after {time.monotonic() - service.down_since:.0f} s")
        service.down_since, service.pause_s = None, _FIRST_PAUSE_S
        service.is_reported = service.is_given_up = False
        service.is_back.set()


def _timed_calls(trajectory: Trajectory, began: float) -> Iterator[tuple[float, CallRecord]]:
    """Each call with when it ended at the earliest, as the times of its turns say."""
    for turn in trajectory.turns:
        began += turn.sample_s + turn.tools_s
        yield from ((began, record) for record in turn.calls)
