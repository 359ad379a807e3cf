"""Whether a Python function takes what its inputSchema promises. Pure: looks at a signature, calls nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

from pydantic import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from rlf.core import RlfError, nearest
from rlf.core.readings import Readings
from rlf.tools.python.parameters import NO_DEFAULT, Argument, read_signature

NO_SCHEMA = (PydanticUserError, PydanticSchemaGenerationError, PydanticInvalidForJsonSchema, TypeError, NameError)
"""Exceptions of pydantic for a type that JSON has no word for."""


class SchemaGenerator(GenerateJsonSchema):
    """JSON Schema without the titles that repeat a field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def p_arguments_schema(self, arguments: list[Any], var_args_schema: Any) -> dict[str, Any]:
        """Positions of a NamedTuple, whose names stand nowhere else."""
        schema = super().p_arguments_schema(arguments, var_args_schema)
        for item, argument in zip(schema.get("prefixItems", ()), arguments, strict=False):
            item.setdefault("title", argument["name"])
        return schema


def json_schema(annotation: Any, where: str) -> dict[str, Any]:
    """JSON Schema of a type; a parameter without a type takes anything. Raises RlfError naming `where`."""
    if annotation is Parameter.empty:
        return {}
    try:
        schema = TypeAdapter(annotation).json_schema(schema_generator=SchemaGenerator)
    except NO_SCHEMA as fault:
        reason = str(fault).splitlines()[0].rstrip(".")
        raise RlfError(f"{where}: no JSON Schema for its type: {reason}. Write `inputSchema` by hand.") from fault
    schema.pop("title", None)
    return schema


def is_required(argument: Argument) -> bool:
    """Whether a call must give it: neither the function nor a `Field(...)` has a default."""
    return argument.default is NO_DEFAULT and (
        argument.annotation is Parameter.empty or TypeAdapter(argument.annotation).get_default_value() is None
    )


def default_of(argument: Argument) -> Any:
    """The function's own default as JSON; `NO_DEFAULT` where there is none, or JSON cannot express it."""
    if argument.default is NO_DEFAULT:
        return NO_DEFAULT
    from rlf.tools.outputs import json_text

    try:
        return json.loads(json_text(argument.default))
    except Exception:  # noqa: BLE001 - `__iter__` and the like of a default are the function's own code
        return NO_DEFAULT


def signature_complaints(function: Callable[..., Any], input_schema: Mapping[str, Any]) -> list[str]:
    """Every mismatch between parameters and the schema, in words; empty when they fit.

    Compared are names, what is required, defaults, and types where both say one.
    """
    try:
        signature = read_signature(function)
    except (TypeError, ValueError):  # a builtin without a signature: nothing to compare with
        return []
    properties: Mapping[str, Any] = input_schema.get("properties", {})
    required = set(input_schema.get("required", ()))
    named = {one.name: one for one in signature.arguments}
    unknown = [] if signature.others else [name for name in properties if name not in named]
    return [
        *(
            f"inputSchema has {name!r}, which the function does not take{nearest(name, list(named))}"
            for name in unknown
        ),
        *(
            _find_uncovered(name, properties, required)
            for name, argument in named.items()
            if name not in required and _must_be_given(argument)
        ),
        *(
            complaint
            for name, argument in named.items()
            if isinstance(properties.get(name), Mapping)
            for complaint in (
                *_default_complaints(argument, properties[name]),
                *_type_complaints(name, argument.annotation, input_schema),
            )
        ),
    ]


def _default_complaints(argument: Argument, schema: Mapping[str, Any]) -> list[str]:
    if "default" not in schema or argument.default is NO_DEFAULT or argument.default == schema["default"]:
        return []
    taken = default_of(argument)
    if taken is NO_DEFAULT or taken == schema["default"]:
        return []
    name, stated = argument.name, schema["default"]
    return [f"inputSchema has {stated!r} as the default of {name!r}, but the function has {taken!r}; write that"]


def _must_be_given(argument: Argument) -> bool:
    try:
        return is_required(argument)
    except NO_SCHEMA:  # a type that pydantic does not know
        return argument.default is NO_DEFAULT


def _type_complaints(name: str, annotation: Any, whole: Mapping[str, Any]) -> list[str]:
    """A type of the schema that the parameter's annotation rules out."""
    try:
        own = json_schema(annotation, name)
    except RlfError:  # a type of the function's own: it must know
        return []
    takes = _types_of({"$defs": own.pop("$defs", {}), "properties": {name: own}}, name)
    promised = _types_of(whole, name)
    if takes and hasattr(annotation, "_fields"):  # a NamedTuple, which an object fills in as well
        takes |= {"object"}
    takes_more = takes | {"integer"} if "number" in takes else takes
    if not takes or promised <= takes_more:
        return []
    found, wanted = " or ".join(sorted(promised)), " or ".join(sorted(takes))
    return [f"inputSchema lets {name!r} be {found}, but the function's annotation says {wanted}; change one of them"]


def _types_of(whole: Mapping[str, Any], name: str) -> frozenset[str]:
    """The JSON types that a property may have; empty where the schema rules none out."""
    admitted = Readings(whole).admitted(name)
    return frozenset() if admitted.is_anything else admitted.every_kind


def _find_uncovered(name: str, properties: Mapping[str, Any], required: set[str]) -> str:
    if name == "self":
        return "it is a method of a class; write a function, or name the class and give it `def __call__(self, ...)`"
    if name in properties:
        return f"parameter {name!r} has no default; list {name!r} under `required`, or give it one"
    return f"parameter {name!r} has no default and inputSchema does not have it; add it to `properties` and `required`"
