"""Arguments for a world's server: texts in which a row's columns replace their names in braces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

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
