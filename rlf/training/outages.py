"""Outages: what broke a trajectory outside the policy, whether it is worth playing again, and when a run stops.

While a tool or a reward term is down, those that need it wait, and one after the other tries whether it is back. What
is down for one trajectory and answers others is not waited for. A step and an evaluation are made without the
trajectories that nothing helped, as long as these are few (`find_excess`); else the run stops, so that it neither
trains on a remnant nor puts checkpoints of one in place of good ones.

Invariant: no step is made that lost more than `find_excess` allows.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from rlf.core.errors import OutageError
from rlf.rewards.term import Term
from rlf.rollout.rollout import tool_name, world_name
from rlf.training.counting import counts, find_cause, term_cause, term_name
from rlf.types.score import Scored, ScoreState
from rlf.types.tool import Outcome
from rlf.types.trajectory import AGENT, SAMPLER, MissingRewardCause

logger = logging.getLogger(__name__)

MAX_TRIES = 3
"""How often a trajectory is played while what broke it answers other calls."""
_FIRST_PAUSE_S = 1.0
_LAST_PAUSE_S = 30.0
_MAX_ERROR_CHARS = 500
_MOST_LOST, _MOST_LOST_TO_ONE = 1 / 2, 1 / 8
"""Share of a collection that may be left out, and of it to one cause that is down."""
_Signs: TypeAlias = list[tuple[str, float]]
"""Causes, each with when it answered or failed, by the monotonic clock."""
_ANSWERS = frozenset({Outcome.OK, Outcome.TOOL_ERROR, Outcome.OUTPUT_REJECTED})
"""Outcomes that show a tool to be up."""


class Broken(NamedTuple):
    """A trajectory of a collection that is left out, since something outside the policy broke it."""

    cause: str
    task: str


def find_excess(broken: Sequence[Broken], num_all: int, down: Collection[str]) -> str | None:
    """The cause that takes more trajectories than a step or an evaluation may lose; None where it may be made.

    It may lose half. To a cause that answers nobody it may lose an eighth, or one task's, whose content may be why: the
    rest would be those trajectories that did not need it.

    Args:
        num_all: trajectories of the whole step or evaluation.
        down: the causes that answer nobody.
    """
    numbers = Counter(each.cause for each in broken)
    for cause, number in numbers.most_common():
        num_hit = len({each.task for each in broken if each.cause == cause})
        if cause in down and number > _MOST_LOST_TO_ONE * num_all and num_hit > 1:
            return cause
    return numbers.most_common(1)[0][0] if len(broken) > _MOST_LOST * num_all else None


MayLeaveOut = Callable[[Broken, Collection[str]], Awaitable[bool]]
"""Takes a trajectory that is to be left out and what is down; whether its step can be made without it."""


@dataclass(slots=True)
class Tries:
    """The tries of one trajectory."""

    since: float = field(default_factory=time.monotonic)
    """When the last try was over; at first when the first begins."""
    num: int = 0
    """Tries so far."""
    num_answered: int = 0
    """Those since whose beginning what broke them has answered some call."""
    overdue_since: float | None = None
    """When it had been tried often enough, and could not be left out; None before that."""


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

    def __init__(self, patience_s: float, notify: Callable[[str, str], None], terms: Iterable[Term] = ()) -> None:
        """Everything is up.

        Args:
            patience_s: how long trajectories wait for what is down before they are left out.
            notify: takes a level and what happened, for the run's events.
            terms: of the reward; while one that others are summed without is down, trajectories wait for it too.
        """
        self._patience_s = patience_s
        self._notify = notify
        self._weight_by_droppable = {
            term.name: term.weight_at(1) or term.peak_weight for term in terms if term.is_droppable
        }
        self._services: dict[str, _Service] = {}

    def note(self, scored: Scored, began: float) -> None:
        """Learns from a trajectory what is up and what is down.

        Args:
            began: when it began, by the monotonic clock: a call that ended before another failed shows nothing.
        """
        now = time.monotonic()
        answered, failed = _tell_apart(scored, began, now)
        for name, at in answered:
            self._note_answer(name, at)
        for name, at in failed:
            self._note_failure(name, at)

    async def may_play_again(self, scored: Scored, tries: Tries, may_leave_out: MayLeaveOut) -> bool:
        """Whether a trajectory is to be played again; returns when it should be.

        Args:
            may_leave_out: asked before it is not.

        Raises:
            OutageError: it can be neither played nor left out.
        """
        cause = self._find_cause(scored)
        if cause is None or not cause.may_pass:
            return False
        service = self._service(cause.name)
        tries.num += 1
        tries.num_answered += service.answered_at > tries.since
        tries.since = time.monotonic()
        if find_cause(scored) is None and (service.down_since is None or tries.num_answered):
            return False  # the term answers others, and this trajectory has a reward without it
        broken = Broken(cause.name, scored.trajectory.task.id)
        if (tries.num if cause.name == SAMPLER else tries.num_answered) >= MAX_TRIES:
            if await may_leave_out(broken, ()):
                return False
            tries.overdue_since = tries.overdue_since or tries.since
            if tries.since - tries.overdue_since > self._patience_s:
                raise self._stop(cause, is_up=True)
            self._note_failure(cause.name, time.monotonic())  # from now on it is waited for: too many are left out
        elif cause.name == SAMPLER or service.down_since is None:
            return True
        service.num_waiting += 1
        try:
            async with service.turn:
                if await self._wait(cause, service):
                    return True
        finally:
            service.num_waiting -= 1
        if not await may_leave_out(broken, (cause.name,)):
            raise self._stop(cause)
        self._give_up(cause, service)
        return False

    def note_now(self, scored: Scored) -> None:
        """`note` for a trajectory that was scored as soon as it was over."""
        self.note(scored, time.monotonic() - scored.trajectory.duration_s)

    async def play_broken_again(
        self,
        scored: Sequence[Scored],
        play: Callable[[Sequence[int]], Awaitable[Sequence[Scored]]],
        cut_off: Callable[[list[Scored]], None],
    ) -> tuple[list[Scored], list[Scored]]:
        """The trajectories of a whole collection, those that an outage broke played again when it is over.

        Where few are broken, they stay as they are. Those of one task try whether a cause that is down answers before
        the others; what answers others is asked by all at once.

        Args:
            scored: all of them; `note_now` has seen each.
            play: plays those at some places again, and lets `note_now` see them. It gives fewer where a budget is
                spent; what is broken then stays so.
            cut_off: takes all that was played, where the run stops or the pause is cancelled.

        Returns:
            The collection, and the tries that others replaced.

        Raises:
            OutageError: too many stay broken.
        """
        found, replaced, since = list(scored), list[Scored](), time.monotonic()
        try:
            while (excess := self.find_excess(found)) is not None:
                places = self._places_to_play(found, excess)
                # Else what answers now and then would be played again for ever: each answer ends an outage.
                is_up = self._service(excess.name).down_since is None
                if is_up and time.monotonic() - since > self._patience_s:
                    raise self._stop(excess, is_up=True)
                await self._pause(excess, len(places))
                task = next(found[at].trajectory.task.id for at in places if self._is_broken_by(found[at], excess))
                first = [at for at in places if is_up or found[at].trajectory.task.id == task]
                for at in filter(None, (first, [at for at in places if at not in first])):
                    again = await play(at)
                    if len(again) < len(at):
                        return found, [*replaced, *again]
                    for place, item in zip(at, again, strict=True):
                        replaced.append(self.as_broken(found[place]))
                        found[place] = item
                    if any(self._is_broken_by(found[place], excess) for place in first):
                        break
        except BaseException:
            cut_off([*replaced, *found])
            raise
        return found, replaced

    async def _pause(self, cause: MissingRewardCause, num_waiting: int) -> None:
        """Waits before what broke too much is tried again. Raises OutageError when patience is at its end."""
        service = self._service(cause.name)
        service.num_waiting = num_waiting
        if service.down_since is None:  # it answers now and then, which is too seldom
            self._note_failure(cause.name, time.monotonic())
        if not await self._wait(cause, service):
            raise self._stop(cause)

    def find_excess(self, scored: Sequence[Scored]) -> MissingRewardCause | None:
        """What broke more of a whole collection than it may lose; `note_now` has seen each of its trajectories."""
        causes = [(self._find_cause(item), item) for item in scored]
        passing = [(cause, item) for cause, item in causes if cause is not None and cause.may_pass]
        answering = {name for item in scored for name, _ in _tell_apart(item, 0, 0)[0]}
        down = {cause.name for cause, _ in passing if self._service(cause.name).down_since is not None} - answering
        # What has a reward without a term is lost only where the term is down: else one that fails for some is dropped.
        passing = [(cause, item) for cause, item in passing if cause.name in down or find_cause(item) is not None]
        broken = [Broken(cause.name, item.trajectory.task.id) for cause, item in passing]
        name = find_excess(broken, len(scored), down)
        return next((cause for cause, _ in reversed(passing) if cause.name == name), None)

    def _find_cause(self, scored: Scored) -> MissingRewardCause | None:
        """What broke a trajectory, or took a term from a reward that is summed without it."""
        found = find_cause(scored)
        if found is not None or scored.reward is None:
            return found
        lost = (each for each in scored.scores if each.state.may_pass and each.term in self._weight_by_droppable)
        return next(map(term_cause, lost), None)

    def as_broken(self, scored: Scored) -> Scored:
        """A try that another replaces: it has no reward, also where terms were summed without the one that was down."""
        weights = self._weight_by_droppable
        scores = tuple(
            replace(each, weight=weights[each.term]) if each.is_dropped and each.term in weights else each
            for each in scored.scores
        )
        return replace(scored, scores=scores, reward=None)

    def _is_broken_by(self, scored: Scored, cause: MissingRewardCause) -> bool:
        found = self._find_cause(scored)
        return found is not None and found.name == cause.name

    def _places_to_play(self, scored: Iterable[Scored], excess: MissingRewardCause) -> list[int]:
        """Of the trajectories that may count another time, or with a term that was down."""
        causes = [(self._find_cause(item), find_cause(item) is None) for item in scored]
        return [
            at
            for at, (cause, is_dropped) in enumerate(causes)
            if cause is not None and cause.may_pass and (cause.name == excess.name or not is_dropped)
        ]

    async def _wait(self, cause: MissingRewardCause, service: _Service) -> bool:
        """Pauses before the next try, until the service is known to be up; False where patience is at its end."""
        if service.down_since is None:
            return True
        left_s = service.down_since + self._patience_s - time.monotonic()
        if left_s <= 0 or cause.is_gone:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(min(service.pause_s, left_s)):
                await service.is_back.wait()
        if service.down_since is not None:
            service.pause_s = min(2 * service.pause_s, _LAST_PAUSE_S)
            self._report_down(cause, service)
        return True

    def _report_down(self, cause: MissingRewardCause, service: _Service) -> None:
        assert service.down_since is not None, f"{cause.name} is up"
        down_s = time.monotonic() - service.down_since
        waiting = "1 trajectory waits" if service.num_waiting == 1 else f"{service.num_waiting} trajectories wait"
        most = f"{self._patience_s:g} s in all (engine.outage_s)"
        service.is_reported = True
        text = f"{cause.name} has been down for {down_s:.0f} s; {waiting} for it, at most {most}. {last_error(cause)}"
        self._notify("warning", text)

    def _give_up(self, cause: MissingRewardCause, service: _Service) -> None:
        if not service.is_given_up:
            text = (
                f"{cause.name} {self._describe_wait(cause)}: until it does, "
                "trajectories that need it are left out immediately, an eighth of a step at most"
            )
            self._notify("warning", f"{text}. {last_error(cause)}")
        service.is_given_up = True

    def _stop(self, cause: MissingRewardCause, *, is_up: bool = False) -> OutageError:
        """Why the run stops. Args: is_up: whether the cause answers others."""
        return OutageError(
            f"{cause.name} {self._describe_wait(cause, is_up=is_up)}, and too few trajectories "
            f"are left without it: nothing is trained on them. {last_error(cause)}. When it answers, continue with "
            "`rlf resume`."
        )

    def _describe_wait(self, cause: MissingRewardCause, *, is_up: bool = False) -> str:
        if cause.is_gone:
            return "does not answer and is not waited for"
        seen = "has answered too seldom for" if is_up else "has not answered for"
        return f"{seen} {self._patience_s:g} s (engine.outage_s)"

    def _service(self, cause: str) -> _Service:
        found = self._services.get(cause)
        return self._services.setdefault(cause, _Service()) if found is None else found

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


def _tell_apart(scored: Scored, began: float, now: float) -> tuple[_Signs, _Signs]:
    """What answered a trajectory and what failed it, each with when: now, or for a call by the times of its turns."""
    answered: _Signs = [(SAMPLER, now), (AGENT, now)] if counts(scored) else []
    failed: _Signs = []
    for score in scored.scores:
        if score.state is ScoreState.SCORED and (score.usage is None or score.usage.num_requests):
            answered.append((term_name(score.term), now))
        elif score.state.may_pass:
            failed.append((term_name(score.term), now))
    ended = began
    for turn in scored.trajectory.turns:
        ended += turn.sample_s + turn.tools_s
        for record in turn.calls:
            if record.result.outcome in _ANSWERS and not record.result.cached:
                answered.append((tool_name(record.call.name), ended))
            elif record.result.outcome.is_infrastructure:
                failed.append((tool_name(record.call.name), ended))
    world = scored.trajectory.world
    if world is not None and world.failed is None:
        answered.append((world_name(world), now))
    cause = find_cause(scored) if scored.reward is None else None
    named = (SAMPLER, AGENT) if world is None else (SAMPLER, AGENT, world_name(world))
    if cause is not None and cause.may_pass and cause.name in named:
        failed.append((cause.name, now))
    return answered, failed


def last_error(cause: MissingRewardCause) -> str:
    """One line of bounded length, since it is read back from a job's output."""
    return f"The last error: {' '.join(cause.error.split())[:_MAX_ERROR_CHARS] or 'none was given'}"
