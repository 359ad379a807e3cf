"""Whether a function takes what its inputSchema promises. Pure: looks at a signature, calls nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

from rlf.core import nearest


def signature_complaints(function: Callable[..., Any], input_schema: Mapping[str, Any]) -> list[str]:
    """Every mismatch between parameters and the schema's `properties` and `required`, in words; empty when they fit."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin without a signature: nothing to compare with
        return []
    properties = list(input_schema.get("properties", {}))
    required = set(input_schema.get("required", ()))
    named = {
        p.name: p for p in parameters.values() if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    }
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
    unknown = [] if takes_any else [name for name in properties if name not in named]
    return [
        *(_unnamed(p.name) for p in parameters.values() if p.kind is Parameter.POSITIONAL_ONLY),
        *(
            f"inputSchema has {name!r}, which the function does not take{nearest(name, list(named))}"
            for name in unknown
        ),
        *(
            _uncovered(name, properties, required)
            for name in named
            if _must_be_given(named[name]) and name not in required
        ),
    ]


def _unnamed(name: str) -> str:
    return f"parameter {name!r} is positional only, but arguments are passed by name; remove the `/`"


def _uncovered(name: str, properties: list[str], required: set[str]) -> str:
    if name in properties:
        return f"parameter {name!r} has no default; list {name!r} under `required`, or give it one"
    return f"parameter {name!r} has no default and inputSchema does not have it; add it to `properties` and `required`"


def _must_be_given(parameter: Parameter) -> bool:
    return parameter.default is Parameter.empty
