"""Parts of an OpenAPI document: references followed, schemas in the words of JSON Schema 2020-12. Pure.

A document may be anybody's: a part of another type than it should have reads as an empty one, and what is taken of it
for one operation is bounded, however its references and anchors multiply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from rlf.tools.encoding import Encoding

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


class NotATool(Exception):
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


def resolve_reference(document: Json, value: Any) -> Json:
    """The mapping that a part is or refers to; a `description` beside the reference wins."""
    seen = set()
    own: Json = {}
    while isinstance(value, dict) and isinstance(value.get("$ref"), str):
        ref = value["$ref"]
        if ref in seen:
            raise NotATool(f"it refers to {ref!r}, which refers to itself")
        seen.add(ref)
        own = {key: child for key, child in value.items() if key in ("summary", "description")} | own
        value = _find_target(document, ref)
    return {**as_mapping(value), **own}


def _find_target(document: Json, ref: str) -> Any:
    """The target of a JSON pointer; it may be percent-encoded, as part of a URI."""
    if not ref.startswith("#/"):
        raise NotATool(f"it refers to {ref!r}, which is in another document")
    found: Any = document
    for key in unquote(ref[2:]).split("/"):
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            raise NotATool(f"it refers to {ref!r}, which is not there")
    return found


class Schemas:
    """The schemas of one operation, with what references name in their place; one within itself is any value."""

    def __init__(self, document: Json) -> None:
        self._document = document
        self._num_values = 0

    def read(self, value: Any) -> Json:
        """A schema as JSON Schema 2020-12. Raises NotATool where it is too large to show to a model."""
        return as_mapping(self._expand_schema(value, (), 0))

    def _expand_schema(self, value: Any, inside: tuple[str, ...], depth: int) -> Any:
        self._count_value(depth)
        if isinstance(value, list):
            return [self._expand_schema(child, inside, depth + 1) for child in value]
        if not isinstance(value, dict):
            return value
        if isinstance(value.get("$ref"), str):
            return self._expand_reference(value, inside, depth)
        schema = dict(self._expand_keywords(value, inside, depth))
        if value.get("nullable") is not True:
            return schema
        if isinstance(schema.get("type"), str):
            return {**schema, "type": [schema["type"], "null"]}
        return {"anyOf": [schema, {"type": "null"}]} if schema else schema

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
        properties = as_mapping(schema.get("properties"))
        found = {name: resolve_reference(self._document, one).get("readOnly") for name, one in properties.items()}
        read_only = {name for name, is_for_answers in found.items() if is_for_answers is True}
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

    def _count_data(self, value: Any, depth: int) -> None:
        self._count_value(depth)
        children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for child in children:
            self._count_data(child, depth + 1)

    def _count_value(self, depth: int) -> None:
        self._num_values += 1
        if self._num_values > _MAX_VALUES or depth > _MAX_DEPTH:
            raise NotATool(f"its schemas have more than {_MAX_VALUES:,} values or {_MAX_DEPTH} levels")


def _as_json_schema(schema: Json) -> Iterator[tuple[str, Any]]:
    """The keywords without those for people; OpenAPI 3.0's bounds that are booleans as JSON Schema says them."""
    for key, child in schema.items():
        if key in _FOR_PEOPLE or key.startswith("x-"):
            continue
        if key in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(child, bool):
            continue
        bound = f"exclusive{key.capitalize()}"
        yield (bound, child) if key in ("minimum", "maximum") and schema.get(bound) is True else (key, child)


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


# The arguments that an operation's parameters and body fields become, each under a name of its own. Pure.

_NOT_FREE = re.compile(
    "and|calls|cycler|dict|else|[fF]alse|if|in|is|joiner|lipsum|loop|namespace|[nN]one|not|or|range|response|self|[tT]rue"
)
"""Names that a template, or rlf in one, takes for something else."""


