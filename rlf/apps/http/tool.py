"""`target: {kind: http}`: any service, called over HTTP."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from rlf.core.addresses import Headers, check_host
from rlf.core.identity import hash_json
from rlf.core.kinds import wrong_value
from rlf.core.redact import SECRET_HEADER, is_secret_header, is_secret_name, secret_parameters
from rlf.endpoints.spec import Redirects
from rlf.endpoints.template import FilledValue, Template, TemplateFault, TemplateText, unknown_names
from rlf.tools.encoding import BatchSpec, BodyFormat, Encoding
from rlf.tools.kind import Limits, ToolKind, ToolRuntime
from rlf.types import Outcome

_FIXED_HOST = re.compile(r"https?://[^/?#{}]+(?=[/?#]|$)")
_CONNECT_S = 5.0
_NEWER = ("body_format", "body_required", "encoding", "tool_error_statuses")
"""Keys that count for the hash of a source where they are used: results that were kept before them stay valid."""


class Method(StrEnum):
    """How a service is asked."""

    GET = "GET"
    """Arguments go into the query."""
    POST = "POST"
    """Arguments go into a JSON body. Cut off half-way, the call's outcome is unknown, unless the tool is idempotent."""
    PUT = "PUT"
    """As POST, and may be repeated."""
    PATCH = "PATCH"
    """As POST."""
    DELETE = "DELETE"
    """Arguments go into the query, unless the file says `body`."""

    @property
    def has_body(self) -> bool:
        """Whether arguments go into a body."""
        return self in (Method.POST, Method.PUT, Method.PATCH)


