"""What of a broken spec stands by itself, so that the rest of it can be looked at, too: loaded only for such a spec."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rlf.core.registry import close_names
from rlf.spec.aliases import aliased, names_below
from rlf.spec.faults import LEAST, known_keys, value_at
from rlf.spec.models import RunSpec
from rlf.spec.nodes import KeyPath, Node, plain
from rlf.spec.validate import validate_items

_MAX_ROUNDS = 5
"""Times that a spec is tried with what was wrong in it left out."""


class SoundPart(NamedTuple):
    """The part of a broken spec that stands by itself."""

    spec: RunSpec
    """Without broken tools and rewards; stand-ins and defaults where other keys are wrong or missing."""
    kept: dict[str, tuple[int, ...]]
    """By `tools` and `rewards`, where its items stand in the list as it is written."""
    broken: frozenset[KeyPath]
    """Keys of which it does not hold what was meant; `tools` or `rewards` where an item is left out."""


def valid_part(root: Node, faulty: Iterable[KeyPath]) -> SoundPart | None:
    """The part of a broken spec that can be looked at further; None where no part is valid.

    Args:
        faulty: keys that have faults of their own, whatever their values are.
    """
    values, kept = plain(root), dict[str, tuple[int, ...]]()
    broken = set(faulty)
    for key, models in validate_items(root, []):
        kept[key] = tuple(place for place, found in enumerate(models) if found is not None)
        values[key] = [found for found in models if found is not None]
        if None in models:
            broken.add((key,))
    if not values.get("rewards"):
        broken.add(("rewards",))
        values["rewards"] = [_LEAST_TERM]
    for _ in range(_MAX_ROUNDS):
        try:
            spec = RunSpec.model_validate(values)
        except ValidationError as error:
            for details in error.errors():
                broken.update(_meant_keys(root, details))
                if removed := _remove_value(values, details["loc"]):
                    broken.add(removed)
                elif not _fill_stand_in(values, details["loc"]):
                    return None
        else:
            some = spec if kept.get("rewards") else spec.model_copy(update={"rewards": ()})
            return SoundPart(some, kept, frozenset(broken))
    return None


_LEAST_TERM = {"kind": "rule", "name": "any", "rule": "exact_match"}


def _meant_keys(root: Node, error: ErrorDetails) -> list[KeyPath]:
    """The keys that an error is about: of a key that nothing knows, those that it may be meant for."""
    path = error["loc"]
    if error["type"] != "extra_forbidden":
        return [path]
    *above, key = path
    own = [(*above, known) for known in close_names(str(key), known_keys(RunSpec, root, above))]
    others = close_names(str(key), names_below(above))
    return own + [target for name in others for target in aliased([*map(str, above), name])]


def _remove_value(values: Any, path: KeyPath) -> KeyPath:
    """Takes the value at a path out of its mapping, or where it is missing the optional mapping around it.

    Returns the path of what was taken out; an empty one where nothing can be.
    """
    holder, place, depth = None, None, 0
    for key in path:
        if not isinstance(values, dict) or key not in values:
            break
        holder, place, values, depth = values, key, values[key], depth + 1
    if holder is None or (depth < len(path) and value_at(LEAST, path) is not None):
        return ()
    del holder[place]
    return path[:depth]


def _fill_stand_in(values: Any, path: KeyPath) -> bool:
    """Puts the stand-in of a key that every spec has."""
    least = value_at(LEAST, path)
    for key in path[:-1]:
        values = values.get(key)
        if not isinstance(values, dict):
            return False
    if least is not None:
        values[path[-1]] = least
    return least is not None
