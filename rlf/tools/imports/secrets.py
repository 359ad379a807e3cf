"""Secrets that an imported server's settings write out, as variables of the environment that hold them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from rlf.core.redact import is_secret_header, is_secret_name, secret_parameters
from rlf.tools.imports.found import FromEnvironment, Json
from rlf.tools.imports.names import variable_name

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