class HttpTool(ToolKind):
    """A request made of the arguments. Texts in `url`, `query`, `body` and `result` are Jinja2 templates over them."""

    kind: Literal["http"] = "http"
    url: str
    """Address; arguments may fill in any part, as `https://example.org/users/{{ id }}`, and are encoded for it."""
    method: Method = Method.GET
    headers: Headers = Field(default={})
    """Sent as they are. Write `${oc.env:NAME}` for what is secret."""
    query: dict[str, Any] | None = None
    """Query parameters; by default the arguments, where the method has no body. An absent argument is left out."""
    body: Any = None
    """JSON body, or one text; by default the arguments, where the method has one. `"{{ k }}"` alone keeps the type."""
    body_format: BodyFormat = BodyFormat.JSON
    body_required: bool = True
    """False: a body that no argument fills in is not sent."""
    encoding: dict[str, Encoding] = Field(default={})
    """How lists and objects are written, by their names in `query` or in a `body` that is a form."""
    response: str | None = None
    """Where the result lies in a JSON answer, as `result.0.text`; `*` takes every item. By default all of it."""
    result: TemplateText | None = None
    """Text of the result, over the arguments and `response`, the part found there; by default that part as it is."""
    batch: BatchSpec | None = None
    """By default each call is a request of its own."""
    tool_error_statuses: tuple[Annotated[int, Field(ge=400, le=599)], ...] = ()
    """Statuses with which this service answers the call itself, e.g. `[500]`: the model reads them as an error. By
    default 400, 404, 409, 410, 412, 413, 414, 422, 423 and 451 are; any other says that the service failed: the
    trajectory is unscorable."""
    redirects: Redirects = Redirects.SAME_HOST
    allow_private: tuple[str, ...] = ()
    """Hosts, as `name` or `name:port`, that may lie at private addresses though an argument or redirect names them."""
    max_bytes: int = Field(default=10_000_000, ge=1)
    """Size of an answer, decompressed; larger ones are refused while they are read."""

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        if not url.startswith(("http://", "https://", "{{")):
            raise wrong_value(f"got {url!r}; expected `http://...` or `https://...`")
        _check_parse(url, Template)
        try:
            if _FIXED_HOST.match(url):
                check_host(url)
        except ValueError as fault:
            raise wrong_value(f"got {url!r}; no request can be sent there: {fault}. Correct host and port") from fault
        return url

    @field_validator("query", "body")
    @classmethod
    def _holds_templates(cls, value: Any) -> Any:
        _check_parse(value, FilledValue)
        return value

    @model_validator(mode="after")
    def _sends_what_it_says(self) -> Self:
        if self.body is not None and self.method is Method.GET:
            raise wrong_value("a GET request has no body; write `method: POST`, or `query` in place of `body`")
        if self.body_format is not BodyFormat.JSON and not isinstance(self.body, Mapping | None):
            raise wrong_value(f"a body of `body_format: {self.body_format}` has fields; write `body: {{name: ...}}`")
        known = {*(self.query or {}), *(self.body if isinstance(self.body, Mapping) else {})}
        if self.query is not None and (strays := sorted(self.encoding.keys() - known)):
            raise wrong_value(f"`encoding` names {strays[0]!r}, which is neither in `query` nor in `body`; remove it")
        if self.batch is not None and "calls" not in (FilledValue(self.body).names | FilledValue(self.query).names):
            fix = "write e.g. `body: {queries: \"{{ calls | map(attribute='query') | list }}\"}`"
            raise wrong_value(f"`batch` needs a `body` or `query` over `calls`; {fix}")
        return self

    @property
    def has_fixed_host(self) -> bool:
        """Whether the declaration alone says which host is asked."""
        return _FIXED_HOST.match(self.url) is not None

    def complaints(self, input_schema: Mapping[str, Any]) -> list[str]:
        """Names in templates that no argument has, and credentials that would follow an argument to any host."""
        arguments = set(input_schema.get("properties", ()))
        found = []
        in_headers = any(map(is_secret_header, self.headers))
        if not self.has_fixed_host and (in_headers or any(map(is_secret_name, self.query or {}))):
            key = "headers" if in_headers else "query"
            found.append(f"an argument chooses the host, which would be sent the credentials in `{key}`; remove them")
        if "properties" not in input_schema:
            return found
        known = {"calls"} if self.batch else arguments
        for key in ("url", "query", "body"):
            found += unknown_names(key, FilledValue(getattr(self, key)).names, known)
        return found + unknown_names("result", FilledValue(self.result).names, {*arguments, "response"})

    def source_hash(self) -> str:
        """Covers the declaration without its credentials: what the service does is not known."""
        values = self.model_dump(mode="json")
        values["headers"] = {name: value for name, value in self.headers.items() if not SECRET_HEADER.search(name)}
        values["query"] = self.query and {name: value for name, value in self.query.items() if not is_secret_name(name)}
        for _, value in secret_parameters(self.url):
            values["url"] = values["url"].replace(f"={value}", "=") if value else values["url"]
        for key in _NEWER:
            if getattr(self, key) == type(self).model_fields[key].default:
                del values[key]
        return hash_json(values)

    async def unreachable(self) -> str | None:
        """Why no connection can be made to the host, where the declaration alone says which."""
        if not self.has_fixed_host:
            return None
        where = urlsplit(self.url)
        port = where.port or {"http": 80, "https": 443}[where.scheme]
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, writer = await asyncio.open_connection(where.hostname, port)
        except (OSError, TimeoutError) as fault:
            why = fault.strerror if isinstance(fault, socket.gaierror) else os.strerror(fault.errno or errno.ETIMEDOUT)
            return f"nothing answers at {where.hostname}:{port} ({why})"
        writer.close()
        return None

    async def open(self, limits: Limits) -> ToolRuntime:
        """Makes a client, and asks whether the service takes the key, where there is one."""
        from rlf.apps.http.runtime import HttpRuntime, RequestMaker
        from rlf.endpoints.guard import AddressGuard, trusted_hosts
        from rlf.endpoints.http import HttpClient

        client = HttpClient(
            AddressGuard(trusted_hosts(self.url if self.has_fixed_host else "", self.allow_private)),
            max_connections=limits.max_concurrency,
            max_bytes=self.max_bytes,
            redirects=self.redirects,
            tool_errors=self.tool_error_statuses,
        )
        maker = RequestMaker(
            self.method.value,
            self.url,
            self.headers,
            query=self.query,
            body=self.body,
            has_body=self.method.has_body or self.body is not None,
            body_format=self.body_format,
            body_required=self.body_required,
            encoding=self.encoding,
        )
        # of a host that an argument chose, an answer that lacks what is declared is that choice's result
        garbled = Outcome.SERVICE_ERROR if self.has_fixed_host else Outcome.OUTPUT_REJECTED
        runtime = HttpRuntime(
            client, maker, self.headers, response=self.response, result=self.result, batch=self.batch, garbled=garbled
        )
        if self.has_fixed_host and 401 not in self.tool_error_statuses:
            await runtime.refuse_wrong_key(self.url.partition("{")[0])
        return runtime


def _check_parse(value: Any, parser: Callable[[Any], Any]) -> None:
    try:
        parser(value)
    except TemplateFault as fault:
        raise wrong_value(str(fault)) from fault
