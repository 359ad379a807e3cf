"""Tool files, in MCP's own words: name, description, inputSchema, and where calls go.

`ToolDeclaration.model_validate(mapping, context={"folder": Path})` builds one. Faults carry the YAML key path as
`loc`, also those inside `target:` and inside the schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

import jsonschema_rs
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails

from rlf.core import RlfError, hash_json, hash_path, nearest
from rlf.core.kinds import Files, StrictModel, wrong_value
from rlf.core.readings import compile_schema
from rlf.tools.kind import Limits, ToolKind
from rlf.tools.validate import closed
from rlf.types import ToolDescription

TOOL_NAME = r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$"


def _checked_schema(schema: dict[str, Any]) -> dict[str, Any]:
    try:
        compile_schema(schema)
    except jsonschema_rs.ValidationError as fault:
        from rlf.core.mistakes import explain, known

        loc, found = tuple(fault.instance_path), fault.instance
        ours = known("json types").get(str(found)) if loc[-1:] == ("type",) else None
        form = explain("schemas", fault.message, key=loc[-1] if loc else "")
        fix = f" {found} is Python's word. Write `{ours}`." if ours else f". {form[0]}" if form else ""
        raise _faults_at(loc, f"not a JSON Schema 2020-12: {fault.message}{fix}") from fault
    except ValueError as fault:
        raise wrong_value(f"not a JSON Schema 2020-12: {fault}") from fault
    return schema


def _faults_at(loc: tuple[str | int, ...], message: str) -> ValidationError:
    """A fault below the field that is being validated; pydantic puts the field's own path before `loc`."""
    return ValidationError.from_exception_data(
        "declaration", [InitErrorDetails(type=wrong_value(message), loc=loc, input=None)]
    )


Schema = Annotated[dict[str, Any], AfterValidator(_checked_schema)]


class CacheScope(StrEnum):
    """How long a result answers identical calls."""

    NONE = "none"
    """Every call reaches the tool."""
    RUN = "run"
    """One call per set of arguments and run; errors are never kept."""
    FOREVER = "forever"
    """One call per set of arguments, until the tool's source changes; kept on disk for later runs."""


class Coercion(StrEnum):
    """Treatment of arguments that do not satisfy inputSchema."""

    NONE = "none"
    """They are refused, and the model gets the reason."""
    SAFE = "safe"
    """A string that says exactly what the schema asks for ("3", "true", a JSON object) is read as that, and counted."""


class CacheSpec(StrictModel):
    """Whether results are kept."""

    scope: CacheScope = CacheScope.NONE


class Expectation(StrictModel):
    """The expected result of a test call: every key that is set must hold."""

    contains: str | None = None
    """Text within the result."""
    equals: str | None = None
    """The whole result."""
    matches: str | None = None
    """Regular expression found somewhere in the result."""
    output_schema: Schema | None = Field(default=None, alias="schema")
    """JSON Schema 2020-12 of the structured result, or of the text read as JSON."""
    error: str | None = None
    """Text within the error; without this key the call must succeed."""
    max_ms: float | None = Field(default=None, gt=0)
    """Longest time from permit to result, in milliseconds; goes with any other key."""

    @field_validator("matches")
    @classmethod
    def _is_a_pattern(cls, matches: str | None) -> str | None:
        try:
            re.compile(matches or "")
        except re.error as fault:
            raise wrong_value(f"got {matches!r}; expected a regular expression: {fault}") from fault
        return matches

    @model_validator(mode="after")
    def _expects_something(self) -> Self:
        expected = [name for name in type(self).model_fields if getattr(self, name) is not None and name != "max_ms"]
        if not expected and self.max_ms is None:
            raise wrong_value(
                "expects nothing; write one of `contains`, `equals`, `matches`, `schema`, `error`, `max_ms`"
            )
        if self.error is not None and len(expected) > 1:
            raise wrong_value("`error` excludes the other keys: a failed call has no result to compare")
        return self


class ToolTest(StrictModel):
    """One example call with what it must give; `rlf tools test` runs it."""

    arguments: dict[str, Any]
    """Arguments of the call, which satisfy inputSchema."""
    expect: Expectation


def _make_inferred_keys_optional(schema: dict[str, Any]) -> None:
    schema["required"] = [name for name in schema["required"] if name not in ("description", "inputSchema")]


_KEYWORDS = re.findall(
    r"\w+",
    "additionalProperties allOf anyOf const default definitions dependentRequired deprecated description enum example "
    "examples exclusiveMaximum exclusiveMinimum format items maxItems maxLength maximum minItems minLength minimum "
    "multipleOf nullable oneOf pattern patternProperties prefixItems properties required title type uniqueItems",
)
"""Those of JSON Schema that others are misspelt from; a key that is like none is left to its writer."""


