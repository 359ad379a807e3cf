"""Which credentials an operation is sent, where they stand, and the environment variables that hold them. Pure.

OpenAPI 3.1.1, "Security Requirement Object": an operation's own list takes the place of the document's, one of its
items is enough, all schemes of an item are needed, and an item without schemes (or an empty list) asks for none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from rlf.tools.imports.found import FromEnvironment
from rlf.tools.imports.names import variable_name
from rlf.tools.imports.openapi.values import Json, LeftOut, as_list, as_mapping, as_text, follow

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
        """The credentials of an operation. Raises LeftOut where it needs what no file can hold."""
        alternatives = self._list_alternatives(operation)
        possible = [one for one in alternatives if all(self._schemes.get(name) for name in one)]
        if not alternatives:
            return Credentials()
        if not possible:
            raise LeftOut(
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
        written = follow(document, written)
    except LeftOut:
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
