"""`mcpServers` as other programs write it, in rlf's words: variables, and keys that mean nothing here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from rlf.spec.reading.nodes import KeyPath, Node, edit, edit_leaves, replace_text

SERVERS = "mcpServers"
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_ELSEWHERE = frozenset(
    {"alwaysAllow", "autoApprove", "description", "disabled", "icon", "isActive", "name", "sse_read_timeout", "timeout"}
)
"""Keys of Claude, Cursor, Cline, Qwen-Agent and RL-Factory that say nothing about how a server is reached."""


def with_variables(item: Node) -> Node:
    """`${NAME}` and `${NAME:-default}` within `mcpServers` as `${oc.env:NAME}`; any other item as it is."""
    return edit(item, (SERVERS,), lambda servers: edit_leaves(servers, _with_our_variables))


def each_server(item: Node) -> Iterator[Node]:
    """An item with `mcpServers` as one with `mcp` for every server that is not disabled."""
    rest = {key: child for key, child in item.mapping.items() if key != SERVERS}
    for server in item.mapping[SERVERS].mapping.values():
        if not is_disabled(server):
            settings = {key: child for key, child in server.mapping.items() if key not in _ELSEWHERE}
            yield replace(item, value={**rest, "mcp": replace(server, value=settings) if server.mapping else server})


def is_disabled(server: Node) -> bool:
    """Whether a server is written down and not used."""
    disabled = server.get("disabled")
    return disabled is not None and disabled.value is True


def _with_our_variables(_: KeyPath, node: Node) -> Node:
    return replace_text(node, _VARIABLE, _in_our_words)


def _in_our_words(match: re.Match[str]) -> str:
    name, default = match.groups()
    if default is None:
        return f"${{oc.env:{name}}}"
    quoted = default.replace("\\", "\\\\").replace("'", "\\'")
    return f"${{oc.env:{name},'{quoted}'}}"
