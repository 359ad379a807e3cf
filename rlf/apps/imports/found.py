"""Results of importers, and their texts as a tool file has to write them.

Invariant: an imported text is data. Written by `escaped`, it reads as it was, whatever `${...}` it holds; what the
environment fills in is a `FromEnvironment`, which only rlf and the user's own settings make.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from rlf.core.errors import RlfError
from rlf.core.redact import is_secret_header, is_secret_name, secret_parameters

Json = dict[str, Any]

# Backslashes before `${` count in OmegaConf: each has to be doubled when the text is escaped.
_REFERENCE = re.compile(r"(\\*)\$\{")
_VARIABLE = re.compile(r"(?<!\\)\$\{oc\.env:([A-Za-z_]\w*)(?:,'(?:[^'\\]|\\.)*')?\}")


class FromEnvironment(str):
    """A text of a declaration whose `${oc.env:NAME}` the environment fills in; other references in it are escaped.

    Text made of it (by `+`, `replace`, an f-string) is plain again, so that a reference never survives by accident.
    """

    __slots__ = ()

    @property
    def variables(self) -> list[str]:
        """The names in it."""
        return _VARIABLE.findall(self)


@dataclass(slots=True)
class ToolImport:
    """The tools that an importer found at a source."""

    tools: list[Json] = field(default_factory=list)
    """Declarations as a tool file holds them, with texts as they are read."""
    left_out: list[str] = field(default_factory=list)
    """What no declaration can be made of, with the reason."""
    notes: list[str] = field(default_factory=list)
    """Choices made for the user."""


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with each of its texts, but for keys, changed."""
    if isinstance(value, dict):
        return {key: map_texts(child, change) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [map_texts(child, change) for child in value]
    return change(value) if isinstance(value, str) else value


def escaped(value: Any) -> Any:
    """A declaration's value with texts as a file writes them, so that `${...}` in them stays text."""
    return map_texts(value, _escape_text)


def _escape_text(text: str) -> str:
    return escape_all_but_variables(text) if isinstance(text, FromEnvironment) else escape_references(text)


def escape_references(text: str) -> str:
    r"""The text with `\${` for `${`, and backslashes before it doubled, as OmegaConf reads them."""
    return _REFERENCE.sub(r"\1\1\\${", text)


def escape_all_but_variables(text: str) -> str:
    """The text with every reference escaped but `${oc.env:NAME}`, with or without a default in quotes."""
    parts, end = [], 0
    for match in _VARIABLE.finditer(text):
        parts += [escape_references(text[end : match.start()]), match[0]]
        end = match.end()
    return "".join([*parts, escape_references(text[end:])])


def refuse_references(address: str) -> None:
    """Raises RlfError for an imported address with `${...}`: its author would receive the value."""
    if "${" in address:
        raise RlfError(
            f"{address}: the address holds a reference `${{...}}`; addresses of imported files are plain text. "
            "Write the address out; credentials go into headers or the query of the written file."
        )


def with_stand_ins(value: Any) -> Any:
    """The declaration with a word in place of each variable of the environment, to be checked without them."""
    return map_texts(
        value, lambda text: _VARIABLE.sub("filled-in", text) if isinstance(text, FromEnvironment) else text
    )


def variables_of(value: Any) -> list[str]:
    """The environment variables that a declaration is filled in with."""
    if isinstance(value, FromEnvironment):
        return value.variables
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return list(dict.fromkeys(name for child in children for name in variables_of(child)))


# Names made of what others wrote: of environment variables that a shell can set, and of tools. Pure.

_NOT_IN_A_VARIABLE = re.compile(r"[^A-Z0-9]+")
_NOT_IN_A_TOOL = re.compile(r"[^A-Za-z0-9_-]+")
MAX_TOOL_NAME = 64


def variable_name(*parts: str) -> str:
    """The parts as the name of an environment variable; one whose beginning repeats the end before it stands once."""
    words: list[str] = []
    for part in parts:
        own = [word for word in _NOT_IN_A_VARIABLE.sub(" ", part.upper()).split() if word]
        kept = next(n for n in range(min(len(own), len(words)), -1, -1) if words[len(words) - n :] == own[:n])
        words += own[kept:]
    name = "_".join(words) or "SERVICE"
    return f"_{name}" if name[0].isdigit() else name


def as_tool_name(text: str) -> str:
    """A text as the name of a tool, of any length."""
    name = _NOT_IN_A_TOOL.sub("_", text).strip("_-") or "tool"
    return f"_{name}" if name[0].isdigit() else name


def unique_name(name: str, taken: set[str]) -> str:
    """The name within the length that tools may have, with a number where another has it but for its case.

    File systems may hold names without their case.

    Args:
        taken: names in lower case; the returned one is added.
    """
    found = next(
        one for number in range(1, len(taken) + 2) if (one := _number_name(name, number)).casefold() not in taken
    )
    taken.add(found.casefold())
    return found


def _number_name(name: str, number: int) -> str:
    end = "" if number == 1 else f"_{number}"
    return name[: MAX_TOOL_NAME - len(end)] + end


# Secrets that an imported server's settings write out, as variables of the environment that hold them. Pure.

_OPTION = re.compile(r"(-{0,2}[A-Za-z][\w.-]*)=(.+)", re.DOTALL)
_FLAG = re.compile(r"-{1,2}[A-Za-z][\w-]*")
# Switches and numbers are no secrets, even under a name such as `token_limit`.
_PLAIN = re.compile(r"\s*(true|false|yes|no|on|off|-?[\d.]*)\s*", re.IGNORECASE)


@dataclass(slots=True)
class Secrets:
    """The settings of one server without the secrets that they write out."""

    owner: str
    """The server's name, which its variables begin with."""
    has_variables: bool
    """Whether `${oc.env:NAME}` in the settings stands for a variable; else it is text like any other."""
    moved: list[str] = field(default_factory=list)
    """What was replaced, as `env.API_KEY`."""

    def without(self, server: Json) -> Json:
        """The settings, with a variable in place of each secret."""
        settings = dict(server)
        if isinstance(server.get("env"), dict):
            settings["env"] = {name: self._move_variable(name, value) for name, value in server["env"].items()}
        if isinstance(server.get("headers"), dict):
            settings["headers"] = {name: self._move_header(name, value) for name, value in server["headers"].items()}
        if isinstance(server.get("args"), list):
            before = [None, *server["args"]]
            settings["args"] = [self._move_argument(*pair) for pair in zip(server["args"], before, strict=False)]
        if isinstance(server.get("url"), str):
            settings["url"] = self._move_from_url(server["url"])
        return settings

    def _move_variable(self, name: str, value: Any) -> Any:
        if not is_secret_name(name) or not self._is_literal(value):
            return value
        self.moved.append(f"env.{name}")
        return FromEnvironment(_make_reference(variable_name(name)))

    def _move_header(self, name: str, value: Any) -> Any:
        if not is_secret_header(name) or not self._is_literal(value):
            return value
        self.moved.append(f"headers.{name}")
        scheme, space, _ = self._neutralize_text(value, "").strip().rpartition(" ")
        last = "TOKEN" if name.casefold() == "authorization" else name
        return FromEnvironment(f"{scheme}{space}{_make_reference(variable_name(self.owner, last))}")

    def _move_argument(self, argument: Any, before: Any) -> Any:
        option = _OPTION.fullmatch(argument) if isinstance(argument, str) else None
        if option and is_secret_name(option[1]) and self._is_literal(option[2]):
            self.moved.append(f"args {option[1]}")
            return FromEnvironment(f"{option[1]}={_make_reference(variable_name(self.owner, option[1]))}")
        is_value = isinstance(before, str) and _FLAG.fullmatch(before) and is_secret_name(before)
        if is_value and self._is_literal(argument) and not argument.startswith("-"):
            self.moved.append(f"args {before}")
            return FromEnvironment(_make_reference(variable_name(self.owner, before)))
        return self._move_from_url(argument) if isinstance(argument, str) and "://" in argument else argument

    def _move_from_url(self, url: str) -> str:
        address = self._neutralize_text(url, "%24%7B")
        for name, value in secret_parameters(url):
            if self._is_literal(value):
                self.moved.append(f"the parameter {name}")
                address = address.replace(
                    f"{name}={value}", f"{name}={_make_reference(variable_name(self.owner, name))}"
                )
        password = _url_password(url)
        if password and self._is_literal(password):
            self.moved.append("the password of the address")
            address = address.replace(f":{password}@", f":{_make_reference(variable_name(self.owner, 'PASSWORD'))}@", 1)
        return FromEnvironment(address) if "${" in address else url

    def _is_literal(self, value: Any) -> bool:
        """Whether a value is text of its own: neither filled in nor a switch or a number, which are no secrets."""
        is_filled_in = self.has_variables and isinstance(value, str) and FromEnvironment(value).variables
        return isinstance(value, str) and not is_filled_in and not _PLAIN.fullmatch(value)

    def _neutralize_text(self, text: str, instead: str) -> str:
        """A text beside a variable of ours, without what would become one."""
        return text if self.has_variables else text.replace("${", instead)


def _url_password(url: str) -> str | None:
    try:
        return urlsplit(url).password
    except ValueError:
        return None


def _make_reference(name: str) -> str:
    return f"${{oc.env:{name}}}"


# OpenAI's function JSON as tools. Pure.

_MAX_SHOWN = 80


def read_functions(value: Any, target: str) -> ToolImport:
    """One function, a list of them, or those of a request with `tools`.

    Args:
        target: a module or file with functions of these names, or a url to which `{name}` is posted.
    """
    items = value.get("tools", [value]) if isinstance(value, dict) else value
    found = ToolImport()
    for item in items if isinstance(items, list) else [items]:
        function = item.get("function", item) if isinstance(item, dict) else {}
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            found.left_out.append(f"{json.dumps(item)[:_MAX_SHOWN]}: has no name")
            continue
        schema = function.get("parameters") or {"type": "object", "properties": {}}
        about = {"name": name, "description": function.get("description") or name, "inputSchema": schema}
        found.tools.append({**about, "target": _make_target(target, name)})
    return found


def _make_target(target: str, name: str) -> Json:
    """Where calls go. References in the user's own target are filled in; the name holds none."""
    if target.startswith(("http://", "https://")):
        return {
            "kind": "http",
            "url": FromEnvironment(target.replace("{name}", quote(name, safe=""))),
            "method": "POST",
        }
    return {"kind": "python", "callable": f"{target}:{name}"}
