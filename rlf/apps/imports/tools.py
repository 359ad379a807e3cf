"""Tool files from what others declare: MCP servers, OpenAPI, OpenAI functions, RL-Factory's configs, Python modules."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from rlf.apps.imports.found import (
    FromEnvironment,
    Secrets,
    ToolImport,
    escape_all_but_variables,
    escaped,
    map_texts,
    read_functions,
    refuse_references,
    unique_name,
    variables_of,
    with_stand_ins,
)
from rlf.apps.imports.openapi import read_operations
from rlf.apps.imports.python import read_module
from rlf.apps.imports.servers import (
    as_file_says,
    as_program,
    command_words,
    declare_tool,
    in_its_folder,
    is_program,
    names_servers,
    root_of,
    validate_server,
)
from rlf.core.errors import Fault, Place, RlfError, SpecError
from rlf.core.files import write_whole
from rlf.core.redact import is_secret_name
from rlf.core.yaml_text import dump_yaml, load_document
from rlf.spec.aliases import SERVERS, with_variables
from rlf.spec.layers import interpolate
from rlf.spec.nodes import Node, plain, walk, wrap
from rlf.spec.reader import read_file, read_override
from rlf.spec.servers import each_server, is_disabled
from rlf.tools import ToolDeclaration
from rlf.tools.mcp.listing import fresh_listing

# Documents that declare tools: files, and what is at a url.

_MAX_BYTES = 20_000_000
_TIMEOUT_S = 30.0


def from_openapi(source: str, base_url: str | None) -> ToolImport:
    """The operations of an OpenAPI 3 or Swagger 2 document: a file or a url, JSON or YAML."""
    try:
        document = load_document(_read_source(source))
    except ValueError as error:
        raise RlfError(f"{source}: neither JSON nor YAML: {error}. Check the address and the file.") from error
    return read_operations(document, base_url=base_url, source=source)


def from_openai(source: str, target: str | None) -> ToolImport:
    """OpenAI function JSON: one function, a list of them, or a request with `tools`.

    Args:
        target: a module or file with functions of these names, or a url to which `{name}` is posted; they say how
            the functions are described, not where they are.
    """
    if target is None:
        fix = "Give --target functions.py, --target package.module or --target 'http://host/{name}'."
        raise RlfError(f"{source}: OpenAI's functions do not say where calls go. {fix}")
    try:
        value = json.loads(_read_source(source))
    except (ValueError, RecursionError) as error:
        raise RlfError(f"{source}: not JSON: {error}. Check the file.") from error
    return read_functions(value, target)


def find_file(source: str) -> Path:
    """The path of a file. Raises RlfError where there is none."""
    path = Path(source)
    if not path.is_file():
        raise RlfError(f"{source}: no such file. Check the path.")
    return path


def _read_source(source: str) -> str:
    """A file's text, or what is at a url."""
    if not source.startswith(("http://", "https://")):
        try:
            return find_file(source).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise RlfError(f"{source}: not UTF-8 text: {error}. Save it as UTF-8.") from error
    import http.client
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(source, timeout=_TIMEOUT_S) as answer:
            data: bytes = answer.read(_MAX_BYTES + 1)
            if len(data) > _MAX_BYTES:
                raise RlfError(
                    f"{source}: larger than {_MAX_BYTES:,} bytes, the most that are read. Import a part of it."
                )
            return data.decode("utf-8-sig")
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        raise RlfError(f"{source}: cannot be read: {error}. Check the address.") from error


Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """What to import."""

    source: str
    folder: Path
    """Where the files go: paths in them start from there."""
    target: str | None = None
    """Of OpenAI's functions: where calls go."""
    url: str | None = None
    """Of OpenAPI: where the service is."""


def read_source(kind: str, request: ImportRequest) -> ToolImport:
    """The tools of a source. Raises RlfError for one that cannot be read, and for options of another kind."""
    for option, owner in (("target", "openai"), ("url", "openapi")):
        if getattr(request, option) is not None and kind != owner:
            raise RlfError(f"--{option} belongs to {owner}; {kind} does not take it. Remove it.")
    return IMPORTERS[kind](request)


