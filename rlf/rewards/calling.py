"""Functions of users, called so that one that blocks, never ends or raises holds up nothing but its own value."""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import Context
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias

from rlf.core import RlfError
from rlf.core.callables import is_async, load_callable
from rlf.core.mistakes import blocking_calls
from rlf.core.text import describe

_Result: TypeAlias = tuple[Any, BaseException | None]
"""Value and error of a call that is over."""
_MAX_HUNG = 4
"""Calls that may be left running on threads of their own; then no more are made."""


def check_function(name: str) -> None:
    """Imports a function. Raises RlfError where it cannot be had, or would hold up every trajectory."""
    function = load_callable(name)
    blocking = blocking_calls(function) if is_async(function) else []
    if blocking:
        message = f"{name} is `async def` and calls {', '.join(blocking)}, which blocks every trajectory while it waits"
        raise RlfError(f"{message}. Await an asynchronous function, or write `def`.")


class TookTooLong(Exception):
    """A call that was not over in time."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"no value within {timeout_s:g} s")


class OwnFunction:
    """`async def` runs on the event loop, any number at once; anything else on a thread, one call at a time.

    A call that is not over in time is left behind with its thread, which is asked to end: this stops whatever runs
    Python; what waits in C ends when it wakes.
    """

    def __init__(self, name: str, timeout_s: float) -> None:
        """Imports it. Raises RlfError."""
        self.name = name
        self.function = load_callable(name)
        self.parameters = inspect.signature(self.function).parameters
        self._timeout_s = timeout_s
        self._one_at_a_time = asyncio.Lock()
        self._thread: _CallingThread | None = None
        self._num_hung = 0

    def taken(self, offered: Mapping[str, Any], *, after: int = 0) -> dict[str, Any]:
        """Those of the offered values that it has parameters for, the first `after` parameters aside."""
        first = list(self.parameters)[:after]
        takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in self.parameters.values())
        return {
            name: value
            for name, value in offered.items()
            if name not in first and (takes_all or name in self.parameters)
        }

    async def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Calls it and returns its value, awaited where it can be. Raises TookTooLong, and whatever it raises."""
        if is_async(self.function):
            return await _wait_within(self.function(*arguments, **keywords), self._timeout_s)
        value = await self._on_thread(partial(self.function, *arguments, **keywords))
        return await _wait_within(value, self._timeout_s) if inspect.isawaitable(value) else value

    async def _on_thread(self, call: Callable[[], Any]) -> Any:
        async with self._one_at_a_time:
            if self._num_hung >= _MAX_HUNG:
                raise RuntimeError(
                    f"{self._num_hung} calls of {self.name} are still running, so no further call is made"
                )
            loop = asyncio.get_running_loop()
            over: asyncio.Future[_Result] = loop.create_future()
            if self._thread is None or not self._thread.is_alive():  # as in a fork, which has one thread only
                self._thread = _CallingThread(self)
            thread = self._thread
            thread.calls.put(partial(_run_on_thread, call, loop, over))
            try:
                await asyncio.wait((over,), timeout=self._timeout_s)
            finally:
                if not over.done():  # late, or nobody waits for it any more
                    self._num_hung += 1
                    over.add_done_callback(self._ended_after_all)
                    self._thread = None
                    thread.calls.put(None)
                    _stop_thread(thread)
            return _read_result(over, self._timeout_s)

    def _ended_after_all(self, _: asyncio.Future[_Result]) -> None:
        self._num_hung -= 1


class _CallingThread(threading.Thread):
    """Makes the calls that it is given, one after the other, until it is given None or its owner is gone."""

    def __init__(self, owner: object) -> None:
        super().__init__(daemon=True)
        self.calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        weakref.finalize(owner, self.calls.put, None).atexit = False
        self.start()

    def run(self) -> None:
        while (call := self.calls.get()) is not None:
            Context().run(call)  # what a call sets is not there in the next


def _run_on_thread(call: Callable[[], Any], loop: asyncio.AbstractEventLoop, over: asyncio.Future[_Result]) -> None:
    """Calls on this thread and ends the future on its loop, even where it is stopped after the call is over."""
    try:
        _report(loop, over, _result_of(call))
    except SystemExit as stopped:  # raised once, at any step of this thread
        _report(loop, over, (None, stopped))


def _result_of(call: Callable[[], Any]) -> _Result:
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001 - a thread outlives SystemExit; raised where it is waited for
        return None, error


def _report(loop: asyncio.AbstractEventLoop, over: asyncio.Future[_Result], result: _Result) -> None:
    with suppress(RuntimeError):  # a loop that is gone has nobody waiting
        loop.call_soon_threadsafe(_end_future, over, result)


def _end_future(over: asyncio.Future[_Result], result: _Result) -> None:
    if not over.done():
        over.set_result(result)


def _stop_thread(thread: threading.Thread) -> None:
    """Has the thread raise SystemExit at its next step in Python. One that has ended left its id to others."""
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


async def _wait_within(awaitable: Awaitable[Any], timeout_s: float) -> Any:
    """Its result. A coroutine that swallows its cancellation is left behind, so the wait ends all the same."""
    task = asyncio.create_task(_await_result(awaitable))
    try:
        await asyncio.wait((task,), timeout=timeout_s)
        return _read_result(task, timeout_s)
    finally:
        task.cancel()


async def _await_result(awaitable: Awaitable[Any]) -> _Result:
    """Value and error of an awaitable; an error that left this task, as SystemExit, would stop the loop itself."""
    try:
        return await awaitable, None
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - raised where it is waited for
        return None, error


def _read_result(over: asyncio.Future[_Result], timeout_s: float) -> Any:
    """The value. Raises the error of the call, and TookTooLong where it is not over."""
    if not over.done():
        raise TookTooLong(timeout_s)
    value, error = over.result()
    if error is None:
        return value
    if issubclass(type(error), (Exception, SystemExit, KeyboardInterrupt)):
        raise error
    # such as the panic of a library in Rust, which would end the run past the caller
    raise RuntimeError(describe(error)) from error
