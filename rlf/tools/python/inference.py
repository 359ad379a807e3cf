"""Descriptions of Python functions: inputSchema from the signature, words from the docstring."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import Parameter
from typing import Any, NamedTuple

from pydantic import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from rlf.core import RlfError
from rlf.core.text import clean
from rlf.tools.jsonable import json_text
from rlf.tools.kind import SelfDescription
from rlf.tools.python.docstrings import parameter_words, summary
from rlf.tools.python.parameters import NO_DEFAULT, Argument, CallSignature, documentation, read_signature

NO_SCHEMA = (PydanticUserError, PydanticSchemaGenerationError, PydanticInvalidForJsonSchema, TypeError, NameError)
"""Exceptions of pydantic for a type that JSON has no word for."""
_DEFINITION = "#/$defs/"


class _Schemas(NamedTuple):
    """Schemas by argument, and the definitions that they refer to."""

    by_name: dict[str, dict[str, Any]]
    definitions: dict[str, Any]


class _Generator(GenerateJsonSchema):
    """JSON Schema without the titles that repeat a field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def p_arguments_schema(self, arguments: list[Any], var_args_schema: Any) -> dict[str, Any]:
        """Positions of a NamedTuple, whose names stand nowhere else."""
        schema = super().p_arguments_schema(arguments, var_args_schema)
        for item, argument in zip(schema.get("prefixItems", ()), arguments, strict=False):
            item.setdefault("title", argument["name"])
        return schema


def describe_function(function: Callable[..., Any], name: str) -> SelfDescription:
    """Description and inputSchema of a function.

    Args:
        function: what calls go to; parameters with a default and a type that JSON has no word for are left out.
        name: what messages call it.

    Raises:
        RlfError: a type that JSON has no word for, a signature that cannot be read or names no argument, or `*names`.
    """
    document = clean(documentation(function))
    words = parameter_words(document)
    try:
        signature = read_signature(function)
    except (TypeError, ValueError) as fault:
        raise RlfError(f"{name}: its signature cannot be read. Write `inputSchema` by hand.") from fault
    _refuse_unnamed(signature, name)
    shown = [one for one in signature.arguments if _is_shown(one, name)]
    others = _others_as_argument(signature, name)
    schemas = _argument_schemas([*shown, *others])
    admitted = [schemas.by_name.pop(one.name) for one in others]
    for one, schema in zip(others, admitted, strict=True):
        _add_words(schema, one, words.get(one.name.lstrip("*")))
    for argument in shown:
        _add_words(schemas.by_name[argument.name], argument, words.get(argument.name))
    required = [one.name for one in shown if is_required(one)]
    input_schema: dict[str, Any] = {"type": "object", "properties": schemas.by_name}
    input_schema |= {"required": required} if required else {}
    input_schema |= {"additionalProperties": admitted[0] or True} if admitted else {}
    input_schema |= {"$defs": schemas.definitions} if schemas.definitions else {}
    return SelfDescription(summary(document), input_schema)


def _refuse_unnamed(signature: CallSignature, name: str) -> None:
    """Values are given by name: a schema of a function that names none would be empty, and no call could be right."""
    others = signature.others
    if others is not None and not signature.arguments and others.annotation in (Parameter.empty, Any):
        raise RlfError(
            f"{name}: its signature names no argument: '**{others.name}' takes any. Name them, decorate a wrapper with "
            "functools.wraps, or write `inputSchema` by hand."
        )
    if signature.list_name is not None:
        raise RlfError(
            f"{name}: parameter '*{signature.list_name}' takes values without names, which no call of a tool gives. "
            f"Write `{signature.list_name}: list[...]`, or `inputSchema` by hand."
        )


def _others_as_argument(signature: CallSignature, name: str) -> list[Argument]:
    """`**others` under a name that no argument has; none where the function takes no others."""
    others = signature.others
    if others is None:
        return []
    json_schema(others.annotation, f"{name}: parameter '**{others.name}'")
    return [replace(others, name=f"**{others.name}")]


def json_schema(annotation: Any, where: str) -> dict[str, Any]:
    """JSON Schema of a type; a parameter without a type takes anything. Raises RlfError naming `where`."""
    if annotation is Parameter.empty:
        return {}
    try:
        schema = TypeAdapter(annotation).json_schema(schema_generator=_Generator)
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
    try:
        return json.loads(json_text(argument.default))
    except Exception:  # noqa: BLE001 - `__iter__` and the like of a default are the function's own code
        return NO_DEFAULT


def _is_shown(argument: Argument, name: str) -> bool:
    try:
        json_schema(argument.annotation, f"{name}: parameter {argument.name!r}")
    except RlfError:
        if argument.default is NO_DEFAULT:
            raise
        return False
    return True


def _argument_schemas(arguments: Sequence[Argument]) -> _Schemas:
    adapters = [
        (one.name, "validation", TypeAdapter(one.annotation)) for one in arguments if one.annotation is not NO_DEFAULT
    ]
    found, shared = TypeAdapter.json_schemas(adapters, schema_generator=_Generator)  # type: ignore[arg-type]  # modes
    definitions = {
        key: {word: child for word, child in one.items() if word != "title" or child != key}
        for key, one in shared.get("$defs", {}).items()
    }
    by_name: dict[str, dict[str, Any]] = {one.name: {} for one in arguments}
    by_name |= {str(name): dict(schema) for (name, _), schema in found.items()}
    return _inline_definitions(_Schemas(by_name, definitions))


def _inline_definitions(schemas: _Schemas) -> _Schemas:
    """Definitions that are one argument's alone in the argument's own place, where every reader sees its type."""
    whole = json.dumps(schemas)
    by_name, definitions = {}, dict(schemas.definitions)
    for name, schema in schemas.by_name.items():
        reference = schema.get("$ref", "")
        if whole.count(json.dumps(reference)) == 1 and reference.startswith(_DEFINITION):
            rest = {key: child for key, child in schema.items() if key != "$ref"}
            schema = {**definitions.pop(_definition_name(reference)), **rest}
        by_name[name] = {key: child for key, child in schema.items() if key != "title"}
    return _Schemas(by_name, definitions)


def _definition_name(reference: str) -> str:
    return reference.removeprefix(_DEFINITION).replace("~1", "/").replace("~0", "~")


def _add_words(schema: dict[str, Any], argument: Argument, words: str | None) -> None:
    """The words nearest to the argument, `Field(description=)` before `Annotated[..., "text"]`, and its default."""
    annotated = _annotated_words(argument.annotation)
    own = getattr(argument.annotation, "__metadata__", ())
    has_field_words = any(getattr(one, "description", None) for one in own)
    if not has_field_words and (annotated or words):
        schema["description"] = annotated or words
    default = default_of(argument)
    if default is not NO_DEFAULT:
        schema["default"] = default


def _annotated_words(annotation: Any) -> str | None:
    if typing.get_origin(annotation) is not typing.Annotated:
        return None
    return next((one for one in annotation.__metadata__ if isinstance(one, str)), None)
