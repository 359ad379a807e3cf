"""Arguments against inputSchema, with complaints that a model can mend."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from jsonschema_rs import ValidationError, ValidationErrorKind

from rlf.core import nearest
from rlf.tools.failure import MAX_NAME_CHARS, shorten
from rlf.tools.schema import closed, compile_schema

_MAX_COMPLAINTS = 4
_MAX_COMPLAINT_CHARS = 160


class ArgumentCheck:
    """The compiled inputSchema of one tool."""

    def __init__(self, input_schema: Mapping[str, Any]) -> None:
        self._schema = input_schema
        self._validator = compile_schema(closed(input_schema))

    def complaint(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with the arguments and what is expected; None when they are valid."""
        try:
            if self._validator.is_valid(arguments):
                return None
            errors = list(islice(self._validator.iter_errors(arguments), _MAX_COMPLAINTS))
        except ValueError as fault:  # too deep, or no JSON at all
            return shorten(f"arguments are not JSON: {fault}. Expected: {self.expected()}")
        said = "; ".join(shorten(self._in_words(error), _MAX_COMPLAINT_CHARS) for error in errors)
        return shorten(f"{said}. Expected: {self.expected()}")

    def expected(self) -> str:
        """The arguments in one line: `query (string, required), limit (integer)`."""
        required = self._schema.get("required", ())
        properties = self._schema.get("properties", {})
        return ", ".join(_argument(name, of, name in required) for name, of in properties.items()) or "an object"

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


def _argument(name: str, schema: Any, required: bool) -> str:
    facts = []
    if isinstance(schema, dict) and "enum" in schema:
        facts.append("one of " + ", ".join(map(repr, schema["enum"])))
    elif isinstance(schema, dict) and "type" in schema:
        kinds = schema["type"]
        facts.append(kinds if isinstance(kinds, str) else " or ".join(kinds))
    if required:
        facts.append("required")
    return f"{name} ({', '.join(facts)})" if facts else name
