"""Text as it may be shown and stored: without secrets, and encodable.

The one list of what is secret: environment variables whose names say so, those that a spec is filled in with, and what
declarations hold in headers, secret parameters, variables for a server, and passwords in addresses. A secret is struck
out of every text, also where it is escaped for JSON, a URL, HTML or Python, several times over and in any mixture, or
lies inside base64, as `Authorization: Basic` has it.
Token ids are stored as they are: they are what was trained on.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any
from urllib.parse import unquote_plus


def fold(text: str) -> str:
    """The text in one form.

    >>> fold("\\uff0d\\uff15 \\u201cA\\u200b\\u201d")
    '-5 "A"'
    """
    if text.isascii():
        return text
    from rlf.core.escapes import fold_characters

    return fold_characters(text)


# Characters that no file, database or model takes. The door that text from outside passes is `rlf.core.text`.


def clean(text: str) -> str:
    """The text without what no file or database takes: halves of surrogate pairs are joined, or become U+FFFD with NUL.

    A subclass of `str`, whose methods may be the code of others, becomes a plain one.
    """
    if type(text) is not str:
        text = str.__str__(text)
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


MAX_ESCAPED_CHARS = 100
"""Most characters that one takes, escaped several times over: `&#X0026;&#X0023;39&#X003B;` is a quote."""
REDACTED = "[redacted]"

SECRET_NAME = re.compile("KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
"""Found in the names of environment variables whose values are secret."""
SECRET_HEADER = re.compile("auth|key|token|secret|cookie|password", re.IGNORECASE)
"""Found in the names of headers, and of a server's variables, whose values are secret."""
# Names that hold `key`, `token` or `auth` and no secret: `max_tokens`, `sort_key`, `author`, paths and types.
_ORDINARY = re.compile(
    r"author(?!i[sz])|keyword|keyboard|keyframe|tokeni[sz]|"
    r"(sort|primary|partition|group|order|foreign|row|range|cache|idempotency|public|publishable|object)[-_. ]?key|"
    r"(max|min|num|total|page|next|new|prompt|completion|stop|sync|continuation)[-_. ]?(page[-_. ]?)?token|"
    r".*[-_. ](file|path|dir|folder|name|type|url|uri)s?$",
    re.IGNORECASE,
)
"""What looks like a secret's name, and is an ordinary one: of a parameter, or of a setting."""
_ORDINARY_FIELDS = frozenset({"key", "keys", "auth"})
_ORDINARY_HEADER = re.compile(
    r"accept(-.*)?|cache-control|connection|content-.*|date|expect|(http-)?referer|host|if-.*|origin|pragma|prefer|range"
    r"|te|traceparent|tracestate|user-agent|via|x-requested-with|x-title|(.*-)?(version|beta)",
    re.IGNORECASE,
)
"""Headers that HTTP itself or common services define and that hold no secret."""
_SENT = frozenset({"headers", "env", "query", "body", "args"})
"""Keys of declarations whose values go to servers."""
# The password of `scheme://user:password@host`.
_PASSWORD = re.compile(r"://[^/?#@\s]*:([^/?#@\s]+)@")
_MIN_LENGTH = 8
"""Shorter values (`true`, `1`) would strike ordinary text."""
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""What some database takes in no text."""


def is_secret_name(name: str) -> bool:
    """Whether the value of a parameter or setting of this name is secret: as a header's, but for ordinary words."""
    return SECRET_HEADER.search(_ORDINARY.sub(" ", name)) is not None


def is_secret_header(name: str) -> bool:
    """Whether the value of a header is taken for secret: of any that is not known to hold none."""
    return SECRET_HEADER.search(name) is not None or _ORDINARY_HEADER.fullmatch(name) is None


def is_secret_field(name: str) -> bool:
    """The same of a field of a body, where a plain `key` names a value like any other."""
    return is_secret_name(name) and name.casefold() not in _ORDINARY_FIELDS


SECRET_FIELDS: Mapping[str, Callable[[str], bool]] = {"query": is_secret_name, "body": is_secret_field}
"""Which names are secret, by the key of a declaration that they stand under."""


def secret_parameters(url: str) -> list[tuple[str, str]]:
    """Names and values of the secret parameters in an address' query, with the values as they stand there."""
    query = url.partition("?")[2].partition("#")[0]
    pairs = [pair.partition("=") for pair in query.split("&")]
    return [(unquote_plus(name), value) for name, _, value in pairs if is_secret_name(unquote_plus(name))]


