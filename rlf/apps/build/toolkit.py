"""The functions of a world: one for each relation, some of them integrated, scaled by the dials, named by a grammar."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlf.apps.build.kind import Complexity
from rlf.apps.build.pack import Family, Pack, PackRelation

SUBJECT, KEY, OTHER = "subject", "key", "other"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a function."""

    role: str
    """The parameter of the shared code that it is passed on as; `extra` for one that is not."""
    name: str
    schema: Mapping[str, Any]
    default: Any = None
    required: bool = False

    @property
    def hint(self) -> str:
        """Its type and default in a signature."""
        kind = {"string": "str", "boolean": "bool", "integer": "int"}[self.schema["type"]]
        if self.required:
            return kind
        return f"{kind} | None = None" if self.default is None else f"{kind} = {self.default!r}"


@dataclass(frozen=True, slots=True)
class Function:
    """One tool: it finds the values of one relation, or of several of one signature."""

    name: str
    description: str
    kind: str
    """The kind of its subjects."""
    words: Mapping[str, str]
    """The key word of each of its relations."""
    mutable: tuple[str, ...]
    """Those of them that have changed."""
    field: str
    """The name of the value in its records."""
    level: int
    """The dial of the function."""
    parameters: tuple[Parameter, ...]
    shared: str = "_answer"
    """The function of the shared code that does its work."""

    def declaration(self) -> dict[str, Any]:
        """The tool in MCP's words, without a target."""
        schema = {
            "type": "object",
            "properties": {each.name: dict(each.schema) for each in self.parameters},
            "required": [each.name for each in self.parameters if each.required],
        }
        return {"name": self.name, "description": self.description, "inputSchema": schema}

    def arguments(self, relation: str, subject: Any, other: Any = None) -> dict[str, Any]:
        """The required arguments of a call that finds the value of a relation."""
        values = {SUBJECT: subject, KEY: self.words[relation], "kind": self.kind, "extra": "none"}
        values[OTHER] = subject if other is None else other
        return {each.name: _wrap_value(each.schema, values[each.role]) for each in self.parameters if each.required}

    def source(self) -> str:
        """The Python function, over `_answer` of the shared code."""
        ordered = sorted(self.parameters, key=lambda each: not each.required)
        inputs = [each.name if each.required else f"{each.name}={each.default!r}" for each in ordered]
        passed = [f"{each.role}={each.name}" for each in self.parameters if each.role not in (SUBJECT, "extra")]
        subject = next(each.name for each in self.parameters if each.role == SUBJECT)
        relations = {word: relation for relation, word in self.words.items()}
        tool: dict[str, Any] = {"kind": self.kind, "relations": relations, "field": self.field, "function": self.level}
        if self.level == 3:
            tool["former"] = list(self.mutable)
        call = ", ".join([repr(tool), subject, *passed])
        return f"def {self.name}({', '.join(inputs)}):\n    return {self.shared}({call})\n"

    def method(self) -> str:
        """The method of a world that calls the function, with what its document says in hints and docstring."""
        ordered = sorted(self.parameters, key=lambda each: not each.required)
        inputs = "".join(f", {each.name}: {each.hint}" for each in ordered)
        passed = "".join(f", {each.name}={each.name}" for each in ordered)
        docs = "".join(f"        {each.name}: {each.schema['description']}\n" for each in ordered)
        return (
            f'\n\ndef _method(self{inputs}) -> Any:\n    """{self.description}\n\n    Args:\n{docs}    """\n'
            f"    return self._call({self.name}{passed})\n\n\n"
            f"_method.__name__ = {self.name!r}\nWorld.{self.name} = _method\n"
        )


def _wrap_value(schema: Mapping[str, Any], value: Any) -> Any:
    """A value in the objects and lists that a schema puts around it."""
    if schema["type"] == "array":
        return [_wrap_value(schema["items"], value)]
    if schema["type"] == "object":
        ((name, inner),) = schema["properties"].items()
        return {name: _wrap_value(inner, value)}
    return value


@dataclass(frozen=True, slots=True)
class Toolkit:
    """All functions of a world."""

    functions: tuple[Function, ...]
    by_relation: Mapping[str, Function]
    family_by_name: Mapping[str, int]
    """The family of relations that each function is of."""
    actions: Mapping[str, Function]
    """Functions that change the values of a relation, by its name."""


def make_toolkit(
    pack: Pack, complexity: Complexity, integrate: float, used: set[str], rng: random.Random, *, acts: bool = False
) -> Toolkit:
    """Functions for every relation of a pack.

    Args:
        integrate: chance that the relations of a family have one function together.
        used: names that are taken; gets those of the toolkit.
        acts: whether there are functions that change the values of mutable relations.
    """
    functions: list[Function] = []
    families: dict[str, int] = {}
    for place, family in enumerate(pack.families):
        relations = [relation for relation in pack.relations if relation.family == place]
        groups = [relations] if len(relations) > 1 and rng.random() < integrate else [[each] for each in relations]
        for group in groups:
            function = _make_function(pack, family, group, complexity, used, rng)
            functions.append(function)
            families[function.name] = place
    by_relation = {relation: function for function in functions for relation in function.words}
    actions = {
        each.name: _make_change_function(pack, each, used, rng)
        for each in pack.relations
        if acts and each.words.mutable
    }
    families |= {actions[each.name].name: each.family for each in pack.relations if each.name in actions}
    return Toolkit((*functions, *actions.values()), by_relation, families, actions)


