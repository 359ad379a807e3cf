"""The console that results are printed on."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from rlf.core.errors import RlfError

_PIPE_WIDTH = 120


class _Console(Console):
    """Rich's console, except that a closed pipe is an error like any other and not an exit with code 1."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def stdout_console() -> Console:
    """A console on stdout as wide as the terminal; wider in a pipe, where nobody's screen sets a width.

    Text is shown as it is: what a model or a tool wrote must not be taken for markup.
    """
    console = _Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPE_WIDTH
    return console


def write_page(path: Path, text: str) -> None:
    """Writes a page of HTML. Raises RlfError where it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RlfError(f"{path}: cannot be written: {error.strerror}. Name a file in a folder that is.") from error
