"""Arguments against inputSchema and results against outputSchema, with complaints that a model can act on.

A schema is checked when a tool is declared, compiled once, and never fetched from anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from jsonschema_rs import ValidationError, ValidationErrorKind

from rlf.core import nearest
from rlf.core.plain_json import expanded
from rlf.core.readings import Readings, compile_schema
from rlf.core.text import describe, shorten
from rlf.tools.results import MAX_NAME_CHARS
from rlf.types import ToolOutput

_OPENING_KEYWORDS = frozenset(
    {"additionalProperties", "unevaluatedProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf"}
)
_MAX_COMPLAINTS = 4
_MAX_COMPLAINT_CHARS = 160


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with unnamed arguments refused, unless it speaks of them itself.

    A model that misspells an optional argument must hear of it, and a function takes no argument it does not name.
    """
    if "properties" not in schema or _OPENING_KEYWORDS & schema.keys():
        return dict(schema)
    return {**schema, "additionalProperties": False}


class ArgumentCheck:
    """The compiled inputSchema of one tool."""

    def __init__(self, input_schema: Mapping[str, Any], redact: Callable[[str], str] = str) -> None:
        """Compiles the schema.

        Args:
            redact: strikes secrets out of complaints before they are cut, since half a secret is not found any more.
        """
        self._redact = redact
        self._schema = expanded(input_schema)
        self._readings = Readings(closed(input_schema))
        self._validator = self._readings.validator

    def complaint(self, arguments: Mapping[str, Any]) -> str | None:
        """The faults of the arguments and the expected ones, in words; None when they are valid."""
        try:
            if self._validator.is_valid(arguments):
                return None
            errors = list(islice(self._validator.iter_errors(arguments), _MAX_COMPLAINTS))
        except ValueError as fault:  # too deep, or no JSON at all
            return shorten(f"arguments are not JSON: {self._redact(str(fault))}. Expected: {self.expected()}")
        message = "; ".join(shorten(self._redact(self._in_words(error)), _MAX_COMPLAINT_CHARS) for error in errors)
        return shorten(f"{message}. Expected: {self.expected()}")

    def coerced(self, arguments: Any) -> dict[str, Any] | None:
        """The arguments with strings read as what their schema asks for, where that makes them valid; else None."""
        try:
            return self._readings.coerced(arguments)
        except ValueError:  # too deep, or no JSON at all
            return None

    def expected(self) -> str:
        """The arguments in one line: `query (string, required), limit (integer or null)`."""
        named = [
            self._describe(name, name in self._schema.get("required", ()))
            for name in self._schema.get("properties", {})
        ]
        others = [self._describe("any other", False)] if self._schema.get("additionalProperties", False) else []
        return ", ".join(named + others) or "an object"

    def _describe(self, name: str, is_required: bool) -> str:
        facts = [self._readings.admitted(name).in_words(), "required" if is_required else ""]
        said = ", ".join(filter(None, facts))
        return f"{name} ({said})" if said else name

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
                shown = [shorten(self._redact(name), MAX_NAME_CHARS) for name in names[:_MAX_COMPLAINTS]]
                return prefix + "; ".join(f"unknown {name!r}{nearest(name, known)}" for name in shown)
        return prefix + error.message


class OutputCheck:
    """The compiled outputSchema of one tool."""

    def __init__(self, output_schema: Mapping[str, Any]) -> None:
        self._validator = compile_schema(output_schema)

    def complaint(self, output: ToolOutput) -> str | None:
        """The first fault of the structured result, or of the text read as JSON, uncut; None when the schema holds."""
        value = output.structured
        if value is None:
            try:
                value = json.loads(output.text)
            except (ValueError, RecursionError) as fault:
                return f"the result is not JSON, as its schema asks: {describe(fault)}"
        try:
            error = next(self._validator.iter_errors(value), None)
        except ValueError as fault:
            return f"the result is not JSON: {fault}"
        return None if error is None else f"the result breaks its schema: {error.message}"
