"""What people say of trajectories: lines of a JSONL file, for judges to be calibrated with and to be imitated."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import StrictBool, StrictFloat, StrictInt, ValidationError

from rlf.core import Fault, Place, RlfError, SpecError
from rlf.rewards.facts import TrajectoryFacts


class LabelledLine(TrajectoryFacts):
    """One line of the file."""

    label: StrictBool | StrictInt | StrictFloat | Literal["first", "second", "tie"]
    """true or false, or a number on the judge's `range`; of a comparison whether `answer` (first) or `other` is
    better."""
    id: str | None = None
    """Its name in reports; None: its line's number."""
    other: str | None = None
    """The answer that `answer` is compared with, by a judge that compares pairs."""
    author: str | None = None
    """Who wrote the answer: the model's name as `endpoints` have it, for the judge's liking of itself."""
    kind: str | None = None
    """A word of the person's own for what kind of answer it is."""
    comment: str | None = None


LABELS = "labels.jsonl"
"""Of a runs folder: what people say of its trajectories. The page writes it; `rlf demos` reads its labels."""


def label_id(run_id: str, phase: str, step: int, k: int) -> str:
    """The `id` of a trajectory there."""
    return f"{run_id}/{phase}/{step}/{k}"


def read_labelled_lines(path: str | Path) -> list[LabelledLine]:
    """The lines of a file. Raises RlfError, or SpecError with every line that is wrong."""
    return read_json_lines(path, "labelled trajectories", lambda value, _: LabelledLine.model_validate(value))


# JSONL files of trajectories: one JSON object a line, and every line that is wrong reported with its place.

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
