"""Chat formats by name, and what is known of all of them without loading any."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from rlf.core.identity import remember
from rlf.core.registry import are_own, kind_names

PACKAGE = "rlf.chat.formats"

T = TypeVar("T")


def format_names() -> list[str]:
    """The names of all formats."""
    return kind_names(PACKAGE)


def remember_of_formats(key: Any, find: Callable[[], T]) -> T:
    """What `find` finds out from all formats, which it has to load; a JSON value, remembered where they are all own.

    It holds as long as the files of rlf do, and those of no other package are among them.
    """
    return remember(key, find) if are_own(PACKAGE) else find()


def read_chat_template(folder: Path) -> str | None:
    """The template that renders conversations with tools, as transformers would find it. Raises ValueError."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = _read_object(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template}
        template = named.get("tool_use") or named.get("default")
    return template if isinstance(template, str) else None


def _read_object(file: Path) -> dict[str, Any]:
    """A file's object; nothing where there is no such file. Raises ValueError for what is no JSON."""
    values = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return values if isinstance(values, dict) else {}