@dataclass(slots=True)
class Arguments:
    """The arguments so far, as `inputSchema` says them."""

    properties: Json = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    depend: dict[str, list[str]] = field(default_factory=dict)
    """Arguments that must come with another."""

    def add(self, name: str, schema: Json, *, place: str, required: bool) -> str:
        """The argument's name: the parameter's as a template can say it, with its place before it where it is taken.

        Args:
            place: `path`, `query` or `body`.
        """
        argument = self._free_name(name, place)
        self.properties[argument] = schema
        if required:
            self.required.append(argument)
        return argument

    def _free_name(self, name: str, place: str) -> str:
        found = "".join(character if f"a{character}".isidentifier() else "_" for character in name)
        found = found.rstrip("_") if found != name else found
        wanted = found if found.isidentifier() else f"_{found}" if found else "argument"
        names = [wanted, f"{place}_{wanted}", *(f"{wanted}_{number}" for number in range(2, len(self.properties) + 3))]
        return next(one for one in names if one not in self.properties and not _NOT_FREE.fullmatch(one))

    def schema(self) -> Json:
        """The `inputSchema`."""
        found: Json = {"type": "object", "properties": self.properties}
        found |= {"required": self.required} if self.required else {}
        return found | ({"dependentRequired": self.depend} if self.depend else {})


def filled(argument: str) -> str:
    """The template of an argument alone."""
    return f"{{{{ {argument} }}}}"


# Parameters of path and query in every style that OpenAPI 3 has (3.1.1, "Style Values" and "Style Examples"). Pure.

_IN_BRACES = re.compile(r"{([^{}]+)}")
_IN_A_PATH = "/:@!$&'()*+,;=~"
_NEVER_PARAMETERS = frozenset({"accept", "content-type", "authorization"})
"""Headers that OpenAPI describes elsewhere."""


@dataclass(frozen=True, slots=True)
class DocumentParameter:
    """A parameter as a document says it."""

    name: str
    place: str
    required: bool
    schema: Json
    style: str
    explode: bool
    is_json: bool
    """Whether it is described by `content`, and written as JSON."""

    @property
    def is_object(self) -> bool:
        return self.schema.get("type") == "object" or "properties" in self.schema

    @property
    def is_list(self) -> bool:
        return self.schema.get("type") == "array"


def read_parameters(document: Json, schemas: Schemas, *lists: Any) -> list[DocumentParameter]:
    """The parameters of an operation, whose own take the place of those of its path."""
    written: dict[tuple[str, str], Json] = {}
    for one in (one for some in lists for one in as_list(some)):
        whole = resolve_reference(document, one)
        name, place = as_text(whole.get("name")), as_text(whole.get("in"))
        if not name or place not in ("path", "query", "header", "cookie"):
            raise NotATool(f"it has a parameter {name!r} in {place!r}; a parameter has a name and is in path or query")
        if place == "header" and name.lower() in _NEVER_PARAMETERS:
            continue
        written[place, name] = whole
    return [_read_parameter(schemas, place, name, whole) for (place, name), whole in written.items()]


def _read_parameter(schemas: Schemas, place: str, name: str, written: Json) -> DocumentParameter:
    content = as_mapping(written.get("content"))
    of_content = as_mapping(next(iter(content.values()), {}))
    is_json = bool(content) and next(iter(content)).split(";")[0].strip().endswith("json")
    schema = schemas.read(of_content.get("schema") if content else written.get("schema")) or {"type": "string"}
    if as_text(written.get("description")):
        schema = {**schema, "description": written["description"]}
    style = as_text(written.get("style")) or ("form" if place in ("query", "cookie") else "simple")
    explode = written.get("explode") if isinstance(written.get("explode"), bool) else style in ("form", "deepObject")
    return DocumentParameter(name, place, written.get("required") is True, schema, style, bool(explode), is_json)


