"""Secrets that a declaration writes out in an address, a query or a body, where recordings, databases and exports keep
them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rlf.core import Fault
from rlf.core.redact import SECRET_FIELDS, secret_parameters
from rlf.spec.reading.layers import ITEM_LISTS
from rlf.spec.reading.nodes import Node

_NOT_SENT = frozenset({"inputSchema", "outputSchema", "tests", "response_schema", "schema"})
"""Keys whose values are the user's own JSON."""


def literal_keys(root: Node) -> Iterator[Fault]:
    """A fault for each secret parameter of a spec's tools and rewards that is written out."""
    for key in ITEM_LISTS:
        if (items := root.get(key)) is not None:
            yield from literal_keys_of(items)


def literal_keys_of(item: Node) -> Iterator[Fault]:
    """The same of one tool, server or reward."""
    for key, child in item.mapping.items():
        if key in _NOT_SENT:
            continue
        if key == "url":
            yield from _in_address(child)
        elif key in SECRET_FIELDS:
            yield from _in_fields(child, SECRET_FIELDS[key])
        yield from literal_keys_of(child)
    for child in item.items:
        yield from literal_keys_of(child)


def _in_address(node: Node) -> Iterator[Fault]:
    text = node.written or node.value
    for name, value in secret_parameters(text) if isinstance(text, str) else ():
        if _is_literal(value):
            yield node.fault(_literal_message(name, f"?{name}=${{oc.env:NAME}}"))


def _in_fields(node: Node, is_secret: Callable[[str], bool]) -> Iterator[Fault]:
    """Those of a query, or of a body at any depth."""
    for name, child in node.mapping.items():
        text = child.written or child.value
        if is_secret(name) and isinstance(text, str) and _is_literal(text):
            yield child.fault(_literal_message(name, f'{name}: "${{oc.env:NAME}}"'))
        yield from _in_fields(child, is_secret)
    for child in node.items:
        yield from _in_fields(child, is_secret)


def _is_literal(text: str) -> bool:
    return text.strip() != "" and "${" not in text and "{{" not in text


def _literal_message(name: str, example: str) -> str:
    return (
        f"got a value of {name!r}, which is a secret by its name; secrets come from the environment, "
        f"so that nothing stores them. Write `{example}` and set the variable NAME."
    )
