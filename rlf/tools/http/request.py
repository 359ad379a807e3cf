"""The request that arguments make, by the templates of a declaration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

from pydantic_core import PydanticSerializationError, to_json

from rlf.endpoints.http import HttpRequest
from rlf.endpoints.template import ABSENT, NOTHING, FilledValue, Template, TemplateFault

# How lists and objects stand in a query or a form: the ways of OpenAPI 3 (3.1.1, "Style Examples"). Pure.


class BodyFormat(StrEnum):
    """How a body of fields is written."""

    JSON = "json"
    """One JSON value, or one text as it is."""
    FORM = "form"
    """`application/x-www-form-urlencoded`: fields as in a query."""
    MULTIPART = "multipart"
    """`multipart/form-data`: a part for each field."""


class Encoding(StrEnum):
    """How a list or an object in a query or form is written; without one a list is repeated, an object is JSON."""

    COMMA = "comma"
    """`ids=1,2`; an object as `color=R,100,G,200`."""
    SPACE = "space"
    """`ids=1%202`"""
    PIPE = "pipe"
    """`ids=1%7C2`"""
    FLAT = "flat"
    """An object's entries as fields of their own: `R=100&G=200`."""
    DEEP = "deep"
    """`color[R]=100&color[G]=200`, and so on inwards; items of a list by their index: `items[0][price]=5`."""
    JSON = "json"
    """`ids=[1,2]`"""
    FILE = "file"
    """In `multipart` alone: text as the content of a file."""


_BETWEEN = {Encoding.COMMA: ",", Encoding.SPACE: " ", Encoding.PIPE: "|"}


def pairs(fields: Mapping[str, Any], encodings: Mapping[str, Encoding]) -> Iterator[tuple[str, str]]:
    """Names and texts of a query or a form; null is left out."""
    for name, value in fields.items():
        yield from _pairs_of(name, value, encodings.get(name))


def _pairs_of(name: str, value: Any, encoding: Encoding | None) -> Iterator[tuple[str, str]]:
    if encoding is Encoding.JSON:
        yield name, json.dumps(value, separators=(",", ":"))
    elif encoding is Encoding.DEEP:
        yield from _flatten_deep(name, value)
    elif encoding is Encoding.FLAT and isinstance(value, dict):
        yield from pairs(value, {})
    elif encoding in _BETWEEN and isinstance(value, dict | list):
        in_a_row = value if isinstance(value, list) else [part for entry in value.items() for part in entry]
        if items := [as_text(item) for item in in_a_row if item is not None]:
            yield name, _BETWEEN[encoding].join(items)
    else:
        yield from (
            (name, as_text(item)) for item in (value if isinstance(value, list) else [value]) if item is not None
        )


def _flatten_deep(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _flatten_deep(f"{name}[{key}]", child)
    elif value is not None:
        yield name, as_text(value)


def as_text(value: Any) -> str:
    """Text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def multipart(fields: Mapping[str, Any], encodings: Mapping[str, Encoding]) -> tuple[str, bytes]:
    """The content type and the bytes of a form with a part for each field; null is left out."""
    boundary = uuid4().hex
    parts = [part for name, value in fields.items() for part in _parts_of(name, value, encodings.get(name))]
    lines = [f"--{boundary}\r\n{head}\r\n\r\n{text}\r\n" for head, text in parts]
    return f"multipart/form-data; boundary={boundary}", "".join([*lines, f"--{boundary}--\r\n"]).encode()


def _parts_of(name: str, value: Any, encoding: Encoding | None) -> Iterator[tuple[str, str]]:
    for item in value if isinstance(value, list) and encoding is not Encoding.JSON else [value]:
        head = f'Content-Disposition: form-data; name="{_quote_name(name)}"'
        if encoding is Encoding.FILE:
            yield f'{head}; filename="{_quote_name(name)}"\r\nContent-Type: application/octet-stream', as_text(item)
        elif isinstance(item, dict | list) or encoding is Encoding.JSON:
            yield f"{head}\r\nContent-Type: application/json", json.dumps(item)
        elif item is not None:
            yield head, as_text(item)


def _quote_name(name: str) -> str:
    """A field's name as a header holds it (HTML, "Multipart form data")."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


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
        if self._plain_url is not None:
            return HttpRequest(self.method, self._plain_url, self._json_headers, _encoded_arguments(values), repeatable)
        rest = values
        if self._fixed_url is None:
            rest = {name: value for name, value in values.items() if name not in self._url.names}
        query = ({} if self._has_body else rest) if self._query is None else self._query.fill(values)
        url = self._build_url(values, query)
        if not self._has_body:
            return HttpRequest(self.method, url, self._headers, None, repeatable)
        value = rest if self._body is None else self._body.fill(values)
        if not self._body_required and (value is ABSENT or value == {}):
            return HttpRequest(self.method, url, self._headers, None, repeatable)
        headers, body = self._write_body(value)
        return HttpRequest(self.method, url, headers, body, repeatable)

    def _write_body(self, value: Any) -> tuple[Mapping[str, str], bytes]:
        """A body's headers and bytes."""
        if self._format is BodyFormat.FORM:
            body = _form_text(value, self._encoding).encode()
            return _add_content_type(self._headers, "application/x-www-form-urlencoded"), body
        if self._format is BodyFormat.MULTIPART:
            return self._in_parts(value)
        if self._body is None:
            return self._json_headers, _encoded_arguments(value)
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


def _encoded_arguments(arguments: Mapping[str, Any]) -> bytes:
    """The bytes of arguments, which inputSchema has shown to be JSON, numbers that JSON lacks set apart."""
    try:
        body = to_json(arguments)
    except PydanticSerializationError:  # lone surrogates
        return _encode_body(arguments)
    return _encode_body(arguments) if b"NaN" in body or b"Infinity" in body else body


def _encode_body(value: Any) -> bytes:
    """The bytes of a body: a text as it is, anything else as JSON."""
    try:
        text = value if isinstance(value, str) else _ENCODE(None if value is ABSENT else value)
        return text.encode()
    except (ValueError, TypeError) as fault:
        raise TemplateFault(f"the body cannot be sent: {fault}") from fault
