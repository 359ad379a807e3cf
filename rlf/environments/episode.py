"""The life of one world: made, reset, called, answered, scored, closed; each within its time.

What a world does is bounded by its deadlines whatever it does, and what it raises becomes a `WorldFailure` that names
the world and the phase. A world that failed once is asked for nothing more than to close.
"""

from __future__ import annotations

import asyncio
import logging
import math
import pickle
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from rlf.core.callables import locate
from rlf.core.clocks import Deadline, Timers, clock
from rlf.core.redact import clean
from rlf.core.text import describe, shorten
from rlf.environments.kind import EnvSpec
from rlf.environments.world import MakeWorld, Step, World, describe_difference, hash_state, plain_state
from rlf.tools.execution.detached import DetachedTasks
from rlf.tools.outputs import to_output
from rlf.tools.results import ToolFailure, failure_by
from rlf.types import (
    Outcome,
    Phase,
    StateChange,
    Task,
    ToolCall,
    ToolOutput,
    Turn,
    WorldFailure,
    WorldRecord,
    WorldStep,
)

logger = logging.getLogger(__name__)
T = TypeVar("T")
CLOSE_S = 5.0
"""Time that a world has to close."""
_MAX_FIRST_STATES = 64
"""Tasks of which a first state is kept: trajectories of one task begin at about the same time."""


class _First(NamedTuple):
    """A world as a task's first reset left it."""

    taken: bytes
    said: str | None
    state: str
    """Hash; empty where the world shows none."""


class FirstStates:
    """What resets lead to: of worlds that copy themselves, a task's first one is reset, and the others begin as it did.

    A copy is compared with what it was taken of, by the state that the world shows. Once one differs, or cannot be
    taken, each world is reset.
    """

    def __init__(self, *, are_copied: bool) -> None:
        self._found: dict[tuple[str, int], asyncio.Future[_First | None]] = {}
        self._are_copied = are_copied

    async def begin(self, world: World, task: Task, seed: int) -> tuple[str | None, bool]:
        """Brings a new world to a task's first state: what it says, and whether it is as it should be."""
        if not (world.begins_by_copy and self._are_copied):
            return await world.reset(task, seed), True
        if (known := self._found.get((task.id, seed))) is None:
            return await self._take(world, task, seed), True
        if (first := await asyncio.shield(known)) is None:  # the first one's reset failed, or it has no copy
            return await world.reset(task, seed), True
        await world.restore(pickle.loads(first.taken))
        is_same = not first.state or first.state == hash_state(plain_state(await world.state()))
        if not is_same:
            self._end_copies("restore leads to another state than reset")
        return first.said, is_same

    async def _take(self, world: World, task: Task, seed: int) -> str | None:
        while len(self._found) >= _MAX_FIRST_STATES:
            del self._found[next(iter(self._found))]
        found = self._found[task.id, seed] = asyncio.get_running_loop().create_future()
        first = None
        try:
            said = await world.reset(task, seed)
            try:
                if (taken := await world.snapshot()) is not None:
                    state = hash_state(plain_state(await world.state())) if world.shows_state else ""
                    first = _First(pickle.dumps(taken), said, state)  # what the world changes is no part of it
            except Exception as fault:  # noqa: BLE001 - the user's own code, and the world itself is sound
                self._end_copies(f"snapshot: {failure_by(fault).text}")
            return said
        finally:
            found.set_result(first)
            if first is None and self._found.get((task.id, seed)) is found:
                del self._found[task.id, seed]

    def _end_copies(self, fault: str) -> None:
        if self._are_copied:
            self._are_copied = False
            logger.warning("world: %s. Each world is reset from here on; `rlf env prove` looks at copies", fault)


