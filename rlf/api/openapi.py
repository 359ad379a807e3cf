"""OpenAPI 3 operations as tools of kind `http`: path, query and body mapped from named arguments. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlf.core.errors import RlfError
from rlf.tools.imports.found import FromEnvironment, refuse_references

Json = dict[str, Any]

_METHODS = ("get", "post", "put", "patch", "delete")
_REPEATABLE = ("get", "put", "delete")
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_BODY = "body"


@dataclass(slots=True)
class Operations:
    """What a document offers."""

    tools: list[Json] = field(default_factory=list)
    """Declarations as a tool file holds them."""
    left_out: list[str] = field(default_factory=list)
    """Operations that no declaration can make, with the reason."""
    variables: list[str] = field(default_factory=list)
    """Environment variables that the declarations take credentials from."""


def read_operations(document: Any, *, base_url: str | None = None) -> Operations:
    """Every operation of a document.

    Args:
        base_url: where the service is, in place of the document's first server.

    Raises:
        RlfError: it is no OpenAPI 3 document, or says no address.
    """
    if not isinstance(document, dict) or not str(document.get("openapi", "")).startswith("3"):
        raise RlfError("this is no OpenAPI 3 document; its first key is `openapi: 3...`. Convert it to OpenAPI 3.")
    url = FromEnvironment(base_url) if base_url else _server_url(document)
    found = Operations()
    headers = _credentials(document, found.variables)
    for path, item in document.get("paths", {}).items():
        for method in _METHODS:
            if method in item:
                try:
                    found.tools.append(_Operation(document, path, method, item).tool(url, headers))
                except _LeftOut as reason:
                    found.left_out.append(f"{method.upper()} {path}: {reason}")
    return found


class _LeftOut(Exception):
    """Why an operation is no tool."""


class _Operation:
    def __init__(self, document: Json, path: str, method: str, item: Json) -> None:
        self._document = document
        self._path = path
        self._method = method
        self._says: Json = item[method]
        parameters = [_whole(document, one) for one in (*item.get("parameters", ()), *self._says.get("parameters", ()))]
        self._parameters = {(one["in"], one["name"]): one for one in parameters}

    def tool(self, url: str, headers: Mapping[str, str]) -> Json:
        """The declaration."""
        properties: Json = {}
        required: list[str] = []
        target: Json = {"kind": "http", "url": self._url(url), "method": self._method.upper()}
        query: Json = {}
        for (place, name), parameter in self._parameters.items():
            if place not in ("path", "query"):
                if parameter.get("required"):
                    raise _LeftOut(f"it needs the {place} parameter {name!r}")
                continue
            argument = self._argument(name, properties)
            properties[argument] = _described(parameter)
            if parameter.get("required") or place == "path":
                required.append(argument)
            if place == "query":
                query[name] = _filled(argument)
        body = self._body(properties, required)
        target |= {"query": query} if query or body is None else {}
        target |= {} if body is None else {"body": body}
        target |= {"headers": dict(headers)} if headers else {}
        schema = {"type": "object", "properties": properties, **({"required": required} if required else {})}
        about = {"name": self._name(), "description": self._description(), "inputSchema": schema, "target": target}
        return about | ({"idempotent": True} if self._method in _REPEATABLE else {})

    def _url(self, url: str) -> str:
        names = {name for place, name in self._parameters if place == "path"}
        for name in re.findall(r"{([^{}]+)}", self._path):
            if name not in names:
                raise _LeftOut(f"its path has {name!r}, which no parameter describes")
        return url.rstrip("/") + re.sub(r"{([^{}]+)}", lambda match: _filled(_identifier(match[1])), self._path)

    def _argument(self, name: str, taken: Mapping[str, Any]) -> str:
        argument = _identifier(name)
        if argument in taken:
            raise _LeftOut(f"it has two parameters {name!r}")
        return argument

    def _body(self, properties: Json, required: list[str]) -> Any:
        """The template of the body, with its arguments added; None where there is none."""
        says = _whole(self._document, self._says.get("requestBody", {}))
        if not says:
            return None
        content = says.get("content", {})
        kinds = [kind for kind in content if kind.split(";")[0].strip().endswith("json")]
        if not kinds:
            raise _LeftOut(f"its body is {', '.join(content) or 'nothing'} and no JSON")
        schema = _whole(self._document, content[kinds[0]].get("schema", {}))
        fields = schema.get("properties", {})
        if schema.get("type") != "object" or not fields or any(_identifier(name) in properties for name in fields):
            properties[_BODY] = schema
            required += [_BODY] if says.get("required") else []
            return _filled(_BODY)
        properties |= {_identifier(name): one for name, one in fields.items()}
        required += [_identifier(name) for name in schema.get("required", ())]
        return {name: _filled(_identifier(name)) for name in fields}

    def _name(self) -> str:
        said = self._says.get("operationId") or f"{self._method}_{self._path}"
        name = _NO_NAME.sub("_", said).strip("_-")[:64]
        return name if name and not name[0].isdigit() else f"_{name}"[:64]

    def _description(self) -> str:
        said = [self._says.get("summary", ""), self._says.get("description", "")]
        words = " ".join(dict.fromkeys(text.strip() for text in said if text and text.strip()))
        return words or f"{self._method.upper()} {self._path}"


def _described(parameter: Json) -> Json:
    """A parameter's schema with what is said of it."""
    schema: Json = parameter.get("schema") or {"type": "string"}
    return {**schema, **({"description": parameter["description"]} if parameter.get("description") else {})}


