"""The tools of one row: a list of names, or of function descriptions, as text or as a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rlf.core import nearest
from rlf.core.json_values import NoJsonValue, read_json


def tools_of_row(
    value: Any, declared: Sequence[str] | None, undeclared: Counter[str] | None = None
) -> tuple[str, ...] | None:
    """Names of the tools that a row's trajectories may use; None, where the row says nothing, for all.

    A name must be a declared tool's. Function descriptions (OpenAI's form, FTRL's rows) of tools that the spec does not
    declare are counted, and left out of the names.

    Args:
        declared: the spec's tools; None takes any name.
        undeclared: counts them by name.

    Raises:
        ValueError: what is wrong with the value.
    """
    if value is None or value == "":
        return None
    items = _read_list(value)
    names: list[str] = []
    for item in items:
        described = isinstance(item, Mapping)
        name = _describe_item(item) if isinstance(item, Mapping) else item
        if not isinstance(name, str):
            raise ValueError(f"got {item!r:.60}; expected the name of a tool. Write a list of names.")
        if declared is None or name in declared:
            names.append(name)
        elif described and undeclared is not None:
            undeclared[name] += 1
        elif not described:
            close = nearest(name, list(declared))
            raise ValueError(f"no tool {name!r}{close} (declared: {', '.join(declared) or 'none'}). Name one of these.")
    return tuple(dict.fromkeys(names))


def _read_list(value: Any) -> list[Any]:
    if isinstance(value, str):
        try:
            value = read_json(value)
        except NoJsonValue:
            raise
        except ValueError:
            value = [value]
    if not isinstance(value, list | tuple):
        raise ValueError(f"got {value!r:.60}; expected a list of tool names. Write e.g. [search, calculator].")
    return list(value)


def _describe_item(item: Mapping[str, Any]) -> Any:
    function = item.get("function", item)
    return function.get("name") if isinstance(function, Mapping) else None
