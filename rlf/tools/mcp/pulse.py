"""Whether the server of a session lives: by when it last answered something, be it a ping.

A call that is late may be so because of its arguments. One that is late while the server answers nothing at all is not
its own fault, unless it is the first and the server has read it: that one may be what the server hangs in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Final

from rlf.endpoints.attribution import CallFacts, Phase

HUNG_S: Final = 5.0
"""Time without an answer, a ping's included, after which a server that is late with a call is given up."""


class Pulse:
    """Of one session."""

    def __init__(self) -> None:
        self.is_unread: Callable[[], bool] = lambda: False
        """Whether the server has left unread some of what it was sent, as far as the transport knows."""
        self._heard_at = monotonic()
        self._heard = asyncio.Event()
        self._blames_one = False
        """Whether a call was late since the last answer that the server may hang in."""

    def hear(self) -> None:
        """The server has answered something."""
        self._heard_at = monotonic()
        self._heard.set()
        self._blames_one = False

    def judge_late(self, pinged_at: float) -> CallFacts:
        """What is known of a call whose time is up, and during which a ping was sent then."""
        if self._heard_at >= pinged_at:
            return CallFacts(Phase.SENT, is_late=True, is_cancelled=True)
        is_hung = self._blames_one or self.is_unread()
        self._blames_one = True
        return CallFacts(Phase.SENT, is_late=True, is_cancelled=True, is_hung=is_hung)

    async def is_heard_within(self, limit_s: float) -> bool:
        """Whether the server answers something from now on, in that time."""
        self._heard.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._heard.wait(), limit_s)
            return True
        return False
