"""States of worlds as JSON values: their hash, what differs between two of them, and values that a row fills."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlf.core.identity import hash_bytes
from rlf.core.plain_json import json_text
from rlf.core.text import clean

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
