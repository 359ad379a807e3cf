"""From what people write in Python to what a command is given."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from rlf.core.callables import import_from
from rlf.core.errors import RlfError
from rlf.core.process import own_loop

AnyPath = str | PathLike[str]
Files = AnyPath | Sequence[AnyPath]
"""A file, or several: of specs, later ones are laid over earlier ones."""
Overrides = Mapping[str, Any] | Sequence[str]
"""`{"train.steps": 20}`, or as on the command line: `["train.steps=20", "~eval"]`."""


@contextmanager
def as_command() -> Iterator[None]:
    """Runs its block as a command runs: callables of the current folder are found, and event loops can start."""
    import_from(Path.cwd())
    with own_loop():
        yield


def to_paths(files: Files) -> list[Path]:
    """The paths of files."""
    return [Path(files)] if isinstance(files, str | PathLike) else [Path(file) for file in files]


def to_texts(overrides: Overrides) -> list[str]:
    """Overrides as the command line has them."""
    if isinstance(overrides, Mapping):
        return [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
    if isinstance(overrides, str):
        raise RlfError(f'overrides: got a string; expected a mapping or a list of strings. Write e.g. ["{overrides}"].')
    return list(overrides)
