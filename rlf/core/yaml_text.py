"""YAML 1.2's core schema for PyYAML: `yes`, `on` and dates are text, `1e-5` is a number.

Invariant: what `dump_yaml` writes, `CoreLoader` reads as it was. Both use the one list of plain scalars below.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import yaml

from rlf.core.redact import clean
from rlf.core.text import clean_value

TAG = "tag:yaml.org,2002:"
NULL, BOOL, INT, FLOAT, STR, MERGE = (TAG + name for name in ("null", "bool", "int", "float", "str", "merge"))
_RESOLVERS = (
    (NULL, r"~|null|Null|NULL|", "~nN"),
    (BOOL, r"true|True|TRUE|false|False|FALSE", "tTfF"),
    (INT, r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        FLOAT,
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    (MERGE, r"<<", "<"),
)
PLAIN = {tag: pattern for tag, pattern, _ in _RESOLVERS}
"""What a scalar without a tag is read by; one that is given a tag may hold anything."""


class CoreLoader(yaml.SafeLoader):
    """PyYAML's safe composer with the core schema's plain scalars."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # PyYAML's own way to hold them


class _DocumentLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # absent without libyaml
    """Plain values of the core schema; any other tag is an error."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # PyYAML's own way to hold them
    yaml_constructors: dict[Any, Any] = {}  # noqa: RUF012  # PyYAML's own way to hold them


class _CoreDumper(yaml.SafeDumper):
    """Quotes every text that the loader would take for something else, and writes no anchors."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # PyYAML's own way to hold them

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _class in (CoreLoader, _DocumentLoader, _CoreDumper):
    for _tag, _pattern, _first in _RESOLVERS:
        _class.add_implicit_resolver(
            _tag, re.compile(f"^(?:{_pattern})$"), ["", *_first] if _tag == NULL else [*_first]
        )

for _constructed, _construct in {
    NULL: lambda loader, node: None,
    BOOL: lambda loader, node: node.value.lower() == "true",
    INT: lambda loader, node: read_integer(node.value),
    FLOAT: lambda loader, node: math.inf if "n" in node.value.lower() else float(node.value),
    STR: lambda loader, node: node.value,
    TAG + "seq": yaml.SafeLoader.construct_yaml_seq,
    TAG + "map": yaml.SafeLoader.construct_yaml_map,
    None: yaml.SafeLoader.construct_undefined,
}.items():
    _DocumentLoader.add_constructor(_constructed, _construct)


def read_integer(text: str) -> int:
    """A number of the core schema: decimal, `0o17` or `0x1F`."""
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def load_document(text: str) -> Any:
    """The value of a JSON or YAML document of any size, with keys as text and null for numbers that JSON lacks.

    Raises ValueError where it is neither.
    """
    try:
        return _as_json(json.loads(text), {})
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        pass
    try:
        return _as_json(yaml.load(text, Loader=_DocumentLoader), {})  # a safe loader with fewer tags
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _as_json(value: Any, converted: dict[int, Any]) -> Any:
    """The value; what an anchor names several times, or within itself, stays one object and is looked at once."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if not isinstance(value, dict | list):
        return clean(value) if isinstance(value, str) else value
    if id(value) not in converted:
        found: Any = {} if isinstance(value, dict) else []
        converted[id(value)] = found
        if isinstance(value, dict):
            for key, child in value.items():
                found[clean(key) if isinstance(key, str) else json.dumps(key)] = _as_json(child, converted)
        else:
            found += [_as_json(child, converted) for child in value]
    return converted[id(value)]


def dump_yaml(value: Any) -> str:
    """A JSON value as YAML, in valid text."""
    return yaml.dump(clean_value(value), Dumper=_CoreDumper, sort_keys=False, allow_unicode=True, width=110)
