"""Arguments for a world's server: texts in which a row's columns replace their names in braces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def fill(value: Any, values: Mapping[str, Any]) -> Any:
    """An argument with the names in braces filled in; a text that is nothing but one name is its value as it is."""
    if isinstance(value, str):
        if value[:1] == "{" and value[-1:] == "}" and value[1:-1] in values:
            return values[value[1:-1]]
        for name, one in values.items():
            value = value.replace(f"{{{name}}}", str(one))
        return value
    if isinstance(value, Mapping):
        return {key: fill(one, values) for key, one in value.items()}
    return [fill(one, values) for one in value] if isinstance(value, list | tuple) else value
