"""The other end of `isolation: process`: a process that imports a world's class once, and forks for each instance.

A forked process makes an instance and runs its methods, one request after the other.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import random
import resource
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any

from rlf.core.callables import load_callable, load_module, locate, opened_files
from rlf.core.text import describe
from rlf.environments.instances import REFUSALS, import_shared, kept_attributes
from rlf.processes.forking import Serve, serve_forks
from rlf.sandbox.guest.wire import Bounds, pack, read_frame, set_apart, write_all
from rlf.tools.misfits import ArgumentAdapter
from rlf.tools.results import ToolFailure
from rlf.types import Outcome

REQUEST = Bounds(1000, 1 << 30)
_MAX_OPENED = 100
"""Files that one answer names; the next one names further ones."""


def _load_class(start: dict[str, Any]) -> Serve:
    """Imports the class and what else is imported once. Raises RlfError."""
    sys.path[:] = start["path"]
    made_by = load_callable(start["callable"])
    for place in start["imports"]:
        load_module(place)
    import_shared(made_by, start["args"])
    return lambda channel: _Served(made_by, start["args"], start["memory_mb"]).serve(channel)


class _Served:
    """An instance of the class, and the requests to it."""

    def __init__(self, made_by: Callable[..., Any], args: dict[str, Any], memory_mb: int | None) -> None:
        self._made_by, self._args, self._memory_mb = made_by, args, memory_mb
        self._adapters: dict[str, ArgumentAdapter] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._instance: Any = None
        self._num_opened = 0

    def serve(self, channel: socket.socket) -> None:
        """Answers requests until the channel is closed."""
        if self._memory_mb is not None:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + (self._memory_mb << 20)
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        end = set_apart(channel.detach())
        while (frame := read_frame(lambda size: os.read(end, size), REQUEST)) is not None:
            name, arguments = pickle.loads(frame.blobs[0])
            write_all(
                end, pack(frame.number, {}, [self._write_answer(name, arguments, Bounds(*frame.read()["bounds"]))])
            )

    def _write_answer(self, name: str, arguments: dict[str, Any], bounds: Bounds) -> bytes:
        answer = self._answer_request(name, arguments)
        opened = opened_files(self._num_opened)[:_MAX_OPENED]
        self._num_opened += len(opened)
        answer["opened"] = [path for _, path in opened]
        try:
            body = pickle.dumps(answer)
            why = bounds.excess(b"", [body])
        except Exception as fault:  # noqa: BLE001 - a value of the user's own may do anything
            why = describe(fault)
        return pickle.dumps({"fault": f"the result of {name!r} cannot leave its process: {why}"}) if why else body

    def _answer_request(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Calls a method; `__init__` makes the instance, `call NAME` calls it as a tool, `seed` is this process's."""
        method = name.removeprefix("call ")
        try:
            if name == "__init__":
                self._instance = self._made_by(**self._args)
                value = None
            elif name == "seed":
                value = random.seed(arguments["seed"])
            else:
                value = self._run_method(
                    self._bind_method(method) if method != name else getattr(self._instance, name), arguments
                )
        except REFUSALS as fault:
            return {"refusal" if method != name else "fault": describe(fault)}
        except ToolFailure as failure:
            return {"failure": (failure.outcome, failure.text)}
        except BaseException as fault:  # noqa: BLE001 - the class may raise anything
            where, missing = locate(fault)
            outcome = Outcome.GONE if missing else Outcome.INFRA
            return {"failure": (outcome, describe(fault) + where + missing)}
        return {"value": value, "kept": kept_attributes(self._instance)}

    def _bind_method(self, name: str) -> Callable[..., Any]:
        if name not in self._adapters:
            self._adapters[name] = ArgumentAdapter(MethodType(getattr(self._made_by, name), self._made_by))
        return self._adapters[name].bind(getattr(self._instance, name))

    def _run_method(self, method: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        value = method(**arguments)
        if not inspect.iscoroutine(value):
            return value
        self._loop = self._loop or asyncio.new_event_loop()
        return self._loop.run_until_complete(value)


if __name__ == "__main__":
    serve_forks(_load_class)
