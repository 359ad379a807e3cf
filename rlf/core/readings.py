"""Which readings of a value (text, number, boolean, null, JSON) a JSON Schema accepts, found by validation.

No keyword is read here: what `allOf`, `$ref`, `enum` or any other means is the validator's to say, at any depth. A type
is asked for with values of it: what refuses them for their type, or for being none of a list, rules the type out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind

from rlf.core.plain_json import decode_json, expanded

Path = tuple[str | int, ...]

# Values that no `enum` or `const` names by chance; two of a type, since `not` may refuse one.
_PROBES: Mapping[str, tuple[Any, ...]] = {
    "string": ("\N{OBJECT REPLACEMENT CHARACTER} 8128991", ""),
    "integer": (8128991, -8128991),
    "number": (0.8128991, -0.8128991),
    "boolean": (True, False),
    "array": ([], [None]),
    "object": ({}, {"\N{OBJECT REPLACEMENT CHARACTER} 8128991": None}),
    "null": (None,),
}
KINDS = frozenset(_PROBES)
"""Every type of JSON."""
MAX_ERRORS = 64
"""Faults of one value that are looked at, and ways to repair it that are tried."""


def compile_schema(schema: Mapping[str, Any]) -> Draft202012Validator:
    """A validator of JSON Schema 2020-12. Raises jsonschema_rs.ValidationError with the path of what is wrong."""
    return Draft202012Validator(dict(schema), retriever=_refuse_reference)


def _refuse_reference(uri: str) -> Any:
    raise ValueError(f"{uri} is not part of the schema; put it under `$defs`")


@dataclass(frozen=True, slots=True)
class Admission:
    """What a schema admits in one place."""

    kinds: frozenset[str]
    """Types of which it admits values without naming each; "integer" only beside no "number"."""
    choices: tuple[Any, ...] = ()
    """Single values that it names, of other types."""

    @property
    def every_kind(self) -> frozenset[str]:
        """The types of all values that may come."""
        return self.kinds | {kind_of(value) for value in self.choices}

    @property
    def is_anything(self) -> bool:
        """Whether no type is ruled out."""
        return self.kinds >= KINDS - {"integer"}

    def in_words(self) -> str:
        """As the model reads it, `integer or null`; empty where anything goes, or nothing."""
        if self.is_anything:
            return ""
        named = [f"one of {', '.join(map(repr, self.choices))}"] if self.choices else []
        return " or ".join([*named, *(kind for kind in _PROBES if kind in self.kinds)])


class Readings:
    """The schema of an object, as its properties are read."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises jsonschema_rs.ValidationError or ValueError for what is no schema."""
        self.validator = compile_schema(schema)
        self.names = frozenset(expanded(schema).get("properties") or ())
        """The properties that the schema names."""
        self._admitted: dict[str, Admission] = {}

    def takes(self, name: str, value: Any) -> bool:
        """Whether a property may have a value, whatever the object's other properties are."""
        return not any(_refuses(error, (name,)) for error in self.validator.iter_errors({name: value}))

    def admitted(self, name: str) -> Admission:
        """What a property may be."""
        if name not in self._admitted:
            self._admitted[name] = self._probe(name)
        return self._admitted[name]

    def _probe(self, name: str) -> Admission:
        kinds, choices = set[str](), list[Any]()
        for kind, probes in _PROBES.items():
            found = [_ask_kind(self.validator.iter_errors({name: probe}), (name,), kind) for probe in probes]
            named = [one for options in found if options is not None for one in options]
            if named:
                once = [one for at, one in enumerate(named) if one not in named[:at]]
                choices += [one for one in once if self.takes(name, one)]
            elif any(options is not None for options in found):
                kinds.add(kind)
        return Admission(frozenset(kinds - {"integer"} if "number" in kinds else kinds), tuple(choices))

    def is_text(self, name: str) -> bool:
        """Whether a property is a text and nothing else."""
        return self.admitted(name).every_kind == {"string"}

    def read_text(self, name: str, text: str) -> Any:
        """The value that a bare text stands for: itself where only a text may come, else its JSON where that may.

        Raises ValueError for a text that is no JSON where only JSON may come.
        """
        if self.is_text(name):
            return text
        kinds = self.admitted(name).every_kind
        stripped = text.strip(" \t\r\n")
        try:
            value, end = decode_json(stripped)
            is_whole = end == len(stripped)
        except ValueError:
            is_whole = False
        if not is_whole:
            if "string" in kinds:
                return text
            raise ValueError(f"expected JSON of type {' or '.join(sorted(kinds))}")
        if self.takes(name, value):
            return value
        # Neither is accepted: the reading of an admitted type gives the better complaint.
        return text if self.takes(name, text) or ("string" in kinds and kind_of(value) not in kinds) else value


ANYTHING = Readings({"type": "object"})
"""No schema: any reading is accepted."""


def kind_of(value: Any) -> str:
    """The JSON type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case float():
            return "number"
        case list() | tuple():
            return "array"
    return "object"


def branches_of(error: ValidationError) -> Sequence[Sequence[ValidationError]] | None:
    """The errors of each choice that an error of `anyOf` or `oneOf` is made of; None for another."""
    match error.kind:
        case ValidationErrorKind.AnyOf() | ValidationErrorKind.OneOfNotValid():
            return error.kind.context or None
    return None


def _refuses(error: ValidationError, place: Path) -> bool:
    """Whether an error is about what stands at a place, or inside it."""
    if tuple(error.instance_path)[: len(place)] == place:
        return True
    branches = branches_of(error)
    return branches is not None and all(any(_refuses(one, place) for one in branch) for branch in branches)


def _ask_kind(errors: Iterator[ValidationError], place: Path, kind: str) -> list[Any] | None:
    """What errors of a value of a type at a place say of the type.

    None: it is ruled out; else the single values of the type that are admitted, empty where any may be.
    """
    named: list[Any] = []
    for error in islice(errors, MAX_ERRORS):
        found = _ask_error(error, place, kind)
        if found is None:
            return None
        named += found
    return named


def _ask_error(error: ValidationError, place: Path, kind: str) -> list[Any] | None:
    branches = branches_of(error)
    if branches is not None:
        found = [_ask_kind(iter(branch), place, kind) for branch in branches]
        admitting = [options for options in found if options is not None]
        if not admitting:
            return None
        # A choice that admits the type without naming a value admits more than the named ones.
        return [] if [] in admitting else [one for options in admitting for one in options]
    if tuple(error.instance_path) != place:
        return []
    match error.kind:
        case ValidationErrorKind.Type() | ValidationErrorKind.FalseSchema() | ValidationErrorKind.Not():
            return None
        case ValidationErrorKind.Enum(options=options):
            return [one for one in options if kind_of(one) == kind] or None
        case ValidationErrorKind.Constant(expected_value=value):
            return [value] if kind_of(value) == kind else None
    return []
