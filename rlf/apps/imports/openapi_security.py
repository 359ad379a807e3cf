"""Which credentials an operation is sent, where they stand, and the environment variables that hold them. Pure.

OpenAPI 3.1.1, "Security Requirement Object": an operation's own list takes the place of the document's, one of its
items is enough, all schemes of an item are needed, and an item without schemes (or an empty list) asks for none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from rlf.apps.imports.found import FromEnvironment, variable_name
from rlf.apps.imports.openapi_values import Json, NotATool, as_list, as_mapping, as_text, resolve_reference

_COOKIE_SAFE = "!#$%&'*+-.^_`|~"


@dataclass(frozen=True, slots=True)
class _Scheme:
    """Where a secret stands, and what it is called."""

    place: str
    """`header`, `query` or `cookie`."""
    name: str
    before: str
    suffix: str
    """The end of its variable's name."""
    hint: str = ""
    """What the variable holds, where that is not the key itself."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of a request."""

    headers: dict[str, FromEnvironment] = field(default_factory=dict)
    query: dict[str, FromEnvironment] = field(default_factory=dict)


class Security:
    """The schemes of a document, and those that its operations are sent."""

    def __init__(self, document: Json, operations: Iterable[Json]) -> None:
        """Reads the schemes.

        Args:
            operations: all of them, since one that leaves a choice takes what others need anyway.
        """
        self._default = document.get("security")
        written = as_mapping(as_mapping(document.get("components")).get("securitySchemes"))
        self._schemes = {name: _read_scheme(document, one) for name, one in written.items()}
        title = as_text(as_mapping(document.get("info")).get("title"))
        self._variables = _name_variables(title, {name: one for name, one in self._schemes.items() if one is not None})
        alternatives = [self._list_alternatives(operation) for operation in operations]
        asked = {name for some in alternatives for one in some for name in one}
        idle = [name for name in self._schemes if name not in asked]
        self._unused = [f"credentials: no operation asks for {', '.join(idle)}"] if idle and not asked else []
        self._needed = {name for one in alternatives if len(one) == 1 for name in one[0]}
        self._sent: set[str] = set()
        self._chosen: Counter[tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]] = Counter()

    def credentials(self, operation: Json) -> Credentials:
        """The credentials of an operation. Raises NotATool where it needs what no file can hold."""
        alternatives = self._list_alternatives(operation)
        possible = [one for one in alternatives if all(self._schemes.get(name) for name in one)]
        if not alternatives:
            return Credentials()
        if not possible:
            raise NotATool(
                f"it needs the credentials {' or '.join(map(_join_names, alternatives))}, which a tool file cannot hold"
            )
        chosen = min(possible, key=lambda one: (bool(one), not self._needed.issuperset(one)))
        if len(alternatives) > 1:
            self._chosen[chosen, tuple(one for one in alternatives if one != chosen)] += 1
        return self._fill_credentials(chosen)

    def notes(self) -> list[str]:
        """The choices that were made, and what variables hold that is not a key as it is."""
        chosen = [
            f"credentials: {_join_names(one)}, where the document also allows {' or '.join(map(_join_names, others))} "
            f"({number} operation{'s' if number > 1 else ''})"
            for (one, others), number in self._chosen.items()
        ]
        hints = [
            f"{self._variables[name]} holds {scheme.hint}"
            for name, scheme in self._schemes.items()
            if scheme is not None and scheme.hint and name in self._sent
        ]
        return [*self._unused, *chosen, *hints]

    def _list_alternatives(self, operation: Json) -> list[tuple[str, ...]]:
        required = operation.get("security", self._default)
        return [tuple(as_mapping(one)) for one in as_list(required)]

    def _fill_credentials(self, names: Sequence[str]) -> Credentials:
        credentials, cookies = Credentials(), []
        self._sent |= set(names)
        for name in names:
            scheme = self._schemes[name]
            assert scheme is not None, f"credentials of {name}, which a file cannot hold"
            value = f"{scheme.before}${{oc.env:{self._variables[name]}}}"
            if scheme.place == "cookie":
                cookies.append(f"{scheme.name}={value}")
            elif scheme.place == "query":
                credentials.query[scheme.name] = FromEnvironment(value)
            else:
                credentials.headers[scheme.name] = FromEnvironment(value)
        if cookies:
            credentials.headers["Cookie"] = FromEnvironment("; ".join(cookies))
        return credentials


def _join_names(names: Sequence[str]) -> str:
    return " and ".join(names) or "none"


def _read_scheme(document: Json, written: Any) -> _Scheme | None:
    """Reads a scheme; None where no file can hold its credentials, as with signatures and certificates."""
    try:
        written = resolve_reference(document, written)
    except NotATool:
        return None
    kind, way = written.get("type"), as_text(written.get("scheme")).lower()
    place, name = as_text(written.get("in")), as_text(written.get("name"))
    if kind in ("oauth2", "openIdConnect") or (kind == "http" and way == "bearer"):
        return _Scheme("header", "Authorization", "Bearer ", "TOKEN")
    if kind == "http" and way == "basic":
        return _Scheme("header", "Authorization", "Basic ", "PASSWORD", "the base64 of `user:password`")
    if kind != "apiKey" or not name:
        return None
    if place == "cookie":
        return _Scheme("cookie", quote(name, safe=_COOKIE_SAFE), "", "API_KEY")
    return _Scheme(place, name, "", "API_KEY") if place in ("header", "query") else None


