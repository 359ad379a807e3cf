"""Renderables as plain text."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType


def rendered(renderable: RenderableType, width: int = 80) -> str:
    """What a terminal of that width shows, without colour; no line is wider, commands excepted."""
    file = io.StringIO()
    Console(file=file, width=width, markup=False, highlight=False, emoji=False).print(renderable, crop=False)
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    assert all(len(line) <= width for line in lines if not line.startswith("rlf ")), lines
    return "\n".join(lines)
