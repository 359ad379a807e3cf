"""Python functions as tools: a call runs one, on the event loop or in another place."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from rlf.core.redact import clean
from rlf.tools.kind import CallContext, ToolRuntime
from rlf.tools.python.parameters import arguments_of, is_json_type
from rlf.types import ToolOutput

if TYPE_CHECKING:
    from rlf.tools.python.threads import OnThread

T = TypeVar("T")


Function: TypeAlias = Callable[..., Any]


class OnLoop:
    """On the event loop itself; what the function returns is awaited if it can be."""

    isolation = "inline"
    ends_when_cancelled = False
    num_abandoned = 0

    async def call(self, function: Function, arguments: Mapping[str, Any], finish: Callable[[Any], T]) -> T:
        """`finish` of what the function returns, both run in this place; raises what they raise."""
        value = function(**arguments)
        return finish(await value if isinstance(value, CoroutineType) else value)

    def close(self) -> None:
        """Holds nothing."""


Place: TypeAlias = "OnLoop | OnThread"
"""Runs functions."""


def adapt(function: Function) -> Function:
    """The function taking JSON arguments by name; itself where its types are JSON's own."""
    arguments, others = arguments_of(function)
    if all(
        is_json_type(one.annotation) and not one.is_positional for one in (*arguments, *([others] if others else []))
    ):
        return function
    from rlf.tools.misfits import ArgumentAdapter

    return ArgumentAdapter(function).bind(function)


class FunctionRuntime(ToolRuntime):
    """Calls a function."""

    def __init__(self, function: Callable[..., Any], place: Place) -> None:
        self._function = adapt(function)
        self._place = place
        self.isolation = place.isolation
        self.ends_when_cancelled = place.ends_when_cancelled
        self.held.callback(place.close)

    @property
    def num_abandoned(self) -> int:
        return self._place.num_abandoned

    def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> Coroutine[Any, Any, ToolOutput]:
        return self._place.call(self._function, arguments, _to_output)


def _to_output(value: Any) -> ToolOutput:
    if type(value) is str:  # most are
        return ToolOutput(clean(value))
    from rlf.tools.outputs import to_output

    return to_output(value)