def from_mcp(source: str, folder: Path) -> ToolImport:
    """The tools of live servers.

    Args:
        source: a url, a file with `mcpServers`, or a command with its arguments.
    """
    if source.startswith(("http://", "https://")):
        return _from_servers(_make_item({"mcp": {"url": source}}, Path.cwd()), folder)
    path = Path(source)
    if path.is_file() and not is_program(path):
        return _from_servers(_read_servers(path), folder)
    command, *arguments = [as_program(source)] if path.is_file() else command_words(source)
    return _from_servers(_make_item({"mcp": {"command": command, "args": arguments}}, Path.cwd()), folder)


def from_rl_factory(source: str, folder: Path) -> ToolImport:
    """The tools of the servers in an RL-Factory config, a Python literal: `[{'mcpServers': {NAME: {...}}}]`."""
    path = find_file(source)
    try:
        value = ast.literal_eval(path.read_text(encoding="utf-8"))
    except (ValueError, SyntaxError) as error:
        raise RlfError(f"{source}: no Python literal: {error}. Expected [{{'mcpServers': {{...}}}}].") from error
    items = value if isinstance(value, list) else [value]
    if not all(map(names_servers, items)):
        raise RlfError(f"{source}: expected [{{'mcpServers': {{NAME: {{'command': ...}}}}}}].")
    found = ToolImport()
    for item in items:
        one = _from_servers(_make_item(item, root_of(item, path)), folder, has_variables=False)
        found.tools += one.tools
        found.notes += one.notes
    return found


def _make_item(value: Json, folder: Path) -> Node:
    place = Place("")
    return wrap(value, Node(None, place, place, (), folder))


def _read_servers(path: Path) -> Node:
    faults: list[Fault] = []
    found = read_file(path.absolute(), None, faults)
    if found is None:
        raise SpecError(faults)
    if not names_servers(plain(found[0])):
        raise RlfError(f'{path}: has no `mcpServers`. Write {{"mcpServers": {{NAME: {{"command": ...}}}}}}.')
    return found[0]


def _from_servers(item: Node, folder: Path, *, has_variables: bool = True) -> ToolImport:
    """The tools of an item's servers.

    Args:
        has_variables: whether `${NAME}` in the item stands for a variable, as in `mcpServers` of JSON files.
    """
    for path, node in walk(item):
        if path and path[-1] == "url" and isinstance(node.value, str):
            refuse_references(node.value)
    written = with_variables(item) if has_variables else item
    filled = _filled_in(written) if has_variables else item
    found = ToolImport()
    for name, as_written, one in zip(_list_names(written), _list_servers(written), _list_servers(filled), strict=True):
        value = in_its_folder(plain(one), item.folder)
        server = validate_server(name, value, item.folder)
        server_settings = as_file_says(plain(as_written)["mcp"], server, folder)
        secrets = Secrets(name, has_variables)
        server_settings = secrets.without(
            map_texts(server_settings, FromEnvironment) if has_variables else server_settings
        )
        if secrets.moved:
            found.notes.append(
                f"{name}: secrets are not copied; the file reads them from these variables: {', '.join(secrets.moved)}"
            )
        for entry in fresh_listing(server.mcp).entries:
            found.tools.append(declare_tool(server, entry, server_settings))
    return found


def _filled_in(item: Node) -> Node:
    """Servers with their variables filled in; of all references, `${oc.env:NAME}` alone stands for anything."""
    faults: list[Fault] = []
    filled = interpolate(_with_texts(item, escape_all_but_variables), faults)
    if faults:
        raise SpecError(faults)
    return filled


def _with_texts(node: Node, change: Callable[[str], str]) -> Node:
    if isinstance(node.value, dict):
        return replace(node, value={key: _with_texts(child, change) for key, child in node.value.items()})
    if isinstance(node.value, list):
        return replace(node, value=[_with_texts(child, change) for child in node.value])
    return replace(node, value=change(node.value)) if isinstance(node.value, str) else node


def _list_servers(item: Node) -> list[Node]:
    return list(each_server(item)) if SERVERS in item.mapping else [item]


def _list_names(item: Node) -> list[str]:
    """The names of the servers that `_list_servers` gives."""
    if SERVERS not in item.mapping:
        return ["mcp"]
    servers = item.mapping[SERVERS].mapping
    return [name for name, server in servers.items() if not is_disabled(server)]


IMPORTERS: Mapping[str, Callable[[ImportRequest], ToolImport]] = {
    "mcp": lambda request: from_mcp(request.source, request.folder),
    "openapi": lambda request: from_openapi(request.source, request.url),
    "openai": lambda request: from_openai(request.source, request.target),
    "rl-factory": lambda request: from_rl_factory(request.source, request.folder),
    "python": lambda request: read_module(request.source, request.folder),
}
"""Every kind of source by its name on the command line."""

