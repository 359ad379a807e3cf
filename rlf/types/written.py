"""The one written form of trajectories and of their parts: JSON objects whose keys are the nouns' own fields.

A field that has its default is left out, an image is base64. Spool files hold whole scored trajectories, the lineage
their parts (turns in payloads, calls and scores by columns, tasks as contents), recordings and the cache on disk
results of tools, exports whole trajectories beside columns of numbers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

from rlf.types.score import Scored

T = TypeVar("T")

FIRST_VERSION = 3
"""The oldest that is read; without worlds."""
VERSION = 4
"""What is written."""
NUMBERS = ("tokens", "action_mask", "rollout_logprobs")
"""Fields of a trajectory with a number per token."""
_BELOW = ("trajectory", "turns", "calls", "result", "inner")
"""Keys that lead from a noun to the results in it."""


def write(noun: Any, *, without: Any = None) -> Any:
    """The written form of a noun of `rlf.types`, or of a sequence of them.

    Args:
        without: what is left out, as pydantic's `exclude` has it.
    """
    if isinstance(noun, tuple | list):
        return [write(item, without=without) for item in noun]
    kind: Any = type(noun)
    values = _type_adapter(kind).dump_python(noun, exclude=without, exclude_defaults=True)
    for result in find_results(values):
        for image in result.get("images", ()):
            image["data"] = base64.b64encode(image["data"]).decode()
    return values


def read(kind: type[T], values: Any) -> T:
    """The noun that `write` has written. Takes `values` apart.

    Raises:
        ValueError: they are no such noun.
    """
    for result in find_results(values):
        if images := result.get("images"):
            result["images"] = [image | {"data": base64.b64decode(image["data"])} for image in images]
    key: Any = kind
    found: T = _type_adapter(key).validate_python(values)
    return found


def to_row(scored: Scored | None) -> dict[str, Any]:
    """A scored trajectory as a row of a table: numbers in columns, the rest as JSON. None is one that was thinned."""
    if scored is None:
        return {**{name: [] for name in NUMBERS}, "scored": None}
    numbers = {name: list(getattr(scored.trajectory, name)) for name in NUMBERS}
    return numbers | {"scored": json.dumps(write(scored, without={"trajectory": set(NUMBERS)}), ensure_ascii=False)}


def from_row(row: Mapping[str, Any]) -> Scored:
    """Reads the row that `to_row` wrote. Raises ValueError where it was thinned."""
    if row["scored"] is None:
        raise ValueError("the trajectory was thinned by `rlf runs gc`: nothing of it can be scored")
    values = json.loads(row["scored"])
    values["trajectory"] |= {name: row[name] for name in NUMBERS}
    return read(Scored, values)


def find_results(values: Any) -> Iterator[dict[str, Any]]:
    """The results of tools in a written noun, those inside of agents' calls after the agent's own."""
    if isinstance(values, dict):
        if "outcome" in values and "text" in values:
            yield values
        for key in _BELOW:
            if below := values.get(key):
                yield from find_results(below)
    elif isinstance(values, list | tuple):
        for item in values:
            yield from find_results(item)


@cache
def _type_adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
