"""What a Python function says of itself: inputSchema from its signature, words from its docstring."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter

from rlf.core import RlfError
from rlf.tools.kind import SelfDescription

_SECTION = re.compile(
    r"^\s*(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?)\s*:?\s*$|^\s*:(param|returns?|raises)\b",
    re.MULTILINE,
)
_GOOGLE = re.compile(r"^ +\*{0,2}(?P<name>\w+)(?: *\([^)]*\))?: +(?P<words>.+)$", re.MULTILINE)
_NUMPY = re.compile(r"^ *(?P<name>\w+) *:[^\n]*\n +(?P<words>[^\n]+)$", re.MULTILINE)
_SPHINX = re.compile(r"^ *:param(?: \w+)? (?P<name>\w+): *(?P<words>.+)$", re.MULTILINE)


def describe_function(function: Callable[..., Any], name: str) -> SelfDescription:
    """Description and inputSchema of a function.

    Args:
        function: what calls go to; parameters that take any number of values are left out.
        name: what messages call it.

    Raises:
        RlfError: a type that JSON has no word for, or a signature that cannot be read.
    """
    document = inspect.getdoc(function) or ""
    words = parameter_words(document)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in _named(function, name):
        schema = json_schema(_annotation(function, parameter), f"{name}: parameter {parameter.name!r}")
        if parameter.name in words:
            schema["description"] = words[parameter.name]
        if parameter.default is Parameter.empty:
            required.append(parameter.name)
        elif _is_json(parameter.default):
            schema["default"] = parameter.default
        properties[parameter.name] = schema
    input_schema: dict[str, Any] = {"type": "object", "properties": properties}
    return SelfDescription(summary(document), input_schema | ({"required": required} if required else {}))


def summary(document: str) -> str:
    """A docstring up to its first section."""
    found = _SECTION.search(document)
    text = document if found is None else document[: found.start()]
    return text.strip()


def parameter_words(document: str) -> dict[str, str]:
    """What a docstring says of each parameter, in the manner of Google, NumPy or Sphinx; the first line of it."""
    section = re.search(
        r"^(?:Args|Arguments):\s*\n(?P<google>(?:[ \t]+.*\n?|\n)+)|^Parameters\s*\n-+\n(?P<numpy>(?:.+\n?)+)",
        document,
        re.MULTILINE,
    )
    if section is None:
        found = _SPHINX.finditer(document)
    elif section["google"] is not None:
        found = _GOOGLE.finditer(section["google"])
    else:
        found = _NUMPY.finditer(section["numpy"])
    return {match["name"]: match["words"].strip() for match in found}


def json_schema(annotation: Any, where: str) -> dict[str, Any]:
    """JSON Schema of a type; a parameter without a type takes anything. Raises RlfError naming `where`."""
    if annotation is Parameter.empty:
        return {}
    try:
        schema = TypeAdapter(annotation).json_schema()
    except (PydanticUserError, PydanticSchemaGenerationError, TypeError, NameError) as fault:
        reason = str(fault).splitlines()[0]
        raise RlfError(f"{where}: no JSON Schema for its type: {reason}. Write `inputSchema` by hand.") from fault
    schema.pop("title", None)
    return schema


def _named(function: Callable[..., Any], name: str) -> list[Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as fault:
        raise RlfError(f"{name}: its signature cannot be read. Write `inputSchema` by hand.") from fault
    return [p for p in parameters if p.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)]


def type_hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Types by parameter, those written as text resolved where they can be."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - a name that only a type checker knows: left as it is written
        return getattr(function, "__annotations__", {})


def _annotation(function: Callable[..., Any], parameter: Parameter) -> Any:
    return type_hints(function).get(parameter.name, parameter.annotation)


def _is_json(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