# Tool files written of what an importer found. Every text is escaped, and each file is read before it is kept.

_MAX_SHOWN = 120
# Options in a command's arguments, e.g. `--token X` or `--token=X`, whose values may be secrets.
_OPTION = re.compile(r"(-{1,2}[\w.-]+)(=|\s+)(\S+)")


@dataclass(frozen=True, slots=True)
class ImportFiles:
    """The files of an import."""

    files: tuple[Path, ...]
    left_out: tuple[str, ...]
    """What was not written, with the reason."""
    variables: tuple[str, ...]
    """Environment variables that the files read."""
    notes: tuple[str, ...]
    """Choices made for the user."""


def write_tools(found: ToolImport, folder: Path, *, source: str, force: bool = False, prefix: str = "") -> ImportFiles:
    """Writes a file for each declaration.

    Raises:
        RlfError: a file is there already and `force` is not given, or there is nothing to write.
    """
    kept: list[Json] = []
    left_out, notes = list(found.left_out), list(found.notes)
    for tool in _named_apart(found.tools, prefix, notes):
        reason = _find_fault(tool, folder)
        if reason is None:
            kept.append(tool)
        else:
            left_out.append(f"{_to_printable(tool['name'])[:_MAX_SHOWN]}: {reason}")
    if not kept:
        raise RlfError("\n".join([f"{source}: nothing to import.", *left_out]))
    paths = [folder / f"{tool['name']}.yaml" for tool in kept]
    there = [str(path) for path in paths if path.exists()]
    if there and not force:
        raise RlfError(
            f"{', '.join(there)}: exists already. Add --force to overwrite, or give --prefix or another --out."
        )
    for path, tool in zip(paths, kept, strict=True):
        write_whole(path, file_text(tool, folder, source))
    return ImportFiles(tuple(paths), tuple(left_out), tuple(variables_of(kept)), tuple(notes))


def file_text(tool: Json, folder: Path, source: str) -> str:
    """A tool file, as those in `tool_specs` are written."""
    beside = ("../schema/tool.json", "../docs/schema/tool.json")
    schema = next((path for path in beside if (folder / path).is_file()), beside[0])
    origin = _to_printable(_without_credentials(source.splitlines()[0]))
    return f"# Imported from {origin}.\n# yaml-language-server: $schema={schema}\n{dump_yaml(escaped(tool))}"


def _named_apart(tools: Sequence[Json], prefix: str, notes: list[str]) -> Iterator[Json]:
    """The tools under names that no two of them share, with a note for each that has another than it would have."""
    taken: set[str] = set()
    for tool in tools:
        wanted = prefix + tool["name"]
        name = unique_name(wanted, taken)
        if name != wanted:
            notes.append(
                f"{_to_printable(wanted)} is named {_to_printable(name)}: names must be unique and have at most 64 "
                "characters"
            )
        yield {**tool, "name": name}


def _find_fault(tool: Json, folder: Path) -> str | None:
    """Why no command could load the file of a declaration, as the commands' own reader finds it.

    Variables of the environment count as set.
    """
    try:
        text = dump_yaml(escaped(with_stand_ins(tool)))
    except (yaml.YAMLError, RecursionError) as error:
        return f"cannot be written as YAML: {type(error).__name__}: {str(error)[:_MAX_SHOWN]}"
    faults: list[Fault] = []
    node = read_override(text, Place("file"), (), folder.absolute(), faults)
    declared = None if node is None else plain(interpolate(node, faults))
    if faults:
        return f"{faults[0].path}: {faults[0].message}".removeprefix(": ")
    try:
        ToolDeclaration.model_validate(declared, context={"folder": folder.absolute()})
    except ValidationError as error:
        fault = error.errors()[0]
        return f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
    return None


def _without_credentials(source: str) -> str:
    """A source for people to read: no options that are secret by their names, no query or password of an address."""
    shown = re.sub(r"(https?://)(?:[^/?#@\s]*@)?([^?#\s]*)\S*", r"\1\2", source)
    return _OPTION.sub(lambda option: f"{option[1]}{option[2]}..." if is_secret_name(option[1]) else option[0], shown)


def _to_printable(text: str) -> str:
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
