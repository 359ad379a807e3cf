"""Facts of the models about every key, in words: meaning, type, unit, default and range. For documents and editors.

One source: the field, its docstring, and the docstrings of the enum members it may have.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

_NAMES: dict[Any, str] = {str: "text", int: "whole number", float: "number", Any: "any value"}
_NAMES |= {bool: "`true` or `false`", NoneType: "`null`"}
_UNITS = {"_s": "seconds", "_chars": "characters", "every": "steps"} | {
    name: name for name in ("tokens", "steps", "turns", "threads")
}
"""Units by the end of a key's name, which says them."""


@dataclass(frozen=True, slots=True)
class KeyFact:
    """One key of a mapping."""

    name: str
    meaning: str
    type: str
    """In words, e.g. `whole number or null`."""
    unit: str
    """Empty for what has none."""
    default: str
    """As JSON; `required` where the key must be there, empty for a mapping whose keys have their own."""
    range: str
    """E.g. `>= 1`; empty for any value of the type."""
    choices: tuple[tuple[str, str], ...]
    """Names that the value may have, with what each means."""


def key_facts(model: type[BaseModel]) -> list[KeyFact]:
    """The facts of every key of a model, in order; a key without a meaning has an empty one."""
    return [_make_fact(model, name, info) for name, info in model.model_fields.items()]


def submodels(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """The keys of a model whose values are mappings with keys of their own, with their models."""
    for name, info in model.model_fields.items():
        for found in leaf_types(info.annotation):
            if inspect.isclass(found) and issubclass(found, BaseModel):
                yield info.alias or name, found


def leaf_types(annotation: Any) -> list[Any]:
    """The types that an annotation is made of, without unions, lists and mappings around them."""
    if hasattr(annotation, "__metadata__"):
        return leaf_types(annotation.__origin__)
    if get_origin(annotation) in (None, Literal):
        return [annotation]
    return [found for argument in get_args(annotation) if argument is not ... for found in leaf_types(argument)]


def meaning(model: type[BaseModel], name: str) -> str:
    """A field's docstring; without one, the first paragraph of that of its model or enum."""
    info = model.model_fields[name]
    if doc := field_doc(model, name):
        return _fold_lines(doc)
    classes = [found for found in leaf_types(info.annotation) if inspect.isclass(found)]
    own = [found for found in classes if issubclass(found, BaseModel | Enum) and found.__doc__]
    if own:
        return first_paragraph(own[0])
    return "Chooses the keys beside it." if is_discriminator(info) else ""


def is_discriminator(info: FieldInfo) -> bool:
    """Whether the field can have one value only: the name of the kind that it belongs to."""
    return get_origin(info.annotation) is Literal and len(get_args(info.annotation)) == 1


def first_paragraph(documented: Any) -> str:
    """The first paragraph of a docstring, on one line."""
    return _fold_lines(inspect.cleandoc(documented.__doc__ or "").split("\n\n")[0])


def field_doc(model: type[BaseModel], name: str) -> str:
    """The description of a field, or the docstring under it, which is read when asked for; empty without either."""
    owner = next(found for found in model.__mro__ if name in inspect.get_annotations(found))
    return model.model_fields[name].description or attribute_docs(owner).get(name, "")


def member_docs(enum: type[Enum]) -> dict[str, str]:
    """The docstring under each member of an enum, by the member's value; empty for a member without."""
    docs = attribute_docs(enum)
    return {str(member.value): _fold_lines(docs.get(member.name, "")) for member in enum}


@cache
def attribute_docs(owner: type) -> dict[str, str]:
    """The docstring under each attribute of a class; none where its source is not at hand."""
    try:
        body = _find_classes(inspect.getsource(sys.modules[owner.__module__])).get(owner.__qualname__, [])
    except (OSError, TypeError):
        return {}
    docs: dict[str, str] = {}
    for statement, after in pairwise(body):
        if isinstance(after, ast.Expr) and isinstance(text := getattr(after.value, "value", None), str):
            names = getattr(statement, "targets", [getattr(statement, "target", None)])
            docs |= {name.id: inspect.cleandoc(text) for name in names if isinstance(name, ast.Name)}
    return docs


@lru_cache(8)
def _find_classes(source: str) -> dict[str, list[ast.stmt]]:
    """The bodies of all classes of a module, by qualified name: to find one takes as long as to find all."""
    found: dict[str, list[ast.stmt]] = {}
    below: list[tuple[str, ast.AST]] = [("", ast.parse(source))]
    for prefix, node in below:
        if isinstance(node, ast.ClassDef):
            found.setdefault(f"{prefix}{node.name}", node.body)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            prefix += f"{node.name}." if isinstance(node, ast.ClassDef) else f"{node.name}.<locals>."
        below += [(prefix, child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
    return found


def _make_fact(model: type[BaseModel], field: str, info: FieldInfo) -> KeyFact:
    name = info.alias or field
    kinds = [found for found in leaf_types(info.annotation) if inspect.isclass(found) and issubclass(found, Enum)]
    return KeyFact(
        name=name,
        meaning=meaning(model, field),
        type=_type_words(info.annotation),
        unit=_find_unit(name, info),
        default=_show_default(info),
        range=_show_range(info.metadata, info.annotation),
        choices=tuple(pair for kind in kinds for pair in member_docs(kind).items()),
    )


def _type_words(annotation: Any) -> str:
    if hasattr(annotation, "__metadata__"):
        annotation = annotation.__origin__
    arguments, origin = get_args(annotation), get_origin(annotation)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_type_words, arguments)))
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (tuple, list) and len(arguments) == 2 and arguments[1] is ...:
        words = _type_words(arguments[0])
        return f"list of {(words if words == 'text' else f'{words}s')}"
    if origin in (tuple, list):
        return f"[{', '.join(map(_type_words, arguments))}]"
    if annotation in _NAMES:
        return _NAMES[annotation]
    if inspect.isclass(annotation) and issubclass(annotation, Enum):
        return " or ".join(f"`{member.value}`" for member in annotation)
    return "mapping"


def _find_unit(name: str, info: FieldInfo) -> str:
    if not {int, float} & set(leaf_types(info.annotation)):
        return ""
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")


def _show_default(info: FieldInfo) -> str:
    value = info.default
    if info.default_factory is not None or isinstance(value, BaseModel):
        return ""
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, Enum):
        return str(value.value)
    return value if isinstance(value, str) and value else json.dumps(value)


def _show_range(metadata: Sequence[Any], annotation: Any) -> str:
    inner = [item for arm in get_args(annotation) for item in getattr(arm, "__metadata__", ())]
    bounds = [*metadata, *inner, *(more for item in inner if isinstance(item, FieldInfo) for more in item.metadata)]
    signs = {"ge": ">= {}", "gt": "> {}", "le": "<= {}", "lt": "< {}", "min_length": "at least {} long"}
    parts = [
        words.format(f"{bound:,}" if isinstance(bound, int) else f"{bound:g}")
        for item in bounds
        for key, words in signs.items()
        if (bound := getattr(item, key, None)) is not None
    ]
    patterns = [f"matches `{item.pattern}`" for item in bounds if getattr(item, "pattern", None)]
    return ", ".join(dict.fromkeys([*parts, *patterns]))


def _fold_lines(text: str) -> str:
    return " ".join(text.split())
