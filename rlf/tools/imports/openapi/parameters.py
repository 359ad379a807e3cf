"""Parameters of path and query in every style that OpenAPI 3 has (3.1.1, "Style Values" and "Style Examples"). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rlf.tools.http.encoding import Encoding
from rlf.tools.imports.openapi.arguments import Arguments, filled
from rlf.tools.imports.openapi.values import Json, LeftOut, Schemas, as_list, as_mapping, as_text, follow

_IN_BRACES = re.compile(r"{([^{}]+)}")
_IN_A_PATH = "/:@!$&'()*+,;=~"
_NEVER_PARAMETERS = frozenset({"accept", "content-type", "authorization"})
"""Headers that OpenAPI describes elsewhere."""


@dataclass(frozen=True, slots=True)
class Parameter:
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


def read_parameters(document: Json, schemas: Schemas, *lists: Any) -> list[Parameter]:
    """The parameters of an operation, whose own take the place of those of its path."""
    written: dict[tuple[str, str], Json] = {}
    for one in (one for some in lists for one in as_list(some)):
        whole = follow(document, one)
        name, place = as_text(whole.get("name")), as_text(whole.get("in"))
        if not name or place not in ("path", "query", "header", "cookie"):
            raise LeftOut(f"it has a parameter {name!r} in {place!r}; a parameter has a name and is in path or query")
        if place == "header" and name.lower() in _NEVER_PARAMETERS:
            continue
        written[place, name] = whole
    return [_read_parameter(schemas, place, name, whole) for (place, name), whole in written.items()]


def _read_parameter(schemas: Schemas, place: str, name: str, written: Json) -> Parameter:
    content = as_mapping(written.get("content"))
    of_content = as_mapping(next(iter(content.values()), {}))
    is_json = bool(content) and next(iter(content)).split(";")[0].strip().endswith("json")
    schema = schemas.read(of_content.get("schema") if content else written.get("schema")) or {"type": "string"}
    if as_text(written.get("description")):
        schema = {**schema, "description": written["description"]}
    style = as_text(written.get("style")) or ("form" if place in ("query", "cookie") else "simple")
    explode = written.get("explode") if isinstance(written.get("explode"), bool) else style in ("form", "deepObject")
    return Parameter(name, place, written.get("required") is True, schema, style, bool(explode), is_json)


def constant_headers(parameters: list[Parameter]) -> dict[str, str]:
    """Headers that an operation needs and that can only be one value. Raises LeftOut for others that it needs."""
    found = {}
    for parameter in parameters:
        if parameter.place in ("header", "cookie") and parameter.required:
            values = (
                [parameter.schema["const"]] if "const" in parameter.schema else as_list(parameter.schema.get("enum"))
            )
            if len(values) != 1 or parameter.place == "cookie":
                raise LeftOut(f"it needs the {parameter.place} parameter {parameter.name!r}")
            found[parameter.name] = str(values[0])
    return found


def path_template(path: str, parameters: list[Parameter], arguments: Arguments) -> str:
    """The path as a template of an address. Text of the document can hold neither a template nor a reference."""
    by_name = {parameter.name: parameter for parameter in parameters if parameter.place == "path"}
    parts, end = [], 0
    for match in _IN_BRACES.finditer(path):
        parameter = by_name.pop(match[1], None)
        if parameter is None:
            raise LeftOut(f"its path has {match[1]!r}, which no parameter describes")
        argument = arguments.add(parameter.name, parameter.schema, place="path", required=True)
        parts += [quote(path[end : match.start()], safe=_IN_A_PATH + "%"), _in_path(parameter, argument)]
        end = match.end()
    if by_name:
        raise LeftOut(f"it has the path parameter {next(iter(by_name))!r}, which is not in its path")
    return "".join([*parts, quote(path[end:], safe=_IN_A_PATH + "%")])


def _in_path(parameter: Parameter, argument: str) -> str:
    name, style = quote(parameter.name, safe=""), parameter.style
    before = {"simple": "", "label": ".", "matrix": f";{name}="}.get(style)
    if before is None or parameter.is_json:
        raise LeftOut(
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


def query_templates(parameters: list[Parameter], arguments: Arguments, taken: Mapping[str, Any]) -> tuple[Json, Json]:
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
        raise LeftOut(f"its parameter {name!r} has the style {style!r}")
    return found
