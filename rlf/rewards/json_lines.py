"""JSONL files of trajectories: one JSON object a line, and every line that is wrong reported with its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from rlf.core import Fault, Place, RlfError, SpecError

T = TypeVar("T")


def read_json_lines(
    path: str | Path, holds: str, read: Callable[[Any, int], T], key_depth: int | None = None
) -> list[T]:
    """Each line's value as `read` makes it of the JSON and the line's number; empty lines are passed over.

    Args:
        holds: what the file should hold, for the message about one that cannot be read.
        read: raises ValueError, KeyError or TypeError, pydantic's own among them, for a line that is wrong.
        key_depth: how many names of a key's path a fault shows; None: all.

    Raises:
        RlfError: the file cannot be read.
        SpecError: with every line that is wrong.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")  # U+2028, which splitlines() cuts at, is text
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RlfError(f"{path}: cannot be read: {why}. Name a JSONL file of {holds}.") from error
    found, faults = list[T](), list[Fault]()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(read(json.loads(line), number))
        except ValidationError as error:
            wrong = [(".".join(map(str, each["loc"][:key_depth])), each["msg"]) for each in error.errors()]
        except json.JSONDecodeError as error:
            wrong = [("", f"it is not JSON: {error.msg} at column {error.colno}")]
        except ValueError as error:
            wrong = [("", str(error))]
        except (KeyError, TypeError, RecursionError) as error:
            wrong = [("", f"it holds no trajectory: {error}")]
        else:
            continue
        place = Place(str(path), number, 1)
        faults += [Fault(place, key, f"{words[:1].lower()}{words[1:]}. Correct the line.") for key, words in wrong]
    if faults:
        raise SpecError(faults)
    return found
