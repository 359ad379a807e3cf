"""The tools that a term of kind verify needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlf.apps.verify.verify import VerifyTerm
from rlf.core import Fault, nearest
from rlf.spec import LoadedSpec
from rlf.spec.load import reads
from rlf.spec.nodes import KeyPath
from rlf.tools import ToolDeclaration


@reads("tools", "rewards[]")
def tools_can_verify(loaded: LoadedSpec) -> Iterator[Fault]:
    """The tool is declared, takes these arguments, and gives up before the term does."""
    tools = {tool.name: tool for tool in loaded.spec.tools}
    for position, term in enumerate(loaded.spec.rewards):
        if not isinstance(term, VerifyTerm):
            continue
        tool = tools.get(term.tool)
        if tool is None:
            known = ", ".join(tools) or "none"
            message = f"unknown tool {term.tool!r}{nearest(term.tool, list(tools))} (known: {known}). Declare it under "
            fix = "`tools`, with `hidden: true` where the model is not to see it."
            yield loaded.fault(("rewards", position, "tool"), f"{message}{fix}")
            continue
        limit_s = tool.limits.timeout_s
        if term.timeout_s <= limit_s:
            message = f"got {term.timeout_s:g}; the tool {tool.name!r} has {limit_s:g} s itself, so slow calls would "
            fix = f"be unscorable and not 0. Write more than {limit_s:g}, or lower the tool's limits."
            yield loaded.fault(("rewards", position, "timeout_s"), f"{message}{fix}")
        yield from _arguments_fit(loaded, ("rewards", position, "arguments"), term.arguments, tool)
        if term.expected is not None and term.expected.arguments is not None:
            place = ("rewards", position, "expected", "arguments")
            yield from _arguments_fit(loaded, place, term.expected.arguments, tool)


def _arguments_fit(
    loaded: LoadedSpec, path: KeyPath, arguments: Mapping[str, Any], tool: ToolDeclaration
) -> Iterator[Fault]:
    properties = tool.input_schema.get("properties", {})
    missing = [name for name in tool.input_schema.get("required", ()) if name not in arguments]
    if missing:
        yield loaded.fault(path, f"the tool {tool.name!r} needs {missing[0]!r}. Write `{missing[0]}: ...`.")
    for name in arguments:
        if name not in properties and tool.input_schema.get("additionalProperties") is not True:
            known = ", ".join(properties)
            message = f"the tool {tool.name!r} takes no {name!r}{nearest(name, list(properties))} (known: {known}). "
            yield loaded.fault((*path, name), f"{message}Rename or remove it.")


CHECKS = (tools_can_verify,)
WARNINGS = ()
