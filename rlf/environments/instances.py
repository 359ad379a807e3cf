"""An instance of a user's class as a world, wherever it lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any, Protocol

from rlf.core.callables import is_async
from rlf.core.text import describe
from rlf.environments.classes import DONE, LIFE, REFUSALS, REWARD, reset_arguments, to_actions, to_scores
from rlf.environments.world import Step, World
from rlf.tools.execution.detached import CancelledItself
from rlf.tools.python.parameters import ArgumentAdapter
from rlf.tools.python.threads import ThreadPool
from rlf.tools.results import ToolFailure
from rlf.types import Outcome, Task, ToolCall, ToolDescription

UNFIT = "the world's code answers with something else than a result"


class Place(Protocol):
    """Where the instances of a class live."""

    @property
    def runs_on_loop(self) -> bool:
        """Whether any code of the class is awaited on the event loop, where it could swallow its cancellation."""

    async def make(self) -> Any:
        """Makes an instance, or a stand-in with its attributes."""

    async def call(self, instance: Any, call: ToolCall) -> Any:
        """Calls a tool's method. Raises its exception, or a ToolFailure with the same meaning."""

    async def live(self, instance: Any, name: str, **arguments: Any) -> Any:
        """Calls a lifecycle method; None where the class has no such method."""

    async def discard(self, instance: Any) -> None:
        """Releases what an instance holds, after its last call."""


class StandIn:
    """Has the attributes of an instance that lives elsewhere: methods of its life by signature, the end, the reward."""

    def __init__(self, made_by: Callable[..., Any], home: Any) -> None:
        self.home = home
        """Where the instance lives, as its place knows it."""
        for name in LIFE:
            if hasattr(made_by, name):
                setattr(self, name, MethodType(getattr(made_by, name), self))


def read_answer(stand_in: StandIn, answer: Any) -> Any:
    """The value of an answer from where an instance lives. Raises ToolFailure for a refusal, a fault and anything else.

    The class's own code may have made the answer: of the instance it changes nothing but its two attributes.
    """
    match answer:
        case {"refusal": str(text)}:
            raise ToolFailure(Outcome.TOOL_ERROR, text)
        case {"failure": (Outcome() as outcome, str(text))}:
            raise ToolFailure(outcome, text)
        case {"fault": str(text)}:
            raise ToolFailure(Outcome.INFRA, text)
        case {"value": value, "kept": dict(kept)} if kept.keys() <= {DONE, REWARD}:
            vars(stand_in).update(kept)
            return value
    raise ToolFailure(Outcome.INFRA, UNFIT)


async def make_class_world(place: Place) -> World:
    """A world of a class, with an instance of its own."""
    return ClassWorld(await place.make(), place)


def asynchronous_methods(made_by: Callable[..., Any]) -> frozenset[str]:
    """The public methods that are awaited."""
    public = [name for name in dir(made_by) if not name.startswith("_")]
    return frozenset(name for name in public if is_async(getattr(made_by, name)))


class ClassWorld(World):
    """An instance of the user's class."""

    def __init__(self, instance: Any, place: Place) -> None:
        self._instance, self._place = instance, place
        self.shows_state = hasattr(instance, "state")
        self.ends_when_cancelled = not place.runs_on_loop

    async def reset(self, task: Task, seed: int) -> str | None:
        given = reset_arguments(self._instance.reset, task, seed) if hasattr(self._instance, "reset") else {}
        said: str | None = await self._place.live(self._instance, "reset", **given)
        return said

    async def call(self, call: ToolCall) -> Step:
        try:
            return self._to_step(await self._place.call(self._instance, call))
        except REFUSALS as fault:
            raise ToolFailure(Outcome.TOOL_ERROR, describe(fault)) from fault

    async def reply(self, text: str) -> Step:
        return self._to_step(await self._place.live(self._instance, "reply", text=text))

    async def score(self) -> Mapping[str, float]:
        return to_scores(await self._place.live(self._instance, "score"), self._instance)

    async def gold(self) -> Sequence[ToolCall | str] | None:
        return to_actions(await self._place.live(self._instance, "gold")) if hasattr(self._instance, "gold") else None

    async def state(self) -> Any:
        return await self._place.live(self._instance, "state")

    async def snapshot(self) -> Any:
        return await self._place.live(self._instance, "snapshot")

    async def restore(self, snapshot: Any) -> None:
        await self._place.live(self._instance, "restore", snapshot=snapshot)

    async def close(self) -> None:
        try:
            await self._place.live(self._instance, "close")
        finally:
            await self._place.discard(self._instance)

    def _to_step(self, value: Any) -> Step:
        step = value if isinstance(value, Step) else Step(value)
        return step._replace(done=True) if getattr(self._instance, DONE, False) is True else step


class OwnProcess:
    """Makes instances of one class in this process, and runs their methods on threads or on the loop. A `Place`."""

    def __init__(
        self,
        made_by: Callable[..., Any],
        args: Mapping[str, Any],
        threads: ThreadPool | None,
        tools: Sequence[ToolDescription],
    ) -> None:
        self._made_by, self._args, self._threads = made_by, args, threads
        self._adapters = {
            tool.name: ArgumentAdapter(MethodType(getattr(made_by, tool.name), made_by)) for tool in tools
        }
        self._asynchronous = asynchronous_methods(made_by)

    @property
    def runs_on_loop(self) -> bool:
        """Whether any code of the class is awaited on the event loop, where it could swallow its cancellation."""
        return bool(self._asynchronous)

    async def make(self) -> Any:
        """An instance."""
        return await self._run(self._made_by, self._args)

    async def call(self, instance: Any, call: ToolCall) -> Any:
        """Calls a tool's method."""
        method = self._adapters[call.name].bind(getattr(instance, call.name))
        if call.name in self._asynchronous:
            return await method(**call.arguments)
        return await self._run(method, call.arguments)

    async def live(self, instance: Any, name: str, **arguments: Any) -> Any:
        """Calls a lifecycle method; None where the class has no such method."""
        method = getattr(instance, name, None)
        if method is None:
            return None
        return await (method(**arguments) if name in self._asynchronous else self._run(method, arguments))

    async def discard(self, instance: Any) -> None:
        """Does nothing: this process collects the instance."""

    async def _run(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Calls a plain function, and raises what it raises: a cancellation that nobody asked for as a fault."""

        def work() -> tuple[Any, BaseException | None]:
            try:
                return function(**arguments), None
            except BaseException as fault:  # noqa: BLE001 - a thread must outlive SystemExit
                return None, fault

        value, fault = work() if self._threads is None else await self._threads.run(work)
        if fault is not None and issubclass(type(fault), asyncio.CancelledError):
            raise CancelledItself from fault
        if fault is not None:
            raise fault
        return value