_CREDENTIALS: Mapping[str, Callable[[str], bool]] = {
    "headers": is_secret_header,
    "env": lambda name: SECRET_HEADER.search(name) is not None,
}


class Redactor:
    """Strikes secrets out of text and JSON."""

    def __init__(self, environment: Mapping[str, str], also: Collection[str] = (), declared: Any = None) -> None:
        """Takes for secrets the variables whose names say so, and further ones.

        Args:
            also: names of further variables.
            declared: declarations as JSON values, whose headers, variables and addresses hold secrets.
        """
        named = {value for name, value in environment.items() if name in also or SECRET_NAME.search(name)}
        found = named | set(_find_declared(declared, environment))
        # a key that is read from a file ends in a line break, with which it is never sent
        secrets = {value for value in found | {value.strip() for value in found} if _can_be_struck(value)}
        secrets |= {plain for secret in secrets for plain in _decode_secret(secret)}
        forms = {clean(form) for secret in secrets for form in _secret_forms(secret)}
        self._pattern = _any_of(forms)
        self._escaped: re.Pattern[str] | None = None
        if forms:
            from rlf.core.escapes import unescape_fully

            self._escaped = _any_of({unescape_fully(form).text for form in forms})
        self._by_head: dict[str, list[str]] = {}
        for form in forms:
            # secret also where the rest is cut off, and no word that stands there by chance
            head = form[: max(_MIN_HEAD, (len(form) + 1) // 2)]
            self._by_head.setdefault(head, []).append(form)
        self._heads = _any_of(self._by_head)
        self._cores = sorted({max(_PLAIN_RUN.findall(head), key=len, default="") for head in self._by_head})
        self._reach = MAX_ESCAPED_CHARS * max(map(len, forms), default=0)
        """How far from its core a form may begin or end."""

    def text(self, text: str) -> str:
        """The text without secrets; NUL and lone surrogates become U+FFFD."""
        return self._redact_text(clean(text))

    def pieces(self, pieces: Sequence[str]) -> list[str]:
        """Texts that make one when joined, without secrets, also those that lie across several.

        What a secret is replaced by stands in the piece where it begins.
        """
        text = "".join(pieces)
        spans = self._spans(text)
        shown, start = list[str](), 0
        for piece in pieces:
            end, place, kept = start + len(piece), start, ""
            for first, last in spans:
                if first < end and last > start:
                    kept += text[place:first] + (REDACTED if first >= start else "")
                    place = min(last, end)
            shown.append(_UNSTORABLE.sub("\ufffd", kept + text[place:end]))
            start = end
        return shown

    def after(self, first: Callable[[str], str] | None) -> Callable[[str], str]:
        """What strikes these secrets out of what `first` has left."""
        if first is None:
            return clean if self._pattern is None else self.text
        return first if self._pattern is None else lambda text: self._redact_text(first(text))

    def optional(self, text: str | None) -> str | None:
        """`text`, or None for None."""
        return None if text is None else self.text(text)

    def json(self, value: Any) -> str:
        """The value as JSON without secrets. What JSON cannot say becomes a string."""
        dump = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))
        text = clean(dump(value, default=lambda each: dict(each) if isinstance(each, Mapping) else str(each)))
        return dump(self._redact_value(json.loads(text))) if self.finds(text) else text

    def finds(self, text: str) -> bool:
        """Whether a secret is in a text, in whatever escapes."""
        return bool(self._spans(text))

    def _redact_text(self, text: str) -> str:
        for start, end in reversed(self._spans(text)):
            text = f"{text[:start]}{REDACTED}{text[end:]}"
        return text

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Where secrets are, in order and apart."""
        # looking for the cores is many times faster than a search for the forms
        if self._pattern is None or self._escaped is None:
            return []
        if not any(core in text for core in self._cores) and not _ESCAPED_RUN.search(text):
            return []
        spans = [found.span() for found in self._pattern.finditer(text)]
        rest = self._pattern.sub(lambda found: "\0" * len(found[0]), text) if spans else text
        spans += self._cut_off(rest)
        from rlf.core.escapes import unescape_fully

        for first, last in self._neighbourhoods(rest):
            plain = unescape_fully(rest[first:last])
            for found in self._escaped.finditer(plain.text):
                spans.append((first + plain.starts[found.start()], first + plain.ends[found.end() - 1]))
        return _merge_spans(spans)

    def _cut_off(self, text: str) -> list[tuple[int, int]]:
        """Where secrets begin that somebody has cut before they were struck out."""
        if self._heads is None:
            return []
        return [
            (found.start(), found.start() + max(_common_length(text, found.start(), form) for form in forms))
            for found in self._heads.finditer(text)
            if (forms := self._by_head[found[0]])
        ]

    def _neighbourhoods(self, text: str) -> list[tuple[int, int]]:
        """The parts of a text that may hold a secret in escapes: around the cores, and where all is escaped."""
        found = [
            (max(0, place.start() - self._reach), min(len(text), place.end() + self._reach))
            for core in (*map(re.compile, map(re.escape, self._cores)), _ESCAPED_RUN)
            for place in core.finditer(text)
        ]
        return _merge_spans(found)

    def _redact_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redact_text(value)
        if isinstance(value, dict):
            return {self._redact_value(key): self._redact_value(item) for key, item in value.items()}
        return [self._redact_value(item) for item in value] if isinstance(value, list) else value


def strike_environment(text: str) -> str:
    """A text without the secrets of this process's environment: for the words of others where nothing is declared."""
    named = {name: value for name, value in os.environ.items() if SECRET_NAME.search(name)}
    return _environment_redactor(frozenset(named.items())).text(text) if named else text


