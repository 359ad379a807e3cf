"""Whether a function takes what its inputSchema promises. Pure: looks at a signature, calls nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

from rlf.core import RlfError, nearest
from rlf.tools.python.inference import json_schema, type_hints


def signature_complaints(function: Callable[..., Any], input_schema: Mapping[str, Any]) -> list[str]:
    """Every mismatch between parameters and the schema, in words; empty when they fit.

    Compared are names, what is required, defaults, and types where both say one.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin without a signature: nothing to compare with
        return []
    properties: Mapping[str, Any] = input_schema.get("properties", {})
    required = set(input_schema.get("required", ()))
    named = {
        p.name: p for p in parameters.values() if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    }
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
    unknown = [] if takes_any else [name for name in properties if name not in named]
    types = type_hints(function)
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
        *(
            complaint
            for name, parameter in named.items()
            if isinstance(properties.get(name), Mapping)
            for complaint in (
                *_default_complaints(parameter, properties[name]),
                *_type_complaints(name, types.get(name, Parameter.empty), properties[name]),
            )
        ),
    ]


def _default_complaints(parameter: Parameter, schema: Mapping[str, Any]) -> list[str]:
    if "default" not in schema or parameter.default is Parameter.empty or schema["default"] == parameter.default:
        return []
    name, told, taken = parameter.name, schema["default"], parameter.default
    return [f"inputSchema tells {told!r} as the default of {name!r}, but the function takes {taken!r}; write that"]


def _type_complaints(name: str, annotation: Any, schema: Mapping[str, Any]) -> list[str]:
    """A type of the schema that the parameter's annotation rules out."""
    try:
        takes = _types(json_schema(annotation, name))
    except RlfError:  # a type of the function's own: it must know
        return []
    promised = _types(schema)
    if not takes or not promised or all(_covers(takes, kind) for kind in promised):
        return []
    found, wanted = " or ".join(sorted(promised)), " or ".join(sorted(takes))
    return [f"inputSchema lets {name!r} be {found}, but the function's annotation says {wanted}; change one of them"]


def _types(schema: Mapping[str, Any]) -> set[str]:
    """The JSON types that a schema names; empty where it names none."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return set(kind)
    arms = [arm for arm in schema.get("anyOf", ()) if isinstance(arm, Mapping)]
    found = [_types(arm) for arm in arms]
    return set[str]().union(*found) if all(found) else set()


def _covers(takes: set[str], kind: str) -> bool:
    return kind in takes or (kind == "integer" and "number" in takes)


def _unnamed(name: str) -> str:
    return f"parameter {name!r} is positional only, but arguments are passed by name; remove the `/`"


def _uncovered(name: str, properties: Mapping[str, Any], required: set[str]) -> str:
    if name in properties:
        return f"parameter {name!r} has no default; list {name!r} under `required`, or give it one"
    return f"parameter {name!r} has no default and inputSchema does not have it; add it to `properties` and `required`"


def _must_be_given(parameter: Parameter) -> bool:
    return parameter.default is Parameter.empty
