"""Records what a command leaves on the terminal as an SVG: `python docs/record.py docs/assets/run.svg rlf run SPEC`.

The live view is left out: what is recorded begins after its last frame. Fonts are the reader's own.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

WIDTH = 100
SHOW_CURSOR = "\x1b[?25h"
"""What ends a live view."""
FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def run_in_terminal(command: list[str]) -> str:
    """Run a command in a terminal of WIDTH columns and return all that it wrote."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(COLUMNS=str(WIDTH), TERM="xterm-256color", COLORTERM="truecolor")
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, WIDTH, 0, 0))
    written = b""
    try:
        while part := os.read(terminal, 65_536):
            written += part
    except OSError:  # Linux reports the end of the child so.
        os.waitpid(child, 0)
    return written.decode("utf-8", "replace")


def write_svg(command: list[str], written: str, path: Path) -> None:
    """Write the command and its last screen; lines that name commands to type next are left out."""
    final = written.rsplit(SHOW_CURSOR, 1)[-1].replace("\r", "")
    lines = [line for line in final.split("\n") if not re.match(r"(\x1b\[[0-9;]*m)*\s*rlf runs show", line)]
    console = Console(record=True, width=WIDTH, file=io.StringIO(), color_system="truecolor")
    console.print(Text.assemble(("$ ", "dim"), (" ".join(command), "bold")))
    console.print(Text.from_ansi("\n".join(lines[1:]).strip("\n")))
    svg = console.export_svg(title="rlf", theme=MONOKAI)
    path.write_text(FONT_FACE.sub("", svg).replace("Fira Code", "ui-monospace"), encoding="utf-8")


if __name__ == "__main__":
    target, *words = sys.argv[1:]
    write_svg(words, run_in_terminal(words), Path(target))
