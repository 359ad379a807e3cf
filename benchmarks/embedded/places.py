"""Where the questions and models of tasks are: those that ship in the package, those of benchmarks here."""

from __future__ import annotations

from pathlib import Path

from rlf.builtin.names import builtin_path

_HERE = Path(__file__).parent


def place_of(name: str) -> Path:
    """The file or folder of a name such as `bisect/heldout`, `prober` or `rooms/heldout`. Raises RlfError."""
    task, _, part = name.partition("/")
    own = _HERE / task / (f"data/{part}.jsonl" if part else "checkpoint")
    return own if own.exists() else builtin_path(name)