class ToolDeclaration(StrictModel):
    """One tool, declared once for training, evaluation, rewards and use by hand."""

    model_config = ConfigDict(json_schema_extra=_make_inferred_keys_optional)

    name: str = Field(pattern=TOOL_NAME)
    """What the model calls it."""
    description: str = Field(min_length=1)
    """What it does, for the model; a Python function's docstring where the file has none."""
    input_schema: Schema = Field(alias="inputSchema")
    """JSON Schema 2020-12 of the arguments. Arguments it does not name are refused unless it says otherwise.

    A Python function's own signature where the file does not say."""
    output_schema: Schema | None = Field(default=None, alias="outputSchema")
    """JSON Schema 2020-12 of the structured result, or of the text read as JSON; a result that breaks it is refused."""
    target: ToolKind
    """Where calls go."""
    limits: Limits = Limits()
    """Time, concurrency, rate, retries and size of results of the tool's calls."""
    idempotent: bool = False
    """Whether calling twice does no more than calling once, so that a failed call may be tried again."""
    coerce: Coercion = Coercion.NONE
    """Whether a string that says exactly what inputSchema asks for is read as that."""
    cache: CacheSpec = CacheSpec()
    """How long a result answers identical calls."""
    files: Files = ()
    """Files that the tool's own code reads, e.g. `[../data/passages.jsonl]`, relative to the file that says so. A run
    records them with their hashes: results kept from before an edit are not used, and `rlf resume` reports it."""
    images: str | None = None
    """The argument that gets the trajectory's images as the model sees them, as base64: one of `type: string` the last
    image, one of `type: array` all of them. The model does not see the argument."""
    hidden: bool = False
    """Whether the model does not see it: a tool that only reward terms call."""
    tests: tuple[ToolTest, ...] = ()
    """Example calls; `rlf tools test` runs them."""

    @model_validator(mode="before")
    @classmethod
    def _infer_from_target(cls, data: Any, info: ValidationInfo) -> Any:
        """Fills in what the file leaves to the target: the description and inputSchema of a Python function."""
        if not isinstance(data, Mapping) or "target" not in data or data.keys() >= {"description", "inputSchema"}:
            return data
        try:
            target = ToolKind.model_validate(data["target"], context=info.context)
        except ValidationError:  # reported again, with its place, when the field is validated
            return data
        try:
            found = target.described()
        except RlfError as fault:
            raise _faults_at(("target",), str(fault)) from fault
        if found is None:
            return data
        derived = {"description": found.description, "inputSchema": dict(found.input_schema)}
        return {name: value for name, value in derived.items() if value} | dict(data)

    @field_validator("input_schema")
    @classmethod
    def _is_a_schema_of_an_object(cls, schema: dict[str, Any]) -> dict[str, Any]:
        if schema.get("type") != "object":
            are_properties = "type" not in schema and schema and all(isinstance(one, dict) for one in schema.values())
            alone = f"; {', '.join(schema)} belong below `properties`" if are_properties else ""
            raise _faults_at(("type",), f"arguments are an object; write `type: object`{alone}")
        properties = schema.get("properties", {})
        places: dict[tuple[str, ...], Any] = {("properties", name): part for name, part in properties.items()}
        for place, part in {(): schema, **places}.items():
            for key in part if isinstance(part, dict) else ():
                if key not in _KEYWORDS and (meant := get_close_matches(key, _KEYWORDS, 1, 0.85)):
                    raise _faults_at((*place, key), f"got {key!r}, no word of JSON Schema; write `{meant[0]}`")
        names, required = list(properties), schema.get("required", ())
        for at, name in enumerate(required if closed(schema) != schema else ()):
            if name not in names:
                message = f"got {name!r}, which is no property{nearest(name, names)} (known: {', '.join(names)})"
                raise _faults_at(("required", at), f"{message}. Write one of these, or declare it.")
        return schema

    @model_validator(mode="after")
    def _retries_only_what_may_be_repeated(self) -> Self:
        if self.limits.retries and not self.idempotent:
            message = f"got {self.limits.retries} for a tool that is not idempotent; write `idempotent: true` or 0"
            raise _faults_at(("limits", "retries"), message)
        return self

    @model_validator(mode="after")
    def _has_the_argument_of_images(self) -> Self:
        known = self.input_schema.get("properties") or {}
        if self.images is not None and self.images not in known:
            message = f"inputSchema has no argument {self.images!r} (it has: {', '.join(known) or 'none'})"
            raise _faults_at(("images",), message)
        return self

    @property
    def source_hash(self) -> str:
        """sha256 of what decides the tool's answers, as far as it can be known: its target and the declared files."""
        target = self.target.source_hash()
        return hash_json([target, [hash_path(Path(file)) for file in self.files]]) if self.files else target

    def missing_files(self) -> list[str]:
        """Those of `files` that are no files."""
        return [file for file in self.files if not Path(file).is_file()]

    @property
    def description_for_model(self) -> ToolDescription:
        """The tool as the model sees it."""
        if self.images is None:
            return ToolDescription(self.name, self.description, self.input_schema)
        properties = dict(self.input_schema["properties"])
        takes_all = properties.pop(self.images).get("type") == "array"
        required = [name for name in self.input_schema.get("required", ()) if name != self.images]
        shown = {**self.input_schema, "properties": properties, "required": required}
        return ToolDescription(self.name, self.description, shown, self.images, takes_all)
