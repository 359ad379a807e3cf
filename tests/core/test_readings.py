"""Which readings of a value a schema accepts, whatever words say so and however deep it stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import pytest

from rlf.core.readings import ANYTHING, Readings
from rlf.tools.misfits import coerced

Schema = Mapping[str, Any]

WRAPPERS: Mapping[str, Callable[[Schema], Schema]] = {
    "plain": lambda schema: schema,
    "allOf": lambda schema: {"allOf": [{"description": "x"}, schema]},
    "anyOf": lambda schema: {"anyOf": [{"type": "null"}, schema]},
    "oneOf": lambda schema: {"oneOf": [schema, {"type": "null"}]},
    "$ref": lambda schema: {"$ref": "#/$defs/it"},
    "$ref in anyOf": lambda schema: {"anyOf": [{"$ref": "#/$defs/it"}, {"type": "null"}]},
    "if": lambda schema: {"if": True, "then": schema},
    "nested": lambda schema: {"allOf": [{"anyOf": [{"oneOf": [schema]}]}]},
}
"""Ways to say the same of a value."""
SCHEMAS: Mapping[str, tuple[Schema, str, Any]] = {
    "integer": ({"type": "integer"}, "3", 3),
    "bounded": ({"type": "integer", "minimum": 2}, "3", 3),
    "number": ({"type": "number"}, "1.5", 1.5),
    "boolean": ({"type": "boolean"}, "true", True),
    "enum of numbers": ({"enum": [3, 4]}, "3", 3),
    "const": ({"const": 3}, "3", 3),
    "object": ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{"a": 1}', {"a": 1}),
    "array": ({"type": "array", "items": {"type": "integer"}, "minItems": 1}, "[1, 2]", [1, 2]),
    "text": ({"type": "string"}, "3", "3"),
    "enum of texts": ({"enum": ["3", "true"]}, "3", "3"),
    "const text": ({"const": "null"}, "null", "null"),
    "pattern": ({"type": "string", "pattern": "^[0-9]$"}, "3", "3"),
    "not a number": ({"not": {"type": ["number", "boolean", "null", "array", "object"]}}, "3", "3"),
}
"""A schema, a text, and what the text is by the schema alone."""
PLACES: Mapping[str, tuple[Callable[[Schema], Schema], Callable[[Any], Any]]] = {
    "argument": (lambda schema: schema, lambda value: value),
    "item": (lambda schema: {"type": "array", "items": schema}, lambda value: [value]),
    "tuple": (lambda schema: {"type": "array", "prefixItems": [{}, schema]}, lambda value: ["7", value]),
    "property": (lambda schema: {"type": "object", "properties": {"p": schema}}, lambda value: {"p": value, "q": "7"}),
    "any property": (lambda schema: {"type": "object", "additionalProperties": schema}, lambda value: {"p": value}),
    "in a choice": (
        lambda schema: {"anyOf": [{"type": "object", "properties": {"p": schema}}, {"type": "null"}]},
        lambda value: {"p": value},
    ),
}
"""Where the value stands, and a value with it there."""


def _readings(schema: Schema, definition: Schema) -> Readings:
    return Readings({"type": "object", "properties": {"x": schema}, "$defs": {"it": definition}})


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_bare_text_is_read_as_what_the_schema_accepts(wrapper: str, name: str) -> None:
    schema, text, value = SCHEMAS[name]
    read = _readings(WRAPPERS[wrapper](schema), schema).read_text("x", text)
    may_be_null = text == "null" and wrapper in ("anyOf", "oneOf", "$ref in anyOf")
    assert (read, type(read)) == ((None, type(None)) if may_be_null else (value, type(value)))


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_text_is_coerced_wherever_it_stands(name: str) -> None:
    schema, text, value = SCHEMAS[name]
    for (wrapper, wrap), (place, (describe, put)) in product(WRAPPERS.items(), PLACES.items()):
        readings = _readings(describe(wrap(schema)), schema)
        assert coerced(readings.validator, {"x": put(text)}) == {"x": put(value)}, (wrapper, place)


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_names_its_types(name: str, wrapper: str) -> None:
    schema, _, value = SCHEMAS[name]
    said = _readings(WRAPPERS[wrapper](schema), schema).admitted("x").in_words()
    kinds = {int: "integer", float: "number", bool: "boolean", str: "string", list: "array", dict: "object"}
    expected = f"one of {value!r}" if {"enum", "const"} & schema.keys() else kinds[type(value)]
    assert said.startswith(expected) and said.endswith("null") == ("null" in wrapper or wrapper in _NULLABLE)


_NULLABLE = ("anyOf", "oneOf", "$ref in anyOf")


def test_choices_and_types_are_named_together() -> None:
    schema = {"anyOf": [{"enum": ["a", 1]}, {"const": True}, {"type": "array"}, {"type": "null"}]}
    assert _readings(schema, {}).admitted("x").in_words() == "one of 'a', 1, True or array or null"


@pytest.mark.parametrize(
    "arguments", [{"x": "three"}, {"x": "03"}, {"x": " 3"}, {"x": '"3"'}, {"x": "NaN"}, {"x": "1e999"}]
)
def test_a_text_that_does_not_say_exactly_what_is_asked_for_is_not_coerced(arguments: Any) -> None:
    assert coerced(_readings({"type": ["number", "null"]}, {}).validator, arguments) is None


def test_texts_that_are_valid_stay_beside_those_that_are_coerced() -> None:
    one = {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    other = {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    readings = _readings({"type": "object", "anyOf": [one, other]}, {})
    assert coerced(readings.validator, {"x": {"a": "1", "b": "2"}}) == {"x": {"a": 1, "b": "2"}}


def test_a_text_within_a_text_is_coerced() -> None:
    schema = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": ["integer", "null"]}}}}
    assert coerced(_readings(schema, {}).validator, '{"x": "[{\\"n\\": \\"1\\"}, {\\"n\\": \\"null\\"}]"}') == {
        "x": [{"n": 1}, {"n": None}]
    }


def test_coercion_ends_whatever_the_choices_are() -> None:
    choice = {"anyOf": [{"type": "object", "properties": {name: {"type": "integer"}}} for name in "abcdefgh"]}
    schema = {"type": "array", "items": {"allOf": [choice, {"required": ["z"]}]}}
    assert coerced(_readings(schema, {}).validator, {"x": [dict.fromkeys("abcdefgh", "1")] * 50}) is None


def test_a_recursive_schema_is_read_at_every_level() -> None:
    node = {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/it"}}}
    readings = _readings({"$ref": "#/$defs/it"}, node)
    assert coerced(readings.validator, {"x": {"n": "1", "next": {"n": "2"}}}) == {"x": {"n": 1, "next": {"n": 2}}}


@pytest.mark.parametrize("text", ["3", "true", "null", "[1]", '{"a": 1}', "words"])
def test_without_a_schema_any_text_is_its_json(text: str) -> None:
    assert coerced(ANYTHING.validator, {"x": text}) == {"x": text}
    read = ANYTHING.read_text("x", text)
    assert isinstance(read, str) == (text == "words")
