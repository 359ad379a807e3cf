"""States of worlds as JSON values: their hash, and what differs between two of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rlf.core.identity import hash_bytes
from rlf.core.text import clean
from rlf.tools.results import json_text

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
            yield from _iterate_differences(
                before.get(key, _ABSENT), after.get(key, _ABSENT), f"{path}.{key}".lstrip(".")
            )
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
