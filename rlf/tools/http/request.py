"""The request that arguments make, by the templates of a declaration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from pydantic_core import PydanticSerializationError, to_json

from rlf.endpoints.http import HttpRequest
from rlf.endpoints.template import ABSENT, NOTHING, FilledValue, Template, TemplateFault
from rlf.tools.http.encoding import BodyFormat, Encoding, multipart, pairs

_ENCODE = json.JSONEncoder(allow_nan=False).encode
_DOTS = frozenset({".", "..", "%2e", "%2e%2e", ".%2e", "%2e."})


class RequestMaker:
    """The templates of one declaration, parsed once."""

    def __init__(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        *,
        query: Mapping[str, Any] | None,
        body: Any,
        has_body: bool,
        body_format: BodyFormat,
        body_required: bool,
        encoding: Mapping[str, Encoding],
    ) -> None:
        """Takes what the declaration says, texts as templates; a query or body that is None is the arguments."""
        self.method, self._headers, self._has_body = method, headers, has_body
        self._json_headers = _add_content_type(headers, "application/json")
        self._text_headers = _add_content_type(headers, "text/plain; charset=utf-8")
        self._url = Template(url, is_url=not url.startswith("{{"))
        self._fixed_url = None if self._url.names else self._url.render({})
        self._query = None if query is None else FilledValue(query)
        self._body = None if body is None else FilledValue(body)
        self._format, self._encoding, self._body_required = body_format, encoding, body_required
        is_plain = has_body and query is None and body is None and body_format is BodyFormat.JSON
        self._plain_url = self._fixed_url if is_plain and body_required else None
        """Address of a request whose body is the arguments, and which differs from another's in nothing else."""

    def make(self, values: Mapping[str, Any], *, repeatable: bool) -> HttpRequest:
        """The request for the arguments of a call, or for `calls`. Raises TemplateFault where they do not fit."""
        url, headers = self._plain_url, self._json_headers
        value: Any = values
        if url is None:
            if self._fixed_url is None:
                value = {name: each for name, each in values.items() if name not in self._url.names}
            query = ({} if self._has_body else value) if self._query is None else self._query.fill(values)
            url = self._build_url(values, query)
            if self._body is not None:
                value = self._body.fill(values)
            if not self._has_body or (not self._body_required and (value is ABSENT or value == {})):
                return HttpRequest(self.method, url, self._headers, None, repeatable)
            if self._body is not None or self._format is not BodyFormat.JSON:
                headers, body = self._write_body(value)
                return HttpRequest(self.method, url, headers, body, repeatable)
        try:  # arguments, which inputSchema has shown to be JSON; numbers that JSON lacks are refused below
            body = to_json(value)
        except PydanticSerializationError:  # lone surrogates
            body = _encode_body(value)
        if b"NaN" in body or b"Infinity" in body:
            body = _encode_body(value)
        return HttpRequest(self.method, url, headers, body, repeatable)

    def _write_body(self, value: Any) -> tuple[Mapping[str, str], bytes]:
        """A body's headers and bytes."""
        if self._format is BodyFormat.FORM:
            body = _form_text(value, self._encoding).encode()
            return _add_content_type(self._headers, "application/x-www-form-urlencoded"), body
        if self._format is BodyFormat.MULTIPART:
            return self._in_parts(value)
        return (self._text_headers if isinstance(value, str) else self._json_headers), _encode_body(value)

    def _in_parts(self, value: Mapping[str, Any]) -> tuple[Mapping[str, str], bytes]:
        try:
            content_type, body = multipart(value, self._encoding)
        except UnicodeEncodeError as fault:
            raise TemplateFault(f"the body cannot be sent: {fault}") from fault
        return {**self._headers, "Content-Type": content_type}, body

    def _build_url(self, values: Mapping[str, Any], query: Mapping[str, Any]) -> str:
        url = self._fixed_url or self._filled_url(values)
        if not query:
            return url
        text = _form_text(query, self._encoding)
        return f"{url}{'&' if '?' in url else '?'}{text}" if text else url

    def _filled_url(self, values: Mapping[str, Any]) -> str:
        url = self._url.render(values).strip()
        if NOTHING in url:
            url = _without_nothing(url)
        if _DOTS & set(urlsplit(url).path.lower().split("/")):
            raise TemplateFault("a part of the path would be `.` or `..`, which leads to another path")
        return url


def _without_nothing(url: str) -> str:
    """A URL that null or empty values fill in. Raises TemplateFault where one is a whole part of the path: what lies
    there is another thing, such as all of a list in place of one of its items."""
    path = url.partition("?")[0].partition("#")[0]
    if any(part and not part.strip(NOTHING) for part in path.split("/")):
        raise TemplateFault("a part of the path would be empty, which leads to another path")
    return url.replace(NOTHING, "")


def _form_text(fields: Mapping[str, Any], encodings: Mapping[str, Encoding]) -> str:
    try:
        return urlencode(list(pairs(fields, encodings)))
    except UnicodeEncodeError as fault:
        raise TemplateFault(f"the query or form cannot be sent: {fault}") from fault


def _add_content_type(headers: Mapping[str, str], content_type: str) -> Mapping[str, str]:
    """The headers, with a content type unless they have one."""
    if any(name.lower() == "content-type" for name in headers):
        return headers
    return {"Content-Type": content_type, **headers}


def _encode_body(value: Any) -> bytes:
    """The bytes of a body: a text as it is, anything else as JSON."""
    try:
        text = value if isinstance(value, str) else _ENCODE(None if value is ABSENT else value)
        return text.encode()
    except (ValueError, TypeError) as fault:
        raise TemplateFault(f"the body cannot be sent: {fault}") from fault