def _make_change_function(pack: Pack, relation: PackRelation, used: set[str], rng: random.Random) -> Function:
    """A function by which two things change values."""
    word = rng.choice(relation.words.nouns)
    name = f"{rng.choice(('exchange', 'swap', 'switch'))}_{word}"
    number = next(number for number in range(1, 10_000) if (name if number == 1 else f"{name}_{number}") not in used)
    name = name if number == 1 else f"{name}_{number}"
    used.add(name)
    subject = _make_subject(pack, relation.subject, 0, rng)
    other = Parameter(OTHER, "other", _text_schema(f"Name of the other {relation.subject}."), required=True)
    description = (
        f"Exchanges {rng.choice(relation.words.docs)} with that of another {relation.subject}; returns a receipt."
    )
    words = {relation.name: word}
    return Function(name, description, relation.subject, words, (), word, 0, (subject, other), "_exchange")


def _make_function(
    pack: Pack,
    family: Family,
    group: Sequence[PackRelation],
    complexity: Complexity,
    used: set[str],
    rng: random.Random,
) -> Function:
    kind = family.subject
    words = {relation.name: rng.choice(relation.words.nouns) for relation in group}
    docs = {relation.name: rng.choice(relation.words.docs) for relation in group}
    nouns = family.nouns if len(group) > 1 else group[0].words.nouns
    name = _free_name(pack, nouns, kind, used, rng)
    choices = "; ".join(f"{words[name]} is {docs[name]}" for name in words)
    key = rng.choice(family.keys)
    if len(group) > 1:
        description = rng.choice(pack.chooses).format(kind=kind, key=key, choices=choices)
    else:
        description = rng.choice(pack.returns).format(doc=docs[group[0].name])
    parameters = [_make_subject(pack, kind, complexity.types, rng)]
    if len(group) > 1:
        parameters.append(_key_parameter(pack, key, [*words.values()], complexity.types, rng))
    parameters += _list_extra_parameters(kind, pack.kinds, complexity)
    field = rng.choice(nouns)
    mutable = tuple(relation.name for relation in group if relation.words.mutable)
    return Function(name, description, kind, words, mutable, field, complexity.function, tuple(parameters))


def _free_name(pack: Pack, nouns: Sequence[str], kind: str, used: set[str], rng: random.Random) -> str:
    """A name that no other tool has; numbered where the grammar's are all taken."""
    for number in range(2, 10_000):
        for _ in range(12):
            words = {"verb": rng.choice(pack.verbs), "noun": rng.choice(nouns), "kind": kind}
            name = rng.choice(pack.names).format(**words).strip("_")
            name = name if number == 2 else f"{name}_{number - 1}"
            if name not in used:
                used.add(name)
                return name
    raise AssertionError(f"no name is left for {nouns}")


def _text_schema(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _list_function(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": dict(item), "minItems": 1, "maxItems": 1}


def _make_subject(pack: Pack, kind: str, types: int, rng: random.Random) -> Parameter:
    name = rng.choice(pack.subjects).format(kind=kind)
    schema = _text_schema(rng.choice(pack.subject_docs).format(kind=kind))
    if types >= 2:
        inner = ("names", _list_function(schema)) if types == 3 else ("name", schema)
        schema = {"type": "object", "properties": dict([inner]), "required": [inner[0]]}
    return Parameter(SUBJECT, name, schema, required=True)


def _key_parameter(pack: Pack, name: str, words: Sequence[str], types: int, rng: random.Random) -> Parameter:
    schema = _text_schema(rng.choice(pack.key_docs).format(choices=", ".join(words)))
    if types >= 1:
        schema["enum"] = list(words)
    return Parameter(KEY, name, _list_function(schema) if types == 3 else schema, required=True)


def _list_extra_parameters(kind: str, kinds: Sequence[str], complexity: Complexity) -> Iterator[Parameter]:
    """The parameters that the dial adds."""
    if complexity.parameters >= 1:
        schema = {"type": "boolean", "description": "Whether the name must be spelled as it is stored."}
        yield Parameter("exact", "exact", {**schema, "default": False}, False)
    if complexity.parameters >= 2:
        yield Parameter("limit", "limit", {"type": "integer", "description": "Most records.", "default": 1}, 1)
        date = _text_schema("A day, as 2024-05-01; without it today.")
        yield Parameter("as_of", "as_of", {**date, "format": "date"} if complexity.types else date)
    if complexity.parameters >= 3:
        schema = _text_schema(f"What the name stands for: {', '.join(kinds)}.")
        yield Parameter("kind", "kind", {**schema, "enum": list(kinds)} if complexity.types else schema, required=True)


def renamed(toolkit: Toolkit, rename: Callable[[Function], Function]) -> Toolkit:
    """The same functions under other names."""
    functions = {each.name: rename(each) for each in toolkit.functions}
    return replace(
        toolkit,
        functions=tuple(functions.values()),
        by_relation={relation: functions[each.name] for relation, each in toolkit.by_relation.items()},
        actions={relation: functions[each.name] for relation, each in toolkit.actions.items()},
        family_by_name={functions[name].name: family for name, family in toolkit.family_by_name.items()},
    )
