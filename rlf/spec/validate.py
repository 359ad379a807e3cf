"""From a tree of nodes to the models, with every error of theirs as a fault at its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rlf.core import Fault, nearest
from rlf.rewards.term import Term
from rlf.spec.fields import doc_at, field_at, known_keys, known_kinds
from rlf.spec.layers import ITEM_LISTS
from rlf.spec.models import RunSpec
from rlf.spec.names import unknown_key
from rlf.spec.nodes import UNREADABLE, Key, KeyPath, Node, dotted, find, plain, walk
from rlf.spec.sentences import boolean_for_number, missing, own_words, show, unknown, wrong_value
from rlf.tools.declaration import ToolDeclaration

M = TypeVar("M", bound=BaseModel)

_MAX_ROUNDS = 5
"""Times that a spec is tried with what was wrong in it left out."""


def validate_spec(root: Node, faults: list[Fault]) -> RunSpec | None:
    """The spec; None, with faults added, when anything in it is wrong."""
    values = plain(root)
    complete = True
    faults += _booleans_for_numbers(RunSpec, root)
    for key, model in (("tools", ToolDeclaration), ("rewards", Term)):
        items = root.get(key)
        if items is None or not isinstance(items.value, list):
            continue
        models = [validate_item(model, key, item, faults) for item in items.items]
        complete = complete and None not in models
        values[key] = [found for found in models if found is not None]
    try:
        spec = RunSpec.model_validate(values)
    except ValidationError as error:
        faults += faults_of(
            RunSpec, root, [details for details in error.errors() if complete or not _is_count(details)]
        )
        return None
    return spec if complete else None


class Part(NamedTuple):
    """What of a broken spec stands by itself."""

    spec: RunSpec
    """Broken tools and rewards are left out, other broken values have their defaults."""
    kept: dict[str, tuple[int, ...]]
    """By `tools` and `rewards`, where its items stand in the list as it is written."""
    only_items: bool
    """Whether nothing but tools and rewards is broken."""


def valid_part(root: Node) -> Part | None:
    """The part of a broken spec that can be looked at further; None when it lacks what every spec has."""
    values, kept = plain(root), dict[str, tuple[int, ...]]()
    for key, model in (("tools", ToolDeclaration), ("rewards", Term)):
        items = root.get(key)
        models = [validate_item(model, key, item, []) for item in items.items] if items is not None else []
        kept[key] = tuple(place for place, found in enumerate(models) if found is not None)
        if items is not None:
            values[key] = [found for found in models if found is not None]
    only_items = True
    for _ in range(_MAX_ROUNDS):
        try:
            return Part(RunSpec.model_validate(values), kept, only_items)
        except ValidationError as error:
            only_items = False
            if not all(_without(values, details["loc"]) for details in error.errors()):
                return None
    return None


def _without(values: Any, path: KeyPath) -> bool:
    """Takes the value at a path, or the nearest around it, out of its mapping; whether there is such a value."""
    holder, place = None, None
    for key in path:
        if not isinstance(values, dict) or key not in values:
            break
        holder, place, values = values, key, values[key]
    if holder is not None:
        del holder[place]
    return holder is not None


def _booleans_for_numbers(model: type[BaseModel], root: Node) -> Iterator[Fault]:
    """Pydantic takes `true` for 1; whoever writes it means something else."""
    for path, node in walk(root):
        if isinstance(node.value, bool) and path:
            field = field_at(model, root, path)
            arms = (field.annotation, *get_args(field.annotation)) if field is not None else ()
            if bool not in arms and (int in arms or float in arms):
                number = "a whole number" if int in arms else "a number"
                assert field is not None, f"no field for {path}"
                yield node.fault(boolean_for_number(show(node.value), str(path[-1]), field, number))


def _is_count(error: ErrorDetails) -> bool:
    """Whether an error says that items are too few, as they seem when some of them are broken."""
    return error["type"] == "too_short" and error["loc"] in (("tools",), ("rewards",))


def validate_item(model: type[M], key: str, item: Node, faults: list[Fault]) -> M | None:
    """A tool or a reward: on its own, since its paths start from its own file's folder."""
    if item.value is UNREADABLE:
        return None
    if not isinstance(item.value, dict):
        role = ITEM_LISTS[key]
        message = f"got {show(plain(item))}; expected a path to a {role} file, or a mapping. "
        faults.append(item.fault(f"{message}Write e.g. `../{role}_specs/name.yaml`."))
        return None
    faults += _booleans_for_numbers(model, item)
    try:
        return model.model_validate(plain(item), context={"folder": item.folder})
    except ValidationError as error:
        faults += faults_of(model, item, error.errors())
        return None