@lru_cache(4)
def _environment_redactor(named: frozenset[tuple[str, str]]) -> Redactor:
    return Redactor(dict(named))


def _can_be_struck(value: str) -> bool:
    if len(value) < _MIN_LENGTH:
        return False
    return not os.path.exists(value)  # noqa: PTH110 - Path.exists raises on long names. A path is where a key lies.


def _find_declared(declared: Any, environment: Mapping[str, str], under: str = "") -> Iterator[str]:
    """What is secret in declarations: headers and variables that are named so, passwords in addresses, and what came
    from the environment to any place that is sent.

    Args:
        under: the nearest key of `_SENT` that `declared` stands under.
    """
    if isinstance(declared, Mapping):
        for key, value in declared.items():
            if under in _CREDENTIALS and isinstance(value, str) and _CREDENTIALS[under](key):
                yield from (value, value.strip().rpartition(" ")[2])  # behind `Bearer` or `Basic`
            elif under in SECRET_FIELDS and isinstance(value, str) and SECRET_FIELDS[under](key) and "{{" not in value:
                yield value
            yield from _find_declared(value, environment, key if key in _SENT else under)
    elif isinstance(declared, list | tuple):
        for item in declared:
            yield from _find_declared(item, environment, under)
    elif isinstance(declared, str) and (under or "://" in declared):
        yield from _PASSWORD.findall(declared)
        if "://" in declared:
            yield from (form for _, value in secret_parameters(declared) for form in (value, unquote_plus(value)))
        yield from (value for value in environment.values() if len(value) >= _MIN_LENGTH and value in declared)


def _decode_secret(secret: str) -> Iterator[str]:
    """What a secret that is base64 says, as `user:password` is sent, and its password."""
    try:
        plain = b64decode(secret, validate=True).decode()
    except ValueError:
        return
    if len(plain) >= _MIN_LENGTH and plain.isprintable():
        yield plain
        password = plain.partition(":")[2]
        if len(password) >= _MIN_LENGTH:
            yield password


def _secret_forms(secret: str) -> Iterable[str]:
    yield secret
    yield from _inside_base64(secret.encode(errors="surrogateescape"))


def _any_of(forms: Collection[str]) -> re.Pattern[str] | None:
    """What finds the longest of several texts; None for none."""
    return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True)))) if forms else None


def _merge_spans(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged = list[tuple[int, int]]()
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _common_length(text: str, start: int, form: str) -> int:
    """How far a form reaches in a text from a place."""
    length = 0
    while length < len(form) and text[start + length : start + length + 1] == form[length]:
        length += 1
    return length


_MIN_HEAD = 16
# Escapes of characters of ASCII, one after the other, as who escapes letters too writes them; of escapes as well.
_ESCAPED_RUN = re.compile(
    r"(?:(?:%(?:25){0,8}|\\{1,16}(?:u00|x|U000000)|&(?:amp;){0,8}#[xX]?0{0,4})[0-9A-Fa-f]{2,3};?){4,}"
)
_PLAIN_RUN = re.compile("[0-9A-Za-z]+")


def _inside_base64(secret: bytes) -> Iterator[str]:
    """What the base64 of any text with the secret has, at each offset, without what its neighbours decide."""
    for shift in range(3):
        coded = b64encode(bytes(shift) + secret)[(8 * shift + 5) // 6 : 8 * (shift + len(secret)) // 6].decode()
        yield coded
        yield coded.translate(_URL_SAFE)


_URL_SAFE = str.maketrans("+/", "-_")
