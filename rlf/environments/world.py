"""The world of one trajectory, as a kind implements it, and its states.

A kind knows its world and nothing of deadlines, permits, records or models: the pool has these, the same for every
kind. All methods but `close` may raise: a `ToolFailure` out of `call` is a refusal that the model reads, anything
else is the world's own failure.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rlf.core.identity import hash_bytes
from rlf.core.redact import clean
from rlf.tools.outputs import json_text
from rlf.types import Task, ToolCall, ToolDescription, Turn

ANY_ARGUMENTS = {"type": "object", "additionalProperties": True}
"""Schema of a tool that rows describe in different ways: what is wrong with a call, it says itself."""


class Step(NamedTuple):
    """Result of a call, or of a turn without calls."""

    said: Any
    """Of a call: text, a `ToolOutput`, or any value that JSON can write. Of a reply: text; None: nothing."""
    reward: float | None = None
    """For this step alone; None: the world gives none."""
    done: bool = False
    """Whether the episode is over."""


class World(ABC):
    """One world. Its methods are awaited one after the other, never side by side."""

    ends_when_cancelled: bool = False
    """Whether no code of others runs on the event loop, so that a cancelled call ends at once."""
    shows_state: bool = False
    """Whether `state` gives something: it is asked after the reset and after every step."""
    begins_by_copy: bool = False
    """Whether a task's worlds but the first may begin with its `snapshot`, where that is less work than `reset`."""

    @abstractmethod
    async def reset(self, task: Task, seed: int) -> str | None:
        """Brings the world to the first state of a task, once. Returns its first text, or None.

        Args:
            seed: the same for all trajectories of a task, so that their worlds begin equal.
        """

    async def call(self, call: ToolCall) -> Step:
        """Runs one call of a tool of the world, whose arguments satisfy its schema.

        Raises:
            ToolFailure: the call is refused; the model reads why, and the world goes on.
        """
        raise NotImplementedError(f"{type(self).__name__} has no tools")

    async def reply(self, text: str) -> Step:
        """Answers a turn that calls nothing; of worlds that speak."""
        return Step(None)

    async def review(self, turns: Sequence[Turn]) -> None:  # noqa: B027 - most score their state alone
        """Takes what the model wrote, refused calls included, before `score`; not asked where nothing was sampled."""

    @abstractmethod
    async def score(self) -> Mapping[str, float]:
        """Scores of the state as it is, by name. The world is asked once, at the end."""

    async def gold(self) -> Sequence[ToolCall | str] | None:
        """Calls and answers that solve the task from its first state; None where they are not known.

        For tests of worlds alone: asked after `reset`, and never shown to a policy.
        """
        return None

    async def state(self) -> Any:
        """The state as JSON values: equal where the worlds are equal. A large one by hashes of its parts."""
        return None

    async def snapshot(self) -> Any:
        """The world as a value that pickle takes and that nothing changes; None if it has none."""
        return None

    async def restore(self, snapshot: Any) -> None:
        """Brings a new world to a `snapshot`, instead of `reset`."""
        raise NotImplementedError(f"{type(self).__name__} has no snapshots")

    async def close(self) -> None:  # noqa: B027 - most worlds hold nothing
        """Releases what the world holds, in any state; called once, also without a reset."""


MakeWorld = Callable[[], Coroutine[Any, Any, World]]
"""Makes a new world of an open kind, which is then reset once. Counts as a part of the reset."""


def read_document(document: Mapping[str, Any]) -> ToolDescription:
    """A tool from its document, in OpenAI's form or without its envelope."""
    function = document.get("function", document)
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return ToolDescription(function["name"], function.get("description") or "", schema)


# States as JSON values: their hash, what differs between two of them, and values that a row fills.

_MAX_LINES = 20
_MAX_VALUE_CHARS = 80
_ABSENT = object()


def plain_state(state: Any) -> Any:
    """A state as JSON values. Raises TypeError or ValueError for a value that JSON cannot hold."""
    return json.loads(clean(json_text(state)))


def hash_state(state: Any) -> str:
    """sha256 of a plain state: equal for equal states, on any machine."""
    return hash_bytes(json.dumps(state, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())


def describe_difference(before: Any, after: Any) -> str:
    """Describes how two plain states differ, a line for each value: `orders.7.status: "open" -> "cancelled"`."""
    lines = []
    for number, line in enumerate(_iterate_differences(before, after, "")):
        if number == _MAX_LINES:
            lines.append("...")
            break
        lines.append(line)
    return "\n".join(lines)


def _iterate_differences(before: Any, after: Any, path: str) -> Iterator[str]:
    if before is not _ABSENT and after is not _ABSENT and before == after and type(before) is type(after):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            one, other = (values.get(key, _ABSENT) for values in (before, after))
            yield from _iterate_differences(one, other, f"{path}.{key}".lstrip("."))
    elif isinstance(before, list) and isinstance(after, list):
        for place in range(max(len(before), len(after))):
            one, other = (values[place] if place < len(values) else _ABSENT for values in (before, after))
            yield from _iterate_differences(one, other, f"{path}[{place}]")
    else:
        yield f"{path or 'state'}: {_show(before)} -> {_show(after)}"


def _show(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[: _MAX_VALUE_CHARS - 1]}…"


_NAME = re.compile(r"\{([^{}]*)\}")


def fill(value: Any, values: Mapping[str, Any]) -> Any:
    """An argument with the names in braces filled in; a text that is nothing but one name is its value as it is.

    A value that is filled in is data: names in braces within it stay.
    """
    if isinstance(value, str):
        whole = _NAME.fullmatch(value)
        if whole is not None and whole[1] in values:
            return values[whole[1]]
        return _NAME.sub(lambda name: str(values.get(name[1], name[0])), value)
    if isinstance(value, Mapping):
        return {key: fill(one, values) for key, one in value.items()}
    return [fill(one, values) for one in value] if isinstance(value, list | tuple) else value
