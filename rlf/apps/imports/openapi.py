"""OpenAPI 3 and Swagger 2 documents as tools of kind `http`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

from rlf.apps.imports.found import FromEnvironment, ToolImport, as_tool_name, refuse_references, variable_name
from rlf.apps.imports.openapi_security import Security, as_openapi
from rlf.apps.imports.openapi_values import (
    Arguments,
    Json,
    NotATool,
    Schemas,
    as_list,
    as_mapping,
    as_text,
    constant_headers,
    encoding_of,
    filled,
    merged_object,
    path_template,
    query_templates,
    read_parameters,
    resolve_reference,
)
from rlf.core.errors import RlfError
from rlf.tools.encoding import BodyFormat, Encoding

__all__ = ["read_operations"]

# The body of an operation: its fields as arguments, and how they are written. Pure.

_BODY = "body"
_FORM, _MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
_TEXTS = ("application/xml", "application/octet-stream")


@dataclass(slots=True)
class Body:
    """A body as a target says it."""

    target: Json = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


def read_body(document: Json, schemas: Schemas, written: Any, arguments: Arguments) -> Body:
    """The body that an operation asks for, with its arguments added; none where it asks for none.

    Raises:
        NotATool: it is of a type that arguments cannot be written in.
    """
    whole = resolve_reference(document, written)
    content = as_mapping(whole.get("content"))
    if not whole:
        return Body()
    kind = _choose_type(list(content))
    is_form = _strip_parameters(kind) in (_FORM, _MULTIPART)
    media = as_mapping(content[kind])
    schema, required = schemas.read(media.get("schema")), whole.get("required") is True
    if _is_text(kind):
        schema = {**schema, "type": "string"}
    about = as_text(whole.get("description"))
    optional = {} if required else {"body_required": False}
    fields = None if _is_text(kind) else merged_object(schema)
    if fields is None:
        if is_form and required:
            raise NotATool(f"its body is {kind} without named fields")
        if is_form:
            return Body()
        one = {**schema, "description": about} if about and "description" not in schema else schema
        argument = arguments.add(_BODY, one, place=_BODY, required=required)
        headers = {} if _is_plain(kind) else {"Content-Type": kind}
        return Body({"body": filled(argument), **optional}, headers)
    body = _body_template(fields, arguments, required)
    if not is_form:
        return Body({"body": body, **optional}, {} if _is_plain(kind) else {"Content-Type": kind})
    way = BodyFormat.FORM if _strip_parameters(kind) == _FORM else BodyFormat.MULTIPART
    encoding = _field_encodings(fields, as_mapping(media.get("encoding")), way)
    return Body({"body": body, "body_format": str(way), **optional, **({"encoding": encoding} if encoding else {})})


def _choose_type(kinds: list[str]) -> str:
    """The type that arguments are written in: JSON before forms before text."""
    ways = (
        _is_json,
        lambda kind: _strip_parameters(kind) == _FORM,
        lambda kind: _strip_parameters(kind) == _MULTIPART,
        _is_text,
    )
    found = next((kind for way in ways for kind in kinds if way(kind)), None)
    if found is None:
        raise NotATool(f"its body is {', '.join(kinds) or 'of no type'}; JSON, forms and text can be sent")
    return found


def _strip_parameters(kind: str) -> str:
    return kind.split(";")[0].strip().lower()


def _is_json(kind: str) -> bool:
    return _strip_parameters(kind).endswith(("/json", "+json")) or _strip_parameters(kind) in ("*/*", "application/*")


def _is_text(kind: str) -> bool:
    return (
        _strip_parameters(kind).startswith("text/")
        or _strip_parameters(kind).endswith("+xml")
        or _strip_parameters(kind) in _TEXTS
    )


def _is_plain(kind: str) -> bool:
    """Whether it is a type that is sent without being named."""
    return _strip_parameters(kind) in ("application/json", "*/*", "application/*", "text/plain")


def _body_template(schema: Json, arguments: Arguments, required: bool) -> Json:
    """The template of a body of fields. Those that an optional body needs must come with any other of its fields."""
    needed = set(schema["required"])
    names = {
        name: arguments.add(name, as_mapping(one), place=_BODY, required=required and name in needed)
        for name, one in schema["properties"].items()
    }
    if needed and not required:
        for name, argument in names.items():
            if others := [names[other] for other in names if other in needed and other != name]:
                arguments.depend[argument] = others
    return {name: filled(argument) for name, argument in names.items()}


def _field_encodings(schema: Json, declared: Json, way: BodyFormat) -> Json:
    """How fields that are lists or objects are written, by the `encoding` of a form."""
    found: Json = {}
    for name, one in schema["properties"].items():
        one, own = as_mapping(one), as_mapping(declared.get(name))
        item = as_mapping(one.get("items")) if one.get("type") == "array" else one
        if way is BodyFormat.MULTIPART and (item.get("format") == "binary" or "contentMediaType" in item):
            found[name] = str(Encoding.FILE)
        elif "style" in own or "explode" in own:
            style = as_text(own.get("style")) or "form"
            explode = own["explode"] if isinstance(own.get("explode"), bool) else style in ("form", "deepObject")
            is_object = item is one and ("properties" in one or one.get("type") == "object")
            written = encoding_of(name, style, explode, is_object) if way is BodyFormat.FORM else None
            found |= {} if written is None else {name: str(written)}
        elif _is_json(as_text(own.get("contentType"))):
            found[name] = str(Encoding.JSON)
    return found


# OpenAPI 3 operations as tools of kind `http`: path, query and body made of named arguments. Pure.

_METHODS = ("get", "post", "put", "patch", "delete")
_REPEATABLE = ("get", "put", "delete")
_WITH_BODY = ("post", "put", "patch", "delete")


def read_operations(document: Any, *, base_url: str | None = None, source: str = "") -> ToolImport:
    """Every operation of a document of OpenAPI 3 or Swagger 2.

    Args:
        base_url: where the service is, in place of every server of the document.
        source: the document's own address, which servers may be relative to.

    Raises:
        RlfError: it is neither.
    """
    if isinstance(document, dict) and str(document.get("swagger", "")).startswith("2"):
        document = as_openapi(document, source)
    if not isinstance(document, dict) or not str(document.get("openapi", "")).startswith("3"):
        got = ", ".join(map(str, list(document)[:3])) if isinstance(document, dict) else type(document).__name__
        raise RlfError(
            f"got {got!r}; expected an OpenAPI document, which begins with `openapi: 3...` or `swagger: 2.0`. "
            "Check the address."
        )
    found = ToolImport()
    operations = list(_read_operations(document, found.left_out))
    security = Security(document, [operation.fields for operation in operations])
    title = as_text(as_mapping(document.get("info")).get("title"))
    servers = _Servers(base_url, source, title)
    for operation in operations:
        try:
            found.tools.append(operation.tool(security, servers))
        except NotATool as reason:
            found.left_out.append(f"{operation.shown}: {reason}")
    found.notes += [*security.notes(), *servers.notes]
    return found


@dataclass(frozen=True, slots=True)
class _Servers:
    """Where operations are sent."""

    base_url: str | None
    source: str
    title: str
    notes: list[str] = field(default_factory=list)
    """What was not copied."""

    def address(self, *levels: Any) -> str:
        """The first server of the nearest list."""
        if self.base_url is not None:
            return self._without_credentials(FromEnvironment(self.base_url.rstrip("/")))
        servers = next((as_list(one) for one in levels if as_list(one)), [])
        server = as_mapping(servers[0]) if servers else {}
        url = as_text(server.get("url")) or "/"
        for name, variable in as_mapping(server.get("variables")).items():
            url = url.replace(f"{{{name}}}", str(as_mapping(variable).get("default", "")))
        return self._without_credentials(_check_server_url(url, self.source))

    def _without_credentials(self, url: str) -> str:
        """The address with a variable in place of the password before its host, or of the user that stands alone."""
        authority = urlsplit(url).netloc
        written, at, host = authority.rpartition("@")
        user, colon, password = written.partition(":")
        if not at or not (password or user) or "${" in (password or user):
            return url
        variable = variable_name(self.title, "PASSWORD" if password else "USER")
        reference = f"${{oc.env:{variable}}}"
        instead = f"{user}:{reference}" if password else f"{reference}{colon}"
        note = f"credentials: those of the address at {host} are not copied; {variable} holds them, percent-encoded"
        if note not in self.notes:
            self.notes.append(note)
        return FromEnvironment(url.replace(authority, f"{instead}@{host}", 1))


def _check_server_url(url: str, source: str) -> str:
    refuse_references(url)
    whole = _absolute_url(url, source)
    if whole is None:
        raise NotATool(f"the document names no address for it (server: {url!r}); give one with --url")
    if set("{}") & set(whole):
        raise NotATool(f"its server {whole!r} has a variable without a value; give the address with --url")
    return whole.rstrip("/")


def _absolute_url(url: str, source: str) -> str | None:
    """A server's address in full; None where it is none, or names no host."""
    try:
        whole = urljoin(source, url) if source.startswith(("http://", "https://")) else url
        where = urlsplit(whole)
    except ValueError:
        return None
    return whole if where.scheme in ("http", "https") and where.netloc else None


