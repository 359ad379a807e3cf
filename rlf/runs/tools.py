"""Tools from specs, from tool files, or from the folder `tool_specs`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path

from pydantic import ValidationError

from rlf.core.callables import forget_edited
from rlf.core.errors import Fault, RlfError, SpecError
from rlf.core.registry import nearest
from rlf.spec import load_spec
from rlf.spec.aliases import with_variables
from rlf.spec.code import literal_keys_of
from rlf.spec.faults import faults_of
from rlf.spec.layers import Reading, absolute, interpolate
from rlf.spec.nodes import UNREADABLE, Node, plain
from rlf.spec.paths import resolve_callables, resolve_tool_files
from rlf.spec.validate import names_server, tools_of
from rlf.tools import ToolDeclaration

_FOLDER = Path("tool_specs")
TOOL_KEYS = ("inputSchema", "target")
"""Keys that a tool has, and no spec."""


def load_tools(
    files: Sequence[Path], overrides: Sequence[str] = (), texts: Mapping[Path, str] | None = None
) -> list[ToolDeclaration]:
    """The tools of specs and tool files, each once; of every file in `tool_specs` when none is named.

    Args:
        overrides: of the specs.
        texts: what is read in place of files, by absolute path.

    Raises:
        SpecError: with every fault of every file.
        RlfError: no tool is found.
    """
    return [tool for _, tool in tools_of_files(files, overrides, texts)]


def tools_of_files(
    files: Sequence[Path], overrides: Sequence[str] = (), texts: Mapping[Path, str] | None = None
) -> list[tuple[Path, ToolDeclaration]]:
    """The same, each with the file that was named for it. What imported modules print goes to stderr."""
    forget_edited()
    found, faults = list[tuple[Path, ToolDeclaration]](), list[Fault]()
    for file in files or sorted(_FOLDER.glob("*.yaml")):
        known = [tool for _, tool in found]
        try:
            with redirect_stdout(sys.stderr):
                found += [(file, tool) for tool in _load_tool_file(file, texts or {}, overrides) if tool not in known]
        except SpecError as error:
            faults += error.faults
    if faults:
        raise SpecError(faults)
    if not found:
        where = ", ".join(str(file) for file in files) or f"{_FOLDER}/"
        raise RlfError(f"{where}: no tool is declared there. Name a spec with tools, or a tool file.")
    return found


def tool_named(tools: Sequence[ToolDeclaration], name: str) -> ToolDeclaration:
    """The one tool of that name. Raises RlfError when there is none, or several."""
    found = [tool for tool in tools if tool.name == name]
    if not found:
        known = list(dict.fromkeys(tool.name for tool in tools))
        raise RlfError(f"no tool {name!r}{nearest(name, known)} (known: {', '.join(known)}).")
    if len(found) > 1:
        raise RlfError(f"{name!r} is declared in several files. Name the file, or a spec.")
    return found[0]


def holds_spec(file: Path) -> bool:
    """Whether a file that `load_tools` has read is a spec, and not one tool or MCP's servers."""
    root = Reading().read(absolute(file, Path.cwd()), "tool", None)
    return root is not None and not any(key in root.mapping for key in TOOL_KEYS) and not names_server(root)


def refuse_overrides(file: Path, overrides: Sequence[str]) -> None:
    """Raises RlfError for overrides of a file that is no spec."""
    if overrides:
        raise RlfError(f"{overrides[0]}: {file} is no spec, and overrides are of specs. Name the spec that uses it.")


def _load_tool_file(file: Path, texts: Mapping[Path, str], overrides: Sequence[str]) -> Sequence[ToolDeclaration]:
    reading = Reading(texts)
    root = reading.read(absolute(file, Path.cwd()), "tool", None)
    if root is None:
        raise SpecError(reading.faults)
    if not any(key in root.mapping for key in TOOL_KEYS) and not names_server(root):
        return load_spec([file], overrides, texts).spec.tools
    refuse_overrides(file, overrides)
    root = reading.with_agents_tools(root, (absolute(file, Path.cwd()),))
    if reading.faults:
        raise SpecError(reading.faults)
    return _declared_tools(root)


def _declared_tools(root: Node) -> list[ToolDeclaration]:
    """The tool that a file declares, or those of the MCP servers that it names."""
    faults: list[Fault] = []
    item = interpolate(with_variables(root), faults)
    faults += literal_keys_of(item)
    nodes = tools_of(item, faults)
    try:
        tools = [_read_tool(node) for node in nodes if node.value is not UNREADABLE]
    except SpecError as error:
        raise SpecError([*faults, *error.faults]) from error
    if faults:
        raise SpecError(faults)
    return tools


def _read_tool(root: Node) -> ToolDeclaration:
    """The declaration that a tool file holds, filled in already: a text that it was filled in with is data."""
    root = resolve_tool_files(resolve_callables(root))
    try:
        return ToolDeclaration.model_validate(plain(root), context={"folder": root.folder})
    except ValidationError as error:
        raise SpecError(faults_of(ToolDeclaration, root, error.errors())) from error
