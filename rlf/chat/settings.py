"""A run's settings for its turns, and what is known of chat formats without loading any."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field

from rlf.core.identity import remember
from rlf.core.kinds import StrictModel
from rlf.core.registry import are_own, kind_names


class RepairPolicy(StrEnum):
    """Whether a call that is written a little wrong is run."""

    NONE = "none"
    """Never: what is trained on is what the model wrote."""
    SAFE = "safe"
    """Where the repair cannot change the meaning; every repair is counted and kept with the turn."""


class FailurePolicy(StrEnum):
    """Consequence of a parse failure."""

    FEEDBACK = "feedback"
    """The model reads what was wrong and the right form, and continues."""
    PENALISE = "penalise"
    """As feedback; the failure also counts for the reward rule `unpenalised`."""
    END = "end"
    """The trajectory ends with this turn; none of the turn's calls is run."""


class HistoryPolicy(StrEnum):
    """Treatment of a chat template that rewrites earlier turns: it renders other tokens than were seen."""

    KEEP = "keep"
    """The tokens stay as sampled, earlier thinking included; the certificate names what the template would change."""
    FORK = "fork"
    """A turn after which the template drops thinking is followed by a new context without it: the trajectory continues
    there, and each segment is trained on by itself. A template that rewrites anything else is a fault."""
    REFUSE = "refuse"
    """Such a template is a fault."""


class WhenFull(StrEnum):
    """What a new context has of the one before it."""

    DROP_RESULTS = "drop_results"
    """Every turn; of results of tools only the last, a short mark in place of the others."""
    SUMMARIZE = "summarize"
    """The policy's own summary, sampled in a turn of its own and trained on as any turn, and the last turns whole."""


class ContextLimit(StrictModel):
    """When a trajectory continues in a new context, and what the old one leaves out there."""

    limit: int = Field(ge=8)
    """A turn whose prompt has more tokens begins a new context."""
    when_full: WhenFull = WhenFull.DROP_RESULTS
    """What the new context begins with."""
    keep_last: int = Field(1, ge=0)
    """Turns, counted from the last, whose results of tools stay, or which stand after the summary."""


# Chat formats by name, and what is known of all of them without loading any.

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