def _read_operations(document: Json, left_out: list[str]) -> Iterator[_Operation]:
    for path, written in as_mapping(document.get("paths")).items():
        try:
            item = resolve_reference(document, written)
        except NotATool as reason:
            left_out.append(f"{path}: {reason}")
            continue
        for method in _METHODS:
            if isinstance(item.get(method), dict):
                yield _Operation(document, path, method, item)


@dataclass(frozen=True, slots=True)
class _Operation:
    document: Json
    path: str
    method: str
    item: Json

    @property
    def fields(self) -> Json:
        return as_mapping(self.item[self.method])

    @property
    def shown(self) -> str:
        return f"{self.method.upper()} {self.path}"

    def tool(self, security: Security, servers: _Servers) -> Json:
        """The declaration."""
        arguments, schemas = Arguments(), Schemas(self.document)
        parameters = read_parameters(self.document, schemas, self.item.get("parameters"), self.fields.get("parameters"))
        credentials = security.credentials(self.fields)
        address = servers.address(self.fields.get("servers"), self.item.get("servers"), self.document.get("servers"))
        url = type(address)(address + path_template(self.path, parameters, arguments))
        target: Json = {"kind": "http", "url": url, "method": self.method.upper()}
        query, encoding = query_templates(parameters, arguments, credentials.query)
        headers = constant_headers([one for one in parameters if one.name not in credentials.headers])
        if self.method in _WITH_BODY:
            body = read_body(self.document, schemas, self.fields.get("requestBody"), arguments)
            headers |= body.headers
            encoding = _merge_encodings(encoding, query, body.target)
            target |= body.target or ({} if self.method == "delete" else {"body": {}, "body_required": False})
        elif as_mapping(resolve_reference(self.document, self.fields.get("requestBody"))).get("required"):
            raise NotATool(f"a {self.method.upper()} request with a body cannot be sent")
        target |= {"query": {**query, **credentials.query}, "encoding": encoding}
        target |= {"headers": {**headers, **credentials.headers}}
        about = {
            "name": as_tool_name(as_text(self.fields.get("operationId")) or f"{self.method}_{self.path}"),
            "description": self._describe_operation(),
            "inputSchema": arguments.schema(),
        }
        kept = {key: value for key, value in target.items() if value or key not in ("encoding", "headers")}
        return {**about, "target": kept, **({"idempotent": True} if self.method in _REPEATABLE else {})}

    def _describe_operation(self) -> str:
        summary, description = (as_text(self.fields.get(key)).strip() for key in ("summary", "description"))
        if _normalize_text(summary) in _normalize_text(description):
            return description or self.shown
        if _normalize_text(description) in _normalize_text(summary):
            return summary
        return f"{summary}{'' if summary.endswith(('.', '!', '?')) else '.'} {description}"


def _merge_encodings(encoding: Json, query: Json, body: Json) -> Json:
    """The encodings of a query and of a form in the one table that a target has for both."""
    of_body = as_mapping(body.get("encoding"))
    both = query.keys() & as_mapping(body.get("body")).keys() if "body_format" in body else set()
    clash = sorted(name for name in both if encoding.get(name) != of_body.get(name))
    if clash:
        raise NotATool(f"its query and its form both have {clash[0]!r}, written in different ways")
    return {**encoding, **of_body}


def _normalize_text(text: str) -> str:
    """A text as it is compared: without case, spaces and its full stop."""
    return " ".join(text.casefold().split()).rstrip(".")
