"""The console that results are printed on."""

from __future__ import annotations

import os

from rich.console import Console

_PIPE_WIDTH = 120


def stdout_console() -> Console:
    """A console on stdout as wide as the terminal; wider in a pipe, where nobody's screen sets a width.

    Text is shown as it is: what a model or a tool wrote must not be taken for markup.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPE_WIDTH
    return console