def _name_variables(title: str, schemes: dict[str, _Scheme]) -> dict[str, str]:
    """A variable for each scheme: by the document's title, and by the scheme's name where several are of a sort."""
    sorts = Counter(scheme.suffix for scheme in schemes.values())
    found: dict[str, str] = {}
    for name, scheme in schemes.items():
        parts = (title, scheme.suffix) if sorts[scheme.suffix] == 1 else (title, name, scheme.suffix)
        variable = variable_name(*parts)
        numbers = (variable, *(f"{variable}_{number}" for number in range(2, len(schemes) + 2)))
        found[name] = next(one for one in numbers if one not in found.values())
    return found


# Swagger 2.0 documents in the words of OpenAPI 3, as far as operations need it. Pure.
#
# What stays where it is, is found there: `#/definitions/...` and `#/parameters/...` are references like any other.

_METHODS = ("get", "post", "put", "patch", "delete")
_STYLES: dict[str, Json] = {
    "csv": {"explode": False},
    "ssv": {"style": "spaceDelimited", "explode": False},
    "pipes": {"style": "pipeDelimited", "explode": False},
    "multi": {"style": "form", "explode": True},
    "tsv": {"style": "tsv"},
}
"""Swagger's `collectionFormat`; OpenAPI 3 has nothing for tabs."""
_OF_PARAMETERS = frozenset(
    {"name", "in", "description", "required", "schema", "collectionFormat", "allowEmptyValue", "$ref"}
)
_FORM, _MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"


def as_openapi(document: Json, source: str) -> Json:
    """The document as OpenAPI 3.

    Args:
        source: the document's own address, whose host and scheme serve where it names none.
    """
    kept = {key: child for key, child in document.items() if key not in ("swagger", "paths", "securityDefinitions")}
    schemes = {name: _convert_scheme(one) for name, one in as_mapping(document.get("securityDefinitions")).items()}
    paths = {path: _convert_path(document, item) for path, item in as_mapping(document.get("paths")).items()}
    about = {"openapi": "3.0.3", "servers": [{"url": _server_url(document, source)}], "paths": paths}
    return {**kept, **about, "components": {"securitySchemes": schemes}}


def _server_url(document: Json, source: str) -> str:
    base, host = as_text(document.get("basePath")), as_text(document.get("host"))
    if not host:
        return base or "/"
    schemes = [one for one in as_list(document.get("schemes")) if one in ("https", "http")]
    own = urlsplit(source).scheme
    scheme = "https" if "https" in schemes else schemes[0] if schemes else own if own in ("http", "https") else "https"
    return f"{scheme}://{host}{base}"


def _convert_scheme(written: Any) -> Json:
    written = as_mapping(written)
    return {"type": "http", "scheme": "basic"} if written.get("type") == "basic" else written


def _convert_path(document: Json, written: Any) -> Any:
    try:
        item = resolve_reference(document, written)
    except NotATool:  # found again where the path's operations are listed
        return written
    shared = as_list(item.get("parameters"))
    methods = {method: _convert_operation(document, item[method], shared) for method in _METHODS if method in item}
    return {**{key: child for key, child in item.items() if key not in (*_METHODS, "parameters")}, **methods}


def _convert_operation(document: Json, written: Any, shared: list[Any]) -> Json:
    written = as_mapping(written)
    try:
        given = [resolve_reference(document, one) for one in (*shared, *as_list(written.get("parameters")))]
    except NotATool:  # found again, with its operation, where the parameters are read
        return {**written, "parameters": [*shared, *as_list(written.get("parameters"))]}
    parameters = list({(as_text(one.get("in")), as_text(one.get("name"))): one for one in given}.values())
    own = {key: child for key, child in written.items() if key not in ("parameters", "consumes", "schemes")}
    own["parameters"] = [_convert_parameter(one) for one in parameters if one.get("in") not in ("body", "formData")]
    consumes = [as_text(one) for one in as_list(written.get("consumes", document.get("consumes")))]
    if body := _convert_body(parameters, consumes):
        own["requestBody"] = body
    return own


def _convert_parameter(written: Json) -> Json:
    kept: Json = {key: written[key] for key in ("name", "in", "description", "required") if key in written}
    schema = {key: child for key, child in written.items() if key not in _OF_PARAMETERS}
    style = (
        _STYLES.get(as_text(written.get("collectionFormat")), {"explode": False})
        if schema.get("type") == "array"
        else {}
    )
    if schema.get("type") == "file":  # which OpenAPI 3 says as a format
        schema |= {"type": "string", "format": "binary"}
    return {**kept, **style, "schema": schema}


def _convert_body(parameters: list[Json], consumes: list[str]) -> Json:
    for one in parameters:
        if one.get("in") == "body":
            kinds = consumes or ["application/json"]
            content = {kind: {"schema": as_mapping(one.get("schema"))} for kind in kinds}
            about: Json = {key: one[key] for key in ("description", "required") if key in one}
            return {**about, "content": content}
    fields = [one for one in parameters if one.get("in") == "formData"]
    if not fields:
        return {}
    field_schemas = {as_text(one.get("name")): _convert_parameter(one) for one in fields}
    properties = {
        name: {**one["schema"], **({"description": one["description"]} if "description" in one else {})}
        for name, one in field_schemas.items()
    }
    required = [name for name, one in field_schemas.items() if one.get("required") is True]
    has_file = any(one.get("type") == "file" for one in fields)
    kind = _MULTIPART if has_file or (_MULTIPART in consumes and _FORM not in consumes) else _FORM
    encoding = {
        name: {key: one[key] for key in ("style", "explode") if key in one} for name, one in field_schemas.items()
    }
    schema = {"type": "object", "properties": properties, "required": required}
    content = {kind: {"schema": schema, "encoding": {name: one for name, one in encoding.items() if one}}}
    return {"required": bool(required), "content": content}