def constant_headers(parameters: list[DocumentParameter]) -> dict[str, str]:
    """Headers that an operation needs and that can only be one value. Raises NotATool for others that it needs."""
    found = {}
    for parameter in parameters:
        if parameter.place in ("header", "cookie") and parameter.required:
            values = (
                [parameter.schema["const"]] if "const" in parameter.schema else as_list(parameter.schema.get("enum"))
            )
            if len(values) != 1 or parameter.place == "cookie":
                raise NotATool(f"it needs the {parameter.place} parameter {parameter.name!r}")
            found[parameter.name] = str(values[0])
    return found


def path_template(path: str, parameters: list[DocumentParameter], arguments: Arguments) -> str:
    """The path as a template of an address. Text of the document can hold neither a template nor a reference."""
    by_name = {parameter.name: parameter for parameter in parameters if parameter.place == "path"}
    parts, end = [], 0
    for match in _IN_BRACES.finditer(path):
        parameter = by_name.pop(match[1], None)
        if parameter is None:
            raise NotATool(f"its path has {match[1]!r}, which no parameter describes")
        argument = arguments.add(parameter.name, parameter.schema, place="path", required=True)
        parts += [quote(path[end : match.start()], safe=_IN_A_PATH + "%"), _in_path(parameter, argument)]
        end = match.end()
    if by_name:
        raise NotATool(f"it has the path parameter {next(iter(by_name))!r}, which is not in its path")
    return "".join([*parts, quote(path[end:], safe=_IN_A_PATH + "%")])


def _in_path(parameter: DocumentParameter, argument: str) -> str:
    name, style = quote(parameter.name, safe=""), parameter.style
    before = {"simple": "", "label": ".", "matrix": f";{name}="}.get(style)
    if before is None or parameter.is_json:
        raise NotATool(
            f"its path parameter {parameter.name!r} has the style {'content' if parameter.is_json else style!r}"
        )
    if not parameter.explode or not (parameter.is_list or parameter.is_object):
        return before + filled(argument)
    between = {"simple": ",", "label": ".", "matrix": ";"}[style]
    if parameter.is_list and style == "simple":
        return filled(argument)
    if parameter.is_list:
        return f"{{% for item in {argument} %}}{before}{{{{ item }}}}{{% endfor %}}"
    start = f"{between}{{{{ key }}}}={{{{ item }}}}"
    if style == "simple":
        start = f"{{% if not loop.first %}},{{% endif %}}{start[1:]}"
    return f"{{% for key, item in {argument}.items() %}}{start}{{% endfor %}}"


def query_templates(
    parameters: list[DocumentParameter], arguments: Arguments, taken: Mapping[str, Any]
) -> tuple[Json, Json]:
    """The query, and how lists and objects in it are written.

    Args:
        taken: what credentials put into the query.
    """
    query: Json = {}
    encoding: Json = {}
    for parameter in parameters:
        if parameter.place == "query" and parameter.name not in taken:
            argument = arguments.add(parameter.name, parameter.schema, place="query", required=parameter.required)
            query[parameter.name] = filled(argument)
            written = (
                Encoding.JSON
                if parameter.is_json
                else encoding_of(parameter.name, parameter.style, parameter.explode, parameter.is_object)
            )
            encoding |= {} if written is None else {parameter.name: str(written)}
    return query, encoding


def encoding_of(name: str, style: str, explode: bool, is_object: bool) -> Encoding | None:
    """How lists and objects of a style are written; None where rlf writes them so without being asked."""
    if style == "deepObject":
        return Encoding.DEEP
    if style == "form" and explode:
        return Encoding.FLAT if is_object else None
    if explode and style in ("spaceDelimited", "pipeDelimited"):
        return None
    found = {"form": Encoding.COMMA, "spaceDelimited": Encoding.SPACE, "pipeDelimited": Encoding.PIPE}.get(style)
    if found is None:
        raise NotATool(f"its parameter {name!r} has the style {style!r}")
    return found
