"""Renderables as plain text."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType


def rendered(renderable: RenderableType, width: int = 80) -> str:
    """What a terminal of that width shows, without colour; no line is wider."""
    file = io.StringIO()
    Console(file=file, width=width, markup=False, highlight=False, emoji=False).print(renderable)
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    assert all(len(line) <= width for line in lines), lines
    return "\n".join(lines)
