"""One MCP server: the command that starts it or the url where it answers, and what it lists. Asks it nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

from pydantic import Field, ValidationInfo, field_validator, model_validator

from rlf.core.addresses import Headers
from rlf.core.identity import hash_json, hash_path
from rlf.core.kinds import StrictModel, wrong_value
from rlf.core.redact import Redactor
from rlf.tools.results import ToolFailure
from rlf.types import Outcome

_OTHER_WORDS = {"streamable-http": "http", "streamable_http": "http", "streamableHttp": "http"}


class Transport(StrEnum):
    """How messages travel."""

    STDIO = "stdio"
    """Lines on stdin and stdout of a process that rlf starts and ends."""
    HTTP = "http"
    """Streamable HTTP."""
    SSE = "sse"
    """HTTP with server-sent events, as servers of 2024 speak it."""


class McpServer(StrictModel):
    """One MCP server. Declarations that say the same server share its sessions."""

    command: str | None = None
    """Program that speaks MCP on stdin and stdout; beside rlf's own Python, on PATH, or relative to the file
    that says so."""
    cwd: str | None = None
    """Folder that it starts in, relative to the file that says so; None: where rlf runs."""
    args: tuple[str, ...] = ()
    """Its arguments. One that names a file beside the file that says so is that file, and one with a `/` a folder
    there, unless `cwd` is given."""
    env: dict[str, str] = Field({})
    """Variables beside HOME, LOGNAME, PATH, SHELL, TERM and USER: a server sees no others."""
    url: str | None = None
    """Address of a server that runs already."""
    headers: Headers = Field({})
    """Sent with every request to `url`, for instance `Authorization: Bearer ${oc.env:TOKEN}`."""
    type: Transport | None = None
    """None: `stdio` for a command, `http` for a url."""
    sessions: int = Field(1, ge=1, le=256)
    """Sessions opened at once, for a command as many processes. A trajectory's calls all go to one of them."""
    start_timeout_s: float = Field(10.0, gt=0, allow_inf_nan=False)
    """Time from the start of a session to its list of tools."""

    @field_validator("type", mode="before")
    @classmethod
    def _in_our_words(cls, value: Any) -> Any:
        return _OTHER_WORDS.get(value, value) if isinstance(value, str) else value

    @field_validator("cwd")
    @classmethod
    def _folder_from_its_file(cls, cwd: str | None, info: ValidationInfo) -> str | None:
        return None if cwd is None else _resolve_beside(cwd, info, always=True)

    @field_validator("command")
    @classmethod
    def _program_from_its_file(cls, command: str | None, info: ValidationInfo) -> str | None:
        program, *arguments = (command or "").split() or [""]
        if arguments and not Path(_resolve_beside(str(command), info, always=True)).exists():
            message = f"got {command!r}; the program stands alone. Write"
            raise wrong_value(f"{message} `command: {program}, args: [{', '.join(arguments)}]`")
        return command if command is None or "/" not in command else _resolve_beside(command, info, always=True)

    @field_validator("args")
    @classmethod
    def _files_from_their_file(cls, args: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        return args if info.data.get("cwd") else tuple(_resolve_beside(argument, info) for argument in args)

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise wrong_value("a server has either `command` or `url`; write one of them")
        wrong = ("url", ["headers"]) if self.command is not None else ("command", ["args", "env", "cwd"])
        strays = [key for key in wrong[1] if getattr(self, key)]
        if strays:
            raise wrong_value(f"`{strays[0]}` belongs to a server with `{wrong[0]}`; remove it")
        if (self.transport is Transport.STDIO) != (self.command is not None):
            raise wrong_value(f"`type: {self.transport}` does not fit; remove it")
        return self

    @property
    def transport(self) -> Transport:
        """How messages travel."""
        return self.type or (Transport.HTTP if self.url is not None else Transport.STDIO)

    @property
    def redactor(self) -> Redactor:
        """Removes the server's secrets from its output."""
        return Redactor(os.environ, declared=self.model_dump(mode="json"))

    @property
    def shown(self) -> str:
        """The server in messages, without secrets."""
        return self.redactor.text(self.url or " ".join((self.command or "", *self.args)))

    def identity(self) -> str:
        """sha256 of what decides which tools there are: the files that the command names count by content."""
        values = self.model_dump(mode="json", include={"command", "args", "url", "type"})
        values["args"] = [_hash_argument(Path(self.cwd or "", argument), argument) for argument in self.args]
        return hash_json([values, sorted(self.env), sorted(self.headers)])


def _resolve_beside(path: str, info: ValidationInfo, *, always: bool = False) -> str:
    """The path from the folder of the file that says it; what is nothing there stays as it is unless `always`.

    A bare word is a file's name, and never a folder's: it may as well be a module or a command.
    """
    folder = (info.context or {}).get("folder")
    if folder is None:
        return path
    whole = os.path.normpath(Path(folder, path))
    try:
        is_named = Path(whole).is_file() or (Path(whole).is_dir() and ("/" in path or path in (".", "..")))
        return whole if always or is_named else path
    except (OSError, ValueError):  # no path at all: too long, or with a NUL
        return path


def _hash_argument(path: Path, argument: str) -> str:
    try:
        return f"sha256:{hash_path(path)}" if path.is_absolute() and path.is_file() else argument
    except OSError:
        return argument


# Names that rlf's MCP client and `rlf tools serve` use beyond the protocol, and the largest message that is read.
#
# Other peers pass over what they do not know.

SERVER_NAME = "rlf-tools"
"""Name under which `rlf tools serve` presents itself."""
TRAJECTORY = "rlf/trajectory"
"""Key of a call's `_meta`: which trajectory calls, so that its state is kept apart."""
OUTCOME = "rlf/outcome"
"""Key of a result's `_meta`: how the call ended, since MCP knows only that it failed."""
TRAJECTORY_ENDED = "notifications/rlf/trajectory_ended"
"""Method that names the trajectory whose state the server may drop; params: `trajectory`."""
MAX_MESSAGE_BYTES = 16_000_000
"""Size of one message on the wire; a larger one is refused unread."""
NO_ANSWER = -31_999
"""JSON-RPC error code, rlf's own, of an error that stands in for an answer; its data says what is known of it."""


def too_large(size_bytes: int) -> str:
    """Reason in the error for such a message."""
    return f"the server answered with {size_bytes:,} bytes; at most {MAX_MESSAGE_BYTES:,} are read"


# RFC 6570: an operator, then names separated by commas.
_VARIABLE = re.compile(r"\{([+#./;?&]?)([^{}]+)\}")
_IN_PATH = frozenset({"", "+", "/"})
"""Operators that make parts of a path."""
_LEFT_OUT: Any = object()


def variables(template: str) -> list[str]:
    """Names within the braces of a URI template, in their order."""
    found = [name.split(":")[0].rstrip("*") for _, names in _VARIABLE.findall(template) for name in names.split(",")]
    return list(dict.fromkeys(found))


def expand(template: str, arguments: Mapping[str, Any]) -> str:
    """The URI with the variables filled in; `{+name}` keeps slashes and the like, others are escaped.

    Raises:
        ToolFailure: INVALID_ARGUMENTS, where an argument that is given makes an empty part of the path.
    """

    def fill(match: re.Match[str]) -> str:
        operator, names = match.groups()
        keep = "/:?#[]@!$&'()*+,;=" if operator in ("+", "#") else ""
        given = [arguments.get(name.split(":")[0].rstrip("*"), _LEFT_OUT) for name in names.split(",")]
        if operator in _IN_PATH and any(value in (None, "", [], {}) for value in given):
            text = f"the arguments make no address: {{{names}}} of the resource would be empty"
            raise ToolFailure(Outcome.INVALID_ARGUMENTS, text)
        values = ["" if value is None or value is _LEFT_OUT else quote(str(value), safe=keep) for value in given]
        return ("" if operator == "+" else operator) + ",".join(values)

    return _VARIABLE.sub(fill, template)


_LISTED: Final = "rlf/inputSchema"
"""Key of a tool's `_meta`: its inputSchema as the server lists it, where the SDK would refuse that."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that a model can be offered: a tool, or a resource to read."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    resource: str | None = None
    """URI or template of a resource; None for a tool."""

    @property
    def digest(self) -> str:
        """sha256 of what the server says of it."""
        return hash_json(asdict(self))


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything that a server offers, in its order."""

    entries: tuple[Entry, ...]

    def tool(self, name: str) -> Entry | None:
        """The tool of a name."""
        return next((entry for entry in self.entries if entry.resource is None and entry.name == name), None)

    @property
    def tool_names(self) -> list[str]:
        """Names of its tools."""
        return [entry.name for entry in self.entries if entry.resource is None]


def readable_tools(result: dict[str, Any]) -> dict[str, Any]:
    """A list of tools that the SDK takes: it refuses the whole of one in which a single tool breaks the protocol.

    What it would refuse of a tool stands where `listed_schema` finds it, for `rlf check` to judge.
    """
    tools = result.get("tools")
    if not isinstance(tools, list):
        return result
    named = [tool for tool in tools if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
    return {**result, "tools": [_readable_tool(tool) for tool in named]}


def listed_schema(schema: Mapping[str, Any], meta: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The inputSchema as the server lists it; one without a type for what is no mapping."""
    found = (meta or {}).get(_LISTED, schema)
    return found if isinstance(found, Mapping) else {"type": None}


def _readable_tool(tool: dict[str, Any]) -> dict[str, Any]:
    found = {key: tool[key] for key in ("name", "title", "description") if isinstance(tool.get(key), str)}
    schema = tool.get("inputSchema", {})
    if isinstance(schema, dict):  # nothing, or null, is how some servers write that there are no arguments
        schema = {"type": "object", **{key: value for key, value in schema.items() if value is not None}}
    if _is_plain(tool.get("outputSchema")):
        found["outputSchema"] = tool["outputSchema"]
    if _is_plain(schema):
        return {**found, "inputSchema": schema}
    return {**found, "inputSchema": {"type": "object"}, "_meta": {_LISTED: schema}}


def _is_plain(schema: Any) -> bool:
    """Whether a schema has the form that the protocol asks for at its root."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return False
    properties, required = schema.get("properties", {}), schema.get("required", [])
    has_properties = isinstance(properties, dict) and all(isinstance(one, dict | bool) for one in properties.values())
    has_required = isinstance(required, list) and all(isinstance(name, str) for name in required)
    return has_properties and has_required and isinstance(schema.get("$schema", ""), str)
