"""Outages: what broke a trajectory outside the policy, and whether it is worth playing again.

OpenRLHF takes a group only whole, so that a trajectory that broke is played again before it is left out. While a tool
or a reward term is down, those that need it wait, and one after the other tries whether it is back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rlf.engines.openrlhf.actor.groups import counts
from rlf.types.score import Scored
from rlf.types.tool import Outcome
from rlf.types.trajectory import StopReason

logger = logging.getLogger(__name__)

MAX_TRIES = 3
"""How often a trajectory is played while what broke it works for others."""
_FIRST_PAUSE_S = 1.0
_LAST_PAUSE_S = 30.0
_SAMPLER = "the sampler"
_REWARD = "a reward term"
_NO_VALUE = "the term has no value"
_ANSWERS = frozenset({Outcome.OK, Outcome.TOOL_ERROR, Outcome.OUTPUT_REJECTED})
"""Outcomes that show a tool to be up."""


def find_cause(scored: Scored) -> str | None:
    """What broke a trajectory, in words; None when it counts, or when playing it again would change nothing."""
    if counts(scored) or scored.reward is not None:
        return None
    trajectory = scored.trajectory
    if trajectory.stop is not StopReason.INFRA_FAILURE:
        return _REWARD
    broken = [record for record in trajectory.calls if record.result.outcome.is_infrastructure]
    return f"tool {broken[0].call.name!r}" if broken else _SAMPLER


@dataclass(slots=True)
class _Service:
    """Whether one cause of failures is down."""

    down_since: float | None = None
    """None: it answered after the last failure."""
    is_reported: bool = False
    is_given_up: bool = False
    """Whether it was down for longer than trajectories wait."""
    pause_s: float = field(default_factory=lambda: _FIRST_PAUSE_S)
    num_waiting: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the trajectory that tries next, while it pauses."""


class Outages:
    """Which tools and reward terms of one agent are down, and who waits for them."""

    def __init__(self, patience_s: float, notify: Callable[[str, str], None]) -> None:
        """Everything is up.

        Args:
            patience_s: how long trajectories wait for what is down before they are left out.
            notify: takes a level and what happened, for the run's events.
        """
        self._patience_s = patience_s
        self._notify = notify
        self._services: dict[str, _Service] = {}

    def note(self, scored: Scored) -> None:
        """Learns from a trajectory what is up and what is down."""
        if counts(scored):
            self._note_up(_SAMPLER, _REWARD)
        for record in scored.trajectory.calls:
            if record.result.outcome in _ANSWERS:
                self._note_up(f"tool {record.call.name!r}")
        cause = find_cause(scored)
        if cause is not None:
            service = self._services.setdefault(cause, _Service())
            service.down_since = service.down_since or time.monotonic()

    async def may_play_again(self, scored: Scored, num_tries: int) -> bool:
        """Whether a trajectory is to be played again; returns when it should be."""
        cause = find_cause(scored)
        if cause is None:
            return False
        service = self._services[cause]
        if cause == _SAMPLER or service.down_since is None:
            return num_tries < MAX_TRIES
        service.num_waiting += 1
        try:
            async with service.turn:
                return await self._wait(cause, service, scored, num_tries)
        finally:
            service.num_waiting -= 1

    async def _wait(self, cause: str, service: _Service, scored: Scored, num_tries: int) -> bool:
        """Pauses before the next try; no longer once the service is known to be up, or when patience is at its end."""
        if service.down_since is None:
            return num_tries < MAX_TRIES
        left_s = service.down_since + self._patience_s - time.monotonic()
        if left_s <= 0:
            self._give_up(cause, service, scored.trajectory.error)
            return False
        await asyncio.sleep(min(service.pause_s, left_s))
        if service.down_since is not None:
            service.pause_s = min(2 * service.pause_s, _LAST_PAUSE_S)
            self._report_down(cause, service, scored.trajectory.error)
        return True

    def _report_down(self, cause: str, service: _Service, error: str | None) -> None:
        assert service.down_since is not None, f"{cause} is up"
        down_s = time.monotonic() - service.down_since
        said = f"{cause} has been down for {down_s:.0f} s; {service.num_waiting} trajectories wait for it, at most "
        said += f"{self._patience_s:g} s in all (engine.outage_s). The last error: {error or _NO_VALUE}"
        service.is_reported = True
        self._notify("warning", said)

    def _give_up(self, cause: str, service: _Service, error: str | None) -> None:
        if not service.is_given_up:
            said = (
                f"{cause} has not answered for {self._patience_s:g} s (engine.outage_s): until it does, trajectories "
            )
            self._notify("warning", f"{said}that need it are left out at once. The last error: {error or _NO_VALUE}")
        service.is_given_up = True

    def _note_up(self, *causes: str) -> None:
        for cause in causes:
            service = self._services.get(cause)
            if service is None or service.down_since is None:
                continue
            if service.is_reported or service.is_given_up:
                self._notify("info", f"{cause} answers again after {time.monotonic() - service.down_since:.0f} s")
            service.down_since, service.pause_s = None, _FIRST_PAUSE_S
            service.is_reported = service.is_given_up = False
