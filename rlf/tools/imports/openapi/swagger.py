"""Swagger 2.0 documents in the words of OpenAPI 3, as far as operations need it. Pure.

What stays where it is, is found there: `#/definitions/...` and `#/parameters/...` are references like any other.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from rlf.tools.imports.openapi.values import Json, LeftOut, as_list, as_mapping, as_text, follow

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
        item = follow(document, written)
    except LeftOut:  # found again where the path's operations are listed
        return written
    shared = as_list(item.get("parameters"))
    methods = {method: _convert_operation(document, item[method], shared) for method in _METHODS if method in item}
    return {**{key: child for key, child in item.items() if key not in (*_METHODS, "parameters")}, **methods}


def _convert_operation(document: Json, written: Any, shared: list[Any]) -> Json:
    written = as_mapping(written)
    try:
        given = [follow(document, one) for one in (*shared, *as_list(written.get("parameters")))]
    except LeftOut:  # found again, with its operation, where the parameters are read
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
