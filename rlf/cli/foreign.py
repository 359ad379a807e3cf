"""Foreign code in commands that only read: named on stderr before it runs, or not run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from rlf.core.callables import foreign_code

NoImport = Annotated[
    bool,
    typer.Option(
        "--no-import", help="Import no Python and start no MCP server, e.g. for a spec that you do not trust."
    ),
]


@contextmanager
def announced(*, no_import: bool | None) -> Iterator[None]:
    """Names foreign code on stderr before it runs within the block.

    Args:
        no_import: Whether it is refused instead; None: the command has no such option.
    """
    hint = "" if no_import is None else " (not with --no-import)"

    def announce(what: str) -> None:
        print(f"about to {what}{hint}", file=sys.stderr, flush=True)

    with foreign_code(None if no_import else announce):
        yield