def faults_of(model: type[BaseModel], root: Node, errors: Sequence[ErrorDetails]) -> list[Fault]:
    """Pydantic's errors about the values of a tree as faults in its files.

    A union's errors, one for each arm, are about one value and become one fault.
    """
    groups: dict[tuple[KeyPath, bool], list[ErrorDetails]] = {}
    misspelt = [error["loc"] for error in errors if error["type"] == "extra_forbidden"]
    for error in errors:
        if _seems_short(root, error) or (error["type"] == "missing" and _is_misspelt(error["loc"], misspelt)):
            continue
        about_key = error["type"] in ("missing", "extra_forbidden")
        path = error["loc"] if about_key else error["loc"][: find(root, error["loc"])[1]]
        groups.setdefault((path, about_key), []).append(error)
    return [_fault(model, root, path, group) for (path, _), group in groups.items()]


def _seems_short(root: Node, error: ErrorDetails) -> bool:
    """Whether a list is long enough as it is written, and was counted without its broken items."""
    node, depth = find(root, error["loc"])
    written = error["type"] == "too_short" and depth == len(error["loc"])
    return written and len(node.items) >= error["ctx"]["min_length"]


def _is_misspelt(missing_at: KeyPath, unknown_at: Sequence[KeyPath]) -> bool:
    """Whether a missing key is there under a name that is nearly its own: that is one fault, not two."""
    beside = [path for path in unknown_at if path[:-1] == missing_at[:-1]]
    return any(nearest(str(path[-1]), [str(missing_at[-1])]) for path in beside)


def _fault(model: type[BaseModel], root: Node, path: KeyPath, errors: Sequence[ErrorDetails]) -> Fault:
    node, depth = find(root, path)
    key = str(path[-1]) if path else ""
    if errors[0]["type"] == "missing":
        return _missing(model, root, path)
    if errors[0]["type"] == "extra_forbidden":
        known = known_keys(model, root, path[:-1])
        return node.fault(unknown_key(path, known) if model is RunSpec else unknown(key, known), at_key=True)
    assert depth == len(path), f"an error about {path}, which the tree does not hold"
    if errors[0]["type"] == "unknown_kind":
        return node.fault(f"{own_words(errors[0])} Write one of these.")
    return node.fault(wrong_value(_got(root, path), errors, key, field_at(model, root, path)))


def _missing(model: type[BaseModel], root: Node, path: KeyPath) -> Fault:
    node, _ = find(root, path)
    if isinstance(path[-1], int):
        return node.fault(f"got a list of {len(node.items)}; expected at least {path[-1] + 1} items. Add the others.")
    kinds = known_kinds(model, root, path)
    where: tuple[Key, ...] = (*node.path, path[-1])
    return Fault(
        node.key_place if node.path else node.place,
        dotted(where),
        missing(path[-1], doc_at(model, root, path), kinds),
    )


def _got(root: Node, path: KeyPath) -> str:
    """The value at a path as a message shows it; one that was filled in is shown as written, since it may be secret."""
    for length in range(len(path) + 1):
        node, _ = find(root, path[:length])
        if node.written is not None:
            return f"the value of {node.written}"
    return show(plain(find(root, path)[0]))
