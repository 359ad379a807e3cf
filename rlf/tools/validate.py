"""Arguments against inputSchema and results against outputSchema, with complaints that a model can act on.

A schema is checked when a tool is declared, compiled once, and never fetched from anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind

from rlf.core import nearest
from rlf.core.json_schema import expanded
from rlf.core.text import describe
from rlf.tools.failure import MAX_NAME_CHARS, shorten
from rlf.types import ToolOutput

_OPENING_KEYWORDS = frozenset(
    {"additionalProperties", "unevaluatedProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf"}
)
_MAX_COMPLAINTS = 4
_MAX_COMPLAINT_CHARS = 160


def compile_schema(schema: Mapping[str, Any]) -> Draft202012Validator:
    """A validator of JSON Schema 2020-12. Raises jsonschema_rs.ValidationError with the path of what is wrong."""
    return Draft202012Validator(dict(schema), retriever=_refuse_reference)


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with unnamed arguments refused, unless it speaks of them itself.

    A model that misspells an optional argument must hear of it, and a function takes no argument it does not name.
    """
    if "properties" not in schema or _OPENING_KEYWORDS & schema.keys():
        return dict(schema)
    return {**schema, "additionalProperties": False}


def _refuse_reference(uri: str) -> Any:
    raise ValueError(f"{uri} is not part of the schema; put it under `$defs`")


class ArgumentCheck:
    """The compiled inputSchema of one tool."""

    def __init__(self, input_schema: Mapping[str, Any]) -> None:
        self._schema = expanded(input_schema)
        self._validator = compile_schema(closed(input_schema))

    def complaint(self, arguments: Mapping[str, Any]) -> str | None:
        """The faults of the arguments and the expected ones, in words; None when they are valid."""
        try:
            if self._validator.is_valid(arguments):
                return None
            errors = list(islice(self._validator.iter_errors(arguments), _MAX_COMPLAINTS))
        except ValueError as fault:  # too deep, or no JSON at all
            return shorten(f"arguments are not JSON: {fault}. Expected: {self.expected()}")
        message = "; ".join(shorten(self._in_words(error), _MAX_COMPLAINT_CHARS) for error in errors)
        return shorten(f"{message}. Expected: {self.expected()}")

    def coerced(self, arguments: Any) -> dict[str, Any] | None:
        """The arguments with strings read as what their schema asks for, where that makes them valid; else None."""
        if isinstance(arguments, str):
            arguments = _coerce_json(arguments)
        if not isinstance(arguments, dict):
            return None
        properties = self._schema.get("properties", {})
        tried = {name: _coerce_value(value, properties.get(name)) for name, value in arguments.items()}
        return tried if self.complaint(tried) is None else None

    def expected(self) -> str:
        """The arguments in one line: `query (string, required), limit (integer)`."""
        required = self._schema.get("required", ())
        properties = self._schema.get("properties", {})
        return (
            ", ".join(_describe_argument(name, of, name in required) for name, of in properties.items()) or "an object"
        )

    def _in_words(self, error: ValidationError) -> str:
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path).lstrip(
            "."
        )
        prefix = f"{where}: " if where else ""
        match error.kind:
            case ValidationErrorKind.Required(property=name):
                return f"{prefix}missing {name!r}"
            case ValidationErrorKind.AdditionalProperties(unexpected=names):
                known = [] if where else list(self._schema.get("properties", {}))
                shown = [shorten(name, MAX_NAME_CHARS) for name in names[:_MAX_COMPLAINTS]]
                return prefix + "; ".join(f"unknown {name!r}{nearest(name, known)}" for name in shown)
        return prefix + error.message


def _describe_argument(name: str, schema: Any, required: bool) -> str:
    facts = []
    if isinstance(schema, dict) and "enum" in schema:
        facts.append("one of " + ", ".join(map(repr, schema["enum"])))
    elif isinstance(schema, dict) and "type" in schema:
        kinds = schema["type"]
        facts.append(kinds if isinstance(kinds, str) else " or ".join(kinds))
    if required:
        facts.append("required")
    return f"{name} ({', '.join(facts)})" if facts else name


class OutputCheck:
    """The compiled outputSchema of one tool."""

    def __init__(self, output_schema: Mapping[str, Any]) -> None:
        self._validator = compile_schema(output_schema)

    def complaint(self, output: ToolOutput) -> str | None:
        """The first fault of the structured result, or of the text read as JSON; None when the schema holds."""
        value = output.structured
        if value is None:
            try:
                value = json.loads(output.text)
            except (ValueError, RecursionError) as fault:
                return shorten(f"the result is not JSON, as its schema asks: {describe(fault)}")
        try:
            error = next(self._validator.iter_errors(value), None)
        except ValueError as fault:
            return shorten(f"the result is not JSON: {fault}")
        return None if error is None else shorten(f"the result breaks its schema: {error.message}")


def _coerce_value(value: Any, schema: Any) -> Any:
    """A string as the first type of its schema that can be read from it; a string that may be one, as it is."""
    if not isinstance(value, str) or not isinstance(schema, dict):
        return value
    named = schema.get("type", [])
    types = named if isinstance(named, list) else [named]
    if "string" in types:
        return value
    read = [_READERS[name](value) for name in types if name in _READERS]
    return next((one for one in read if one is not value), value)


def _coerce_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _coerce_number(text: str) -> Any:
    return _coerce_json(text) if len(text) <= _MAX_DIGITS and _NUMBER.fullmatch(text) else text


_MAX_DIGITS = 100
# Python's float() would also take `1_000`, `inf` and `nan`, which JSON does not have.
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_READERS: Mapping[str, Callable[[str], Any]] = {
    "integer": _coerce_number,
    "number": _coerce_number,
    "boolean": lambda text: {"true": True, "false": False}.get(text.lower(), text),
    "object": _coerce_json,
    "array": _coerce_json,
}
