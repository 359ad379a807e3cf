"""Jinja2 templates over a row's columns: sandboxed, and an undefined name is an error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf.core import nearest
from rlf.core.files import TEMPLATE_SUFFIXES

if TYPE_CHECKING:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment


ROW = "row"
"""The name under which a template sees the row itself, for columns whose names are no words."""


class ColumnTemplateFault(ValueError):
    """A fault of a template, or of a row for it."""


class ColumnTemplate:
    """A parsed template.

    Args:
        source: the template, or the path of a file with it.

    Raises:
        TemplateFault: the file cannot be read, or the syntax is wrong.
    """

    def __init__(self, source: str) -> None:
        from jinja2 import TemplateSyntaxError, meta

        text = _read_source(source)
        try:
            self.names = meta.find_undeclared_variables(_make_environment().parse(text)) - {ROW}
            """Columns that it names."""
        except TemplateSyntaxError as error:
            reason = (error.message or "unreadable").rstrip(".")
            raise ColumnTemplateFault(
                f"not a Jinja2 template: line {error.lineno}: {reason}. Correct that line."
            ) from error
        self._text = text

    @cached_property
    def _compiled_template(self) -> jinja2.Template:
        return _make_environment().from_string(self._text)

    def unknown_names(self, columns: Iterable[str]) -> str | None:
        """Faults of the names, given all that can be filled in."""
        known = list(columns)
        unknown = sorted(self.names - set(known) - set(_make_environment().globals))
        if not unknown:
            return None
        close = nearest(unknown[0], known)
        return f"the template names {unknown[0]!r}{close} (columns: {', '.join(known)}). Name a column."

    def single_braces(self, columns: Iterable[str]) -> str | None:
        """The fault of a text that fills in nothing and has a column in one pair of braces, as Python's formats do."""
        # not behind a letter: `\boxed{answer}` is LaTeX
        found = re.search(rf"(?<![\w{{$])\{{({'|'.join(map(re.escape, columns))})\}}(?!\}})", self._text)
        if found is None or "{{" in self._text or "{%" in self._text:
            return None
        return f"got `{found[0]}`, which is sent as it stands; a template has two braces. Write `{{{{ {found[1]} }}}}`."

    def render(self, values: Mapping[str, Any]) -> str:
        """The text for a row, without line breaks at its end. Raises TemplateFault where it cannot be rendered."""
        try:
            return self._compiled_template.render({ROW: values, **values}).rstrip("\n")
        except Exception as error:
            reason = str(error).rstrip(".") or type(error).__name__
            raise ColumnTemplateFault(
                f"the template cannot be filled in: {reason}. Correct the row or the template."
            ) from error


def _read_source(source: str) -> str:
    if not source.endswith(TEMPLATE_SUFFIXES):
        return source
    try:
        return Path(source).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ColumnTemplateFault(f"{Path(source).name}: no such file. Check the path.") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ColumnTemplateFault(f"{Path(source).name}: cannot be read: {reason}. Check the file.") from error


@cache
def _make_environment() -> ImmutableSandboxedEnvironment:
    from jinja2 import StrictUndefined

    from rlf.core.bounded import BoundedEnvironment

    return BoundedEnvironment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
