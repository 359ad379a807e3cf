"""Templates filled in: pure, from values; what models and tools wrote is escaped, and control characters are shown."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from markupsafe import Markup

from rlf.reports.quantities import visible

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: object) -> str:
    """A template of this folder as one page that loads nothing: its style and its script stand in it."""
    # Both are files of this package, without any text of a run.
    style, script = (Markup(_read_text(name)) for name in ("report.css", "report.js"))
    return (
        _make_page_environment().get_template(template).render(layout="base.html", style=style, script=script, **values)
    )


def _read_text(name: str) -> str:
    return files("rlf.reports.pages").joinpath(name).read_text(encoding="utf-8")


@cache
def _make_page_environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_read_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    return environment
