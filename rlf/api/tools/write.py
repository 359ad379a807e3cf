"""Tool files written of what an importer found. Every text is escaped, and each file is read before it is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from rlf.core.errors import Fault, Place, RlfError
from rlf.core.files import write_whole
from rlf.core.redact import is_secret_name
from rlf.core.yaml_text import dump_yaml
from rlf.spec.reading.interpolation import interpolate
from rlf.spec.reading.nodes import plain
from rlf.spec.reading.reader import read_value
from rlf.tools import ToolDeclaration
from rlf.tools.imports.found import Imported, escaped, variables_of, with_stand_ins
from rlf.tools.imports.names import unique_name

Json = dict[str, Any]

_MAX_SHOWN = 120
# Options in a command's arguments, e.g. `--token X` or `--token=X`, whose values may be secrets.
_OPTION = re.compile(r"(-{1,2}[\w.-]+)(=|\s+)(\S+)")


@dataclass(frozen=True, slots=True)
class Written:
    """The files of an import."""

    files: tuple[Path, ...]
    left_out: tuple[str, ...]
    """What was not written, with the reason."""
    variables: tuple[str, ...]
    """Environment variables that the files read."""
    notes: tuple[str, ...]
    """Choices made for the user."""


def write_tools(found: Imported, folder: Path, *, source: str, force: bool = False, prefix: str = "") -> Written:
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
    return Written(tuple(paths), tuple(left_out), tuple(variables_of(kept)), tuple(notes))


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
    node = read_value(text, Place("file"), (), folder.absolute(), faults)
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