class WorldEpisode:
    """The world of one trajectory. An `Episode`."""

    def __init__(
        self,
        spec: EnvSpec,
        task: Task,
        seed: int,
        *,
        name: str | None = None,
        speaks: bool,
        make: MakeWorld,
        firsts: FirstStates,
        permits: asyncio.Semaphore,
        detached: DetachedTasks,
        timers: Timers,
        redact: Callable[[str], str],
        forget: Callable[[WorldEpisode, str | None], object],
    ) -> None:
        """Takes what the worlds of a run share.

        Args:
            name: its name, where there are several worlds.
            speaks: whether it may answer turns that call nothing.
            permits: one for each world that there may be.
            redact: strikes secrets out of what the world says.
            forget: called with the episode when it is closed, and with what went wrong then.
        """
        self._spec, self._task, self._seed, self._make, self._firsts = spec, task, seed, make, firsts
        # Permits are of worlds and not of calls: what a world holds, a process or a server's session, it holds while
        # the policy thinks, and the number of those is what the machine bounds.
        self._permits, self._detached, self._timers = permits, detached, timers
        self._redact, self._forget = redact, forget
        self._names = frozenset(tool.name for tool in spec.tools)
        self._world: World | None = None
        self._has_permit = False
        self._begun: asyncio.Task[str | None] | None = None
        """The reset, where it began before it was asked for."""
        self._state: Any = None
        self._changes: list[StateChange] = []
        self._reward: float | None = None
        self._reply: str | None = None
        self._is_over = False
        self._num_calls = 0
        """Calls since the last step was taken."""
        self.speaks = speaks
        self._world_s = 0.0
        self._failed: Phase | None = None
        self._kept = WorldRecord(spec.kind, name)
        self._called = name or spec.kind

    @property
    def record(self) -> WorldRecord:
        """The record of the world so far."""
        return replace(self._kept, failed=self._failed, world_s=self._world_s)

    @property
    def state(self) -> Any:
        """The world's state after the last step, as JSON values; None where it shows none."""
        return self._state

    def owns(self, tool: str) -> bool:
        """Whether a tool is the world's."""
        return tool in self._names

    def begin(self) -> None:
        """Begins the reset, which `reset` then waits for."""
        self._begun = asyncio.create_task(self._reset())

    async def reset(self) -> str | None:
        """Waits for a permit, then makes the world and resets it. Raises WorldFailure."""
        return await (self._reset() if self._begun is None else self._begun)

    async def _reset(self) -> str | None:
        # The wait for a permit has no part in reset_s: it is as long as other trajectories play.
        await self._permits.acquire()
        self._has_permit = True
        observation = await self._run_within(Phase.RESET, self._start_world(), self._spec.limits.reset_s)
        self._kept = replace(self._kept, observation=observation)
        return observation

    async def _start_world(self) -> str | None:
        world = self._world = await self._make()  # kept at once, so that `close` ends it where its reset fails
        said, is_same = await self._firsts.begin(world, self._task, self._seed)
        if not is_same:
            await world.close()
            return await self._start_world()
        if world.shows_state:
            self._state = plain_state(await world.state())
            self._kept = replace(self._kept, first_state=hash_state(self._state))
        return self._read_text(said)

    async def call(self, call: ToolCall) -> ToolOutput:
        """Runs a call. Raises ToolFailure for one that is refused, and with `infra` or `gone` for a failed world."""
        # Counted before anything can fail: a refused call has a place too, by which changes are found again.
        place, self._num_calls = self._num_calls, self._num_calls + 1
        try:
            return await self._run_within(Phase.STEP, self._run_call(call, place), self._spec.limits.step_s)
        except WorldFailure as failure:
            raise ToolFailure(Outcome.GONE if failure.is_gone else Outcome.INFRA, str(failure)) from failure

    async def _run_call(self, call: ToolCall, place: int) -> ToolOutput:
        world = self._open_world()
        try:
            step = await world.call(call)
        except ToolFailure as refusal:
            if not refusal.outcome.is_infrastructure:  # a world that broke has no state that could be asked for
                await self._note_state(world, place)
            raise
        # The state before the reward: a reward that is no number fails the call, whose change is on record by then.
        await self._note_state(world, place)
        self._note_step(step)
        return to_output(step.said)

    async def reply(self, text: str) -> None:
        """Lets the world answer a turn that calls nothing. Raises WorldFailure."""
        self._reply = await self._run_within(Phase.REPLY, self._answer_reply(text), self._spec.limits.step_s)

    async def _answer_reply(self, text: str) -> str | None:
        world = self._open_world()
        step = await world.reply(text)
        await self._note_state(world, None)
        self._note_step(step)
        return self._read_text(step.said)

    def take_step(self) -> WorldStep:
        """The changes by calls and the reply since the last call of this method."""
        step = WorldStep(tuple(self._changes), self._reward, self._reply, self._is_over)
        self._changes, self._reward, self._reply, self._num_calls = [], None, None, 0
        return step

    async def score(self, turns: Sequence[Turn] = ()) -> None:
        """Scores the final state, and what the model wrote. Raises WorldFailure."""
        scores = await self._run_within(Phase.SCORE, self._read_scores(turns), self._spec.limits.score_s)
        kept = self._state if self._spec.keep_state else None
        self._kept = replace(self._kept, scores=scores, final_state=kept)

    async def _read_scores(self, turns: Sequence[Turn]) -> Mapping[str, float]:
        if turns:
            await self._open_world().review(turns)
        scores = {clean(name): float(value) for name, value in (await self._open_world().score()).items()}
        for name, value in scores.items():
            if not math.isfinite(value):
                raise ValueError(f"got {value} for {name!r}; expected a finite number")
        return scores

    async def gold(self) -> Sequence[ToolCall | str] | None:
        """The task's solution, for trials of worlds. Raises WorldFailure."""
        return await self._run_within(Phase.SCORE, self._open_world().gold(), self._spec.limits.score_s)

    async def close(self) -> None:
        """Closes the world within a time of its own."""
        if self._begun is not None:
            self._begun.cancel()
            # Waited for: until its reset has ended the world may be made still, and would belong to nobody.
            await asyncio.wait([self._begun])
            if not self._begun.cancelled():
                self._begun.exception()  # of a reset that nobody asked for
        (world, self._world), words = (self._world, None), None
        try:
            if world is not None:
                fault = await self._detached.fault_of(world.close(), CLOSE_S, f"world {self._called}")
                if fault is not None:
                    words = self._say_fault(describe_late(fault, CLOSE_S))
        finally:
            # Also when this is cancelled: a permit that is not given back is one world less until the run's end.
            self._forget(self, words)
            if self._has_permit:
                self._has_permit = False
                self._permits.release()

    def _open_world(self) -> World:
        if self._world is None:
            raise RuntimeError("it is not reset, or closed")
        return self._world

    def _note_step(self, step: Step) -> None:
        if step.reward is not None:
            reward = float(step.reward)
            if not math.isfinite(reward):
                raise ValueError(f"got {reward} as the reward of a step; expected a finite number")
            self._reward = (self._reward or 0.0) + reward
        self._is_over |= bool(step.done)

    async def _note_state(self, world: World, call: int | None) -> None:
        """Records a change of the state, where there is one; a refused call may have made one too."""
        if not world.shows_state:
            return
        state = plain_state(await world.state())
        if state != self._state:
            difference = self._redact(describe_difference(self._state, state))
            self._changes.append(StateChange(call, hash_state(state), difference))
            self._state = state

    def _read_text(self, said: Any) -> str | None:
        """The world's words as a text that a prompt can hold."""
        if said is not None and not isinstance(said, str):
            raise TypeError(f"got {type(said).__name__}; expected text or None")
        return None if said is None else self._redact(clean(said))

    async def _run_within(self, phase: Phase, work: Coroutine[Any, Any, T], limit_s: float) -> T:
        """Runs work of the world within its time. Raises WorldFailure; a ToolFailure of a call as it is."""
        left_s = self._spec.limits.episode_s - self._world_s
        if self._failed is not None or left_s <= 0:
            work.close()  # or Python warns of a coroutine that nobody awaited
            words = f"episode_s of {self._spec.limits.episode_s:g} s is used up" if left_s <= 0 else "failed before"
            raise self._make_failure(phase, words)
        # By the clock that stands still while rlf is stopped: a night asleep is no time that the world took.
        started = clock.now()
        try:
            # The rest of the episode bounds each phase: many steps that are each in time must not add up to hours.
            return await self._run_bounded(work, min(limit_s, left_s))
        except (asyncio.CancelledError, WorldFailure):  # the trajectory is given up, or it has failed before
            raise
        except TimeoutError as late:
            name = f"{phase}_s" if phase is not Phase.REPLY else "step_s"
            words = f"not finished within {name} of {limit_s:g} s" if limit_s <= left_s else "episode_s is used up"
            raise self._make_failure(phase, words) from late
        except ToolFailure as refusal:
            if phase is Phase.STEP and not refusal.outcome.is_infrastructure:
                raise
            raise self._make_failure(phase, refusal.text, is_gone=refusal.outcome is Outcome.GONE) from refusal
        except BaseException as fault:  # SystemExit on a task would stop the loop itself
            where, missing = locate(fault)
            raise self._make_failure(phase, describe(fault), where + missing, is_gone=bool(missing)) from fault
        finally:
            self._world_s += clock.now() - started

    async def _run_bounded(self, work: Coroutine[Any, Any, T], limit_s: float) -> T:
        """The work's result. Raises TimeoutError when time is up, whatever the work does."""
        # Code of a world on this loop may swallow its cancellation and is left behind then; a process is killed.
        if self._world is not None and self._world.ends_when_cancelled:
            with self._timers.within(limit_s):
                done = await _catch_fault(work)
        else:
            done = await self._detached.run(_catch_fault(work), Deadline(limit_s), f"world {self._called}")
        if isinstance(done, _Raised):
            raise done.fault
        return done

    def _make_failure(self, phase: Phase, reason: str, where: str = "", *, is_gone: bool = False) -> WorldFailure:
        self._failed = self._failed or phase  # the first: what follows it is often only its consequence
        return WorldFailure(self._called, phase, self._say_fault(reason) + where, is_gone=is_gone)

    def _say_fault(self, reason: str) -> str:
        """What went wrong as anyone reads it: valid, without secrets, and cut where none can be halved any more."""
        return shorten(self._redact(clean(reason)))


def describe_late(fault: BaseException, limit_s: float) -> str:
    """Describes a missed deadline."""
    return f"no end within {limit_s:g} s" if issubclass(type(fault), TimeoutError) else failure_by(fault).text


class _Raised:
    """Carries an exception."""

    def __init__(self, fault: BaseException) -> None:
        self.fault = fault


async def _catch_fault(work: Coroutine[Any, Any, T]) -> T | _Raised:
    """The result, or what was raised: a task that ends in TimeoutError of the world's own is not late."""
    try:
        return await work
    except asyncio.CancelledError:
        raise
    except TimeoutError as fault:
        return _Raised(RuntimeError(describe(fault)))
    except BaseException as fault:  # noqa: BLE001 - raised again by who waits
        return _Raised(fault)
