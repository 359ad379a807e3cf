"""Tools that are classes: one instance for a run, or one for each trajectory, opened at its first call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MethodType
from typing import Any

from rlf.core.callables import is_async
from rlf.core.clocks import Deadline
from rlf.tools.execution.detached import CancelledItself, DetachedTasks
from rlf.tools.kind import CallContext, ToolRuntime
from rlf.tools.misfits import ArgumentAdapter
from rlf.tools.outputs import to_output
from rlf.tools.python.functions import OnLoop, Place
from rlf.tools.results import ToolFailure, failure_by
from rlf.types import Outcome, ToolOutput

_CLOSE_S = 5.0
"""Time that an instance has to close when the run ends."""
_OPEN_S = 60.0
"""Time that an instance has to open, which is not the time of the call that waits for it."""


class _Held:
    """An instance, made at its first use. The lock keeps one call from using it before another has opened it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.instance: Any = None


class ClassRuntime(ToolRuntime):
    """Calls instances of a class: one for the whole run, or one for each trajectory, which has one call at a time."""

    def __init__(self, made_by: type[Any], place: Place, *, by_trajectory: bool) -> None:
        self._class = made_by
        self._adapter = ArgumentAdapter(MethodType(made_by.__call__, made_by))
        self._place = place
        self._by_trajectory = by_trajectory
        self._held: dict[str, _Held] = {}
        self._opening: DetachedTasks | None = None
        self.isolation = place.isolation

    @property
    def num_abandoned(self) -> int:
        return self._place.num_abandoned

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one call on the trajectory's instance, or on the run's."""
        held = self._held.setdefault(context.trajectory_id if self._by_trajectory else "", _Held())
        async with held.lock:
            if held.instance is None:  # in a process of its own, where nobody has made it ready
                held.instance = await self._open_instance()
            call = self._adapter.bind(held.instance)
            if self._by_trajectory:
                return await self._place.call(call, arguments, to_output)
        return await self._place.call(call, arguments, to_output)

    async def end_trajectory(self, trajectory_id: str) -> None:
        held = self._held.pop(trajectory_id, None) if self._by_trajectory else None
        if held is not None:
            await self._close_held(held)

    async def close(self) -> None:
        """Closes every instance, each within a time, then the place. Raises ToolFailure INFRA with what went wrong."""
        if self._opening is not None:
            await self._opening.close()
        detached, faults = DetachedTasks(), list[str]()
        while self._held:
            _, held = self._held.popitem()
            fault = await detached.fault_of(self._close_held(held), _CLOSE_S, f"closing {self._class.__name__}")
            if fault is not None:
                faults.append(failure_by(fault).text)
        await detached.close()
        self._place.close()
        if faults:
            more = f" ({len(faults)} instances in all)" if len(faults) > 1 else ""
            raise ToolFailure(Outcome.INFRA, f"closing a {self._class.__name__}: {faults[0]}{more}")

    async def make_ready(self, trajectory_id: str) -> None:
        """Opens the instance that the next call needs. Raises ToolFailure INFRA where it cannot be, or not in time."""
        held = self._held.setdefault(trajectory_id if self._by_trajectory else "", _Held())
        if held.instance is not None:
            return
        async with held.lock:
            if held.instance is not None:
                return
            self._opening = self._opening or DetachedTasks()
            try:
                held.instance = await self._opening.run(
                    self._open_instance(), Deadline(_OPEN_S), f"opening {self._class.__name__}"
                )
            except (TimeoutError, CancelledItself) as late:
                text = f"{self._class.__name__} cannot be opened: not ready within {_OPEN_S:g} s"
                raise ToolFailure(Outcome.INFRA, text) from late

    async def _open_instance(self) -> Any:
        """A new instance. A class that cannot be made is no fault of the call."""
        try:
            instance = await self._place.call(self._class, {}, _return_value)
            await self._call_method(instance, "open")
        except asyncio.CancelledError:
            raise
        except BaseException as fault:
            failure = failure_by(fault)
            outcome = failure.outcome if failure.outcome is Outcome.GONE else Outcome.INFRA
            raise ToolFailure(outcome, f"{self._class.__name__} cannot be opened: {failure.text}") from fault
        return instance

    async def _close_held(self, held: _Held) -> None:
        if held.instance is not None:
            await self._call_method(held.instance, "close")

    async def _call_method(self, instance: Any, name: str) -> None:
        method = getattr(instance, name, None)
        if method is not None:
            place = OnLoop() if is_async(method) else self._place
            await place.call(method, {}, _return_value)


def _return_value(value: Any) -> Any:
    return value
