"""Arguments against inputSchema and results against outputSchema, with complaints that a model can act on.

A schema is checked when a tool is declared, compiled once, and never fetched from anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rlf.core.plain_json import expanded
from rlf.core.readings import Readings, compile_schema
from rlf.core.text import describe
from rlf.types import ToolOutput

if TYPE_CHECKING:
    from rlf.tools.misfits import Misfits

_OPENING_KEYWORDS = frozenset(
    {"additionalProperties", "unevaluatedProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf"}
)


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

    def complaint(self, arguments: Mapping[str, Any]) -> str | None:
        """The faults of the arguments and the expected ones, in words; None when they are valid."""
        with suppress(ValueError):  # too deep, or no JSON at all
            if self._readings.validator.is_valid(arguments):
                return None
        return self.misfits().complaint(arguments)

    def misfits(self) -> Misfits:
        """What says how arguments do not fit; loaded where some do not."""
        from rlf.tools.misfits import Misfits

        return Misfits(self._readings, self._schema, self._redact)

    def coerced(self, arguments: Any) -> dict[str, Any] | None:
        """The arguments with strings read as what their schema asks for, where that makes them valid; else None."""
        from rlf.tools.misfits import coerced

        try:
            return coerced(self._readings.validator, arguments)
        except ValueError:  # too deep, or no JSON at all
            return None


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
