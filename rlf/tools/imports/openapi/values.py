"""Parts of an OpenAPI document: references followed, schemas in the words of JSON Schema 2020-12. Pure.

A document may be anybody's: a part of another type than it should have reads as an empty one, and what is taken of it
for one operation is bounded, however its references and anchors multiply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

Json = dict[str, Any]

_MAX_VALUES = 20_000
_MAX_DEPTH = 50
_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose keys are names, each with a schema."""
_DATA = frozenset({"default", "enum", "const"})
"""Keywords whose values are no schemas."""
_FOR_PEOPLE = frozenset(
    {"example", "examples", "xml", "externalDocs", "discriminator", "deprecated", "nullable", "readOnly", "writeOnly"}
)
"""Keywords that say nothing about which arguments are right."""


class LeftOut(Exception):
    """Why an operation is not a tool."""


def as_mapping(value: Any) -> Json:
    """The value where it is a mapping; else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value where it is a list; else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """The value where it is text; else an empty one."""
    return value if isinstance(value, str) else ""


def follow(document: Json, value: Any) -> Json:
    """The mapping that a part is or refers to; a `description` beside the reference wins."""
    seen = set()
    own: Json = {}
    while isinstance(value, dict) and isinstance(value.get("$ref"), str):
        ref = value["$ref"]
        if ref in seen:
            raise LeftOut(f"it refers to {ref!r}, which refers to itself")
        seen.add(ref)
        own = {key: child for key, child in value.items() if key in ("summary", "description")} | own
        value = _find_target(document, ref)
    return {**as_mapping(value), **own}


def _find_target(document: Json, ref: str) -> Any:
    """The target of a JSON pointer; it may be percent-encoded, as part of a URI."""
    if not ref.startswith("#/"):
        raise LeftOut(f"it refers to {ref!r}, which is in another document")
    found: Any = document
    for key in unquote(ref[2:]).split("/"):
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            raise LeftOut(f"it refers to {ref!r}, which is not there")
    return found


class Schemas:
    """The schemas of one operation, with what references name in their place; one within itself is any value."""

    def __init__(self, document: Json) -> None:
        self._document = document
        self._num_values = 0

    def read(self, value: Any) -> Json:
        """A schema as JSON Schema 2020-12. Raises LeftOut where it is too large to show to a model."""
        return as_mapping(self._expand_schema(value, (), 0))

    def _expand_schema(self, value: Any, inside: tuple[str, ...], depth: int) -> Any:
        self._count_value(depth)
        if isinstance(value, list):
            return [self._expand_schema(child, inside, depth + 1) for child in value]
        if not isinstance(value, dict):
            return value
        if isinstance(value.get("$ref"), str):
            return self._expand_reference(value, inside, depth)
        return _with_null(value, dict(self._expand_keywords(value, inside, depth)))

    def _expand_reference(self, value: Json, inside: tuple[str, ...], depth: int) -> Any:
        ref = value["$ref"]
        if ref in inside:
            return {}
        found = self._expand_schema(_find_target(self._document, ref), (*inside, ref), depth + 1)
        beside = self._expand_schema({key: child for key, child in value.items() if key != "$ref"}, inside, depth + 1)
        if not beside or not isinstance(found, dict):
            return found
        return {**found, **beside} if not beside.keys() & found.keys() - {"description"} else {"allOf": [found, beside]}

    def _expand_keywords(self, schema: Json, inside: tuple[str, ...], depth: int) -> Iterator[tuple[str, Any]]:
        read_only = {name for name, one in as_mapping(schema.get("properties")).items() if self._is_read_only(one)}
        for key, child in _as_json_schema(schema):
            if key == "required":
                yield key, [name for name in as_list(child) if isinstance(name, str) and name not in read_only]
            elif key in _DATA:
                self._count_data(child, depth)
                yield key, child
            elif key in _BY_NAME and isinstance(child, dict):
                named = {name: one for name, one in child.items() if name not in read_only or key != "properties"}
                yield key, {name: self._expand_schema(one, inside, depth + 1) for name, one in named.items()}
            else:
                yield key, self._expand_schema(child, inside, depth + 1)

    def _is_read_only(self, schema: Any) -> bool:
        """Whether a property is for answers alone."""
        return follow(self._document, schema).get("readOnly") is True

    def _count_data(self, value: Any, depth: int) -> None:
        self._count_value(depth)
        children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for child in children:
            self._count_data(child, depth + 1)

    def _count_value(self, depth: int) -> None:
        self._num_values += 1
        if self._num_values > _MAX_VALUES or depth > _MAX_DEPTH:
            raise LeftOut(f"its schemas have more than {_MAX_VALUES:,} values or {_MAX_DEPTH} levels")


def _as_json_schema(schema: Json) -> Iterator[tuple[str, Any]]:
    """The keywords without those for people; OpenAPI 3.0's bounds that are booleans as JSON Schema says them."""
    for key, child in schema.items():
        if key in _FOR_PEOPLE or key.startswith("x-"):
            continue
        if key in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(child, bool):
            continue
        bound = f"exclusive{key.capitalize()}"
        yield (bound, child) if key in ("minimum", "maximum") and schema.get(bound) is True else (key, child)


def _with_null(expanded: Json, schema: Json) -> Json:
    """OpenAPI 3.0's `nullable` as a type."""
    if expanded.get("nullable") is not True:
        return schema
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]} if schema else schema


def merged_object(schema: Json) -> Json | None:
    """An object's schema with the properties of its `allOf` as its own; None for what is no object of named fields."""
    properties, required = dict(as_mapping(schema.get("properties"))), as_list(schema.get("required"))
    for part in as_list(schema.get("allOf")):
        merged = merged_object(as_mapping(part))
        if merged is None and set(as_mapping(part)) - {"required", "description", "title"}:
            return None
        properties |= {} if merged is None else merged["properties"]
        required = [*required, *as_list((merged or as_mapping(part)).get("required"))]
    if schema.get("type", "object") != "object" or not properties or "oneOf" in schema:
        return None
    return {"type": "object", "properties": properties, "required": list(dict.fromkeys(required))}
