"""Jinja2 templates over a row's columns: sandboxed, and an undefined name is an error. Loads jinja2 when used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf.core import nearest

if TYPE_CHECKING:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATE_SUFFIXES = (".jinja", ".jinja2", ".j2")
"""A text that ends so names a file with the template."""
ROW = "row"
"""The name under which a template sees the row itself, for columns whose names are no words."""


class TemplateFault(ValueError):
    """A fault of a template, or of a row for it."""


class Template:
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
            raise TemplateFault(f"not a Jinja2 template: line {error.lineno}: {reason}. Correct that line.") from error
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

    def render(self, values: Mapping[str, Any]) -> str:
        """The text for a row, without line breaks at its end. Raises TemplateFault where it cannot be rendered."""
        try:
            return self._compiled_template.render({ROW: values, **values}).rstrip("\n")
        except Exception as error:
            reason = str(error).rstrip(".") or type(error).__name__
            raise TemplateFault(
                f"the template cannot be filled in: {reason}. Correct the row or the template."
            ) from error


def _read_source(source: str) -> str:
    if not source.endswith(TEMPLATE_SUFFIXES):
        return source
    try:
        return Path(source).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise TemplateFault(f"{Path(source).name}: no such file. Check the path.") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise TemplateFault(f"{Path(source).name}: cannot be read: {reason}. Check the file.") from error


@cache
def _make_environment() -> ImmutableSandboxedEnvironment:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    return ImmutableSandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