def _filled(argument: str) -> str:
    return f"{{{{ {argument} }}}}"


def _identifier(name: str) -> str:
    """An argument's name as a template can say it."""
    return re.sub(r"\W", "_", name)


def _server_url(document: Json) -> str:
    servers = document.get("servers", ())
    url = str(servers[0].get("url", "")) if servers else ""
    for name, variable in (servers[0].get("variables", {}) if servers else {}).items():
        url = url.replace(f"{{{name}}}", str(variable.get("default", "")))
    refuse_references(url)
    if not url.startswith(("http://", "https://")):
        raise RlfError(f"the document says no address (servers: {url or 'none'}). Give it with --url.")
    return url


def _credentials(document: Json, variables: list[str]) -> dict[str, str]:
    """Headers for the document's first scheme that is one, with the variable that holds the secret."""
    title = _NO_NAME.sub("_", str(document.get("info", {}).get("title", "service"))).strip("_-").upper()
    for scheme in document.get("components", {}).get("securitySchemes", {}).values():
        if scheme.get("type") == "http" and scheme.get("scheme", "").lower() == "bearer":
            variables.append(f"{title}_TOKEN")
            return {"Authorization": FromEnvironment(f"Bearer ${{oc.env:{title}_TOKEN}}")}
        if scheme.get("type") == "apiKey" and scheme.get("in") == "header":
            variables.append(f"{title}_API_KEY")
            return {scheme["name"]: FromEnvironment(f"${{oc.env:{title}_API_KEY}}")}
    return {}


def _whole(document: Json, value: Any, inside: frozenset[str] = frozenset()) -> Any:
    """The value with every `$ref` into the document replaced by what it names; one within itself is any value."""
    if isinstance(value, list):
        return [_whole(document, child, inside) for child in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        ref = str(value["$ref"])
        return {} if ref in inside else _whole(document, _named(document, ref), inside | {ref})
    return {key: _whole(document, child, inside) for key, child in _as_json_schema(value)}


def _named(document: Json, ref: str) -> Any:
    if not ref.startswith("#/"):
        raise _LeftOut(f"it refers to {ref!r}, which is in another document")
    found: Any = document
    for key in ref[2:].split("/"):
        key = key.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or key not in found:
            raise _LeftOut(f"it refers to {ref!r}, which is not there")
        found = found[key]
    return found


def _as_json_schema(value: Json) -> Iterator[tuple[str, Any]]:
    """OpenAPI 3.0's own words for what JSON Schema says otherwise: `nullable`, and bounds that are booleans."""
    for key, child in value.items():
        if key == "nullable" and isinstance(child, bool):
            continue
        if key in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(child, bool):
            continue
        bound = f"exclusive{key.capitalize()}"
        if key in ("minimum", "maximum") and value.get(bound) is True:
            yield bound, child
            continue
        if key == "type" and isinstance(child, str) and value.get("nullable") is True:
            yield key, [child, "null"]
        else:
            yield key, child
