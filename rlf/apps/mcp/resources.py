"""What a client can read: documents, schemas, the help of each command, and the project's YAML files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

import rlf
from rlf.cli.commands import HOMES
from rlf.core.errors import NotFoundError
from rlf.processes.child import run_to_end

_DOCS = Path(rlf.__file__).parents[1] / "docs"
"""Of a checkout; an installed package has none."""
_FOLDERS = ("specs", "tool_specs", "reward_specs")
_ROLES = ("spec", "tool", "reward", "output")
_MAX_BYTES = 1_000_000
_LIMIT_S = 60.0


class Readable(NamedTuple):
    """One resource."""

    uri: str
    name: str
    mime_type: str


def list_readable(project: Path) -> Iterator[Readable]:
    """Everything that `read_resource_text` reads."""
    for path in sorted(_DOCS.rglob("*.md")):
        yield _of_file("docs", _DOCS, path, "text/markdown")
    for role in _ROLES:
        yield Readable(f"rlf://schema/{role}", f"JSON Schema of {role}", "application/json")
    for command in HOMES:
        yield Readable(f"rlf://help/{quote(command)}", f"rlf {command} --help", "text/plain")
    for folder in _FOLDERS:
        for path in sorted((project / folder).rglob("*.yaml")):
            if path.resolve().is_relative_to(project):  # a link may lead anywhere
                yield _of_file("project", project, path, "application/yaml")


def _of_file(kind: str, root: Path, path: Path, mime_type: str) -> Readable:
    name = path.relative_to(root).as_posix()
    return Readable(f"rlf://{kind}/{quote(name)}", name, mime_type)


def read_resource_text(uri: str, project: Path) -> tuple[str, str]:
    """The text of a resource and its type. Raises NotFoundError for any that is not listed."""
    found = next((each for each in list_readable(project) if each.uri == uri), None)
    if found is None:
        raise NotFoundError(f"{uri[:200]}: no such resource. List the resources for those that are there.")
    kind, _, name = uri.removeprefix("rlf://").partition("/")
    if kind in ("docs", "project"):
        file = (_DOCS if kind == "docs" else project) / unquote(name)
        return file.read_bytes()[:_MAX_BYTES].decode("utf-8", errors="replace"), found.mime_type
    words = ["schema", name] if kind == "schema" else [*unquote(name).split(), "--help"]
    command = [sys.executable, "-m", "rlf", *words]
    return run_to_end(command, _LIMIT_S).stdout, found.mime_type
