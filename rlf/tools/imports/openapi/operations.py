"""OpenAPI 3 operations as tools of kind `http`: path, query and body made of named arguments. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

from rlf.core.errors import RlfError
from rlf.tools.imports.found import FromEnvironment, Imported, refuse_references
from rlf.tools.imports.names import tool_name, variable_name
from rlf.tools.imports.openapi.arguments import Arguments
from rlf.tools.imports.openapi.body import read_body
from rlf.tools.imports.openapi.parameters import constant_headers, path_template, query_templates, read_parameters
from rlf.tools.imports.openapi.security import Security
from rlf.tools.imports.openapi.swagger import as_openapi
from rlf.tools.imports.openapi.values import Json, LeftOut, Schemas, as_list, as_mapping, as_text, follow

_METHODS = ("get", "post", "put", "patch", "delete")
_REPEATABLE = ("get", "put", "delete")
_WITH_BODY = ("post", "put", "patch", "delete")


def read_operations(document: Any, *, base_url: str | None = None, source: str = "") -> Imported:
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
    found = Imported()
    operations = list(_read_operations(document, found.left_out))
    security = Security(document, [operation.fields for operation in operations])
    title = as_text(as_mapping(document.get("info")).get("title"))
    servers = _Servers(base_url, source, title)
    for operation in operations:
        try:
            found.tools.append(operation.tool(security, servers))
        except LeftOut as reason:
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
        raise LeftOut(f"the document names no address for it (server: {url!r}); give one with --url")
    if set("{}") & set(whole):
        raise LeftOut(f"its server {whole!r} has a variable without a value; give the address with --url")
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
            item = follow(document, written)
        except LeftOut as reason:
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
        elif as_mapping(follow(self.document, self.fields.get("requestBody"))).get("required"):
            raise LeftOut(f"a {self.method.upper()} request with a body cannot be sent")
        target |= {"query": {**query, **credentials.query}, "encoding": encoding}
        target |= {"headers": {**headers, **credentials.headers}}
        about = {
            "name": self._tool_name(),
            "description": self._describe_operation(),
            "inputSchema": arguments.schema(),
        }
        kept = {key: value for key, value in target.items() if value or key not in ("encoding", "headers")}
        return {**about, "target": kept, **({"idempotent": True} if self.method in _REPEATABLE else {})}

    def _tool_name(self) -> str:
        return tool_name(as_text(self.fields.get("operationId")) or f"{self.method}_{self.path}")

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
        raise LeftOut(f"its query and its form both have {clash[0]!r}, written in different ways")
    return {**encoding, **of_body}


def _normalize_text(text: str) -> str:
    """A text as it is compared: without case, spaces and its full stop."""
    return " ".join(text.casefold().split()).rstrip(".")
