"""A language pack: kinds of things, relations between them, and the words for questions and tool documents.

Packs are YAML files; those of rlf lie in `packs/`, a build file may name one of its own.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from rlf.apps.build.kind import BuildPart
from rlf.apps.build.task import BuildTask
from rlf.core import RlfError
from rlf.core.kinds import StrictModel
from rlf.core.yaml_text import load_document
from rlf.rewards.normalization import normalize

PACKS = Path(__file__).parent / "packs"
NUMBER = "number"
"""The kind of values that are no things."""

Words = Annotated[tuple[str, ...], Field(min_length=1)]


class RelationWords(StrictModel):
    """One relation and how texts name it."""

    phrases: Words
    """What is found, of {x}, as a noun: `the river of {x}`."""
    questions: tuple[str, ...] = ()
    """Whole questions for it, beside those of `asks`: `Which river flows through {x}?`."""
    nouns: Words
    """Words of tool names."""
    docs: Words
    """What a tool that finds it says that it returns."""
    range: tuple[int, int] | None = None
    """Bounds of the numbers; None for a relation to things."""
    mutable: bool = False
    """Whether it has changed: functions at the last level of their dial return what was true before, too."""


class Family(StrictModel):
    """Relations of one signature: near in words, different in meaning. One function may answer all of them."""

    signature: Annotated[str, Field(pattern=r"^\w+ > \w+$")]
    """`KIND > KIND`, or `KIND > number`."""
    nouns: Words
    """Words of the name of a function that answers all."""
    keys: Words
    """Names of its parameter that chooses a relation."""
    relations: Annotated[Mapping[str, RelationWords], Field(min_length=1)]

    @model_validator(mode="after")
    def _numbers_have_a_range(self) -> Self:
        for name, words in self.relations.items():
            if (words.range is not None) != (self.value == NUMBER):
                raise PydanticCustomError(
                    "pack", "{name}: numbers need a `range`, and other values have none", {"name": name}
                )
        return self

    @property
    def subject(self) -> str:
        """The kind that the relations are of."""
        return self.signature.split(" > ")[0]

    @property
    def value(self) -> str:
        """The kind of what is found."""
        return self.signature.split(" > ")[1]


class Asks(StrictModel):
    """Wordings of questions, by what is made of the values found; {p} is a phrase, {a} a list of them."""

    value: Words
    value_by_kind: Mapping[str, Words] = {}
    """The same for a value of one kind, such as `person` or `number`."""
    list: Words
    list_by_kind: Mapping[str, Words] = {}
    """The same for values all of one kind."""
    sum: Words
    difference: Words
    largest: Words
    smallest: Words
    exchange: Words = ("Exchange {p} with {q}. {question}", "First exchange {p} with {q}. Then: {question}")
    """A change that comes before a question; {p} and {q} are phrases."""


@dataclass(frozen=True, slots=True)
class PackRelation:
    """One relation of a pack."""

    name: str
    subject: str
    value: str
    family: int
    """Place of its family in the pack."""
    words: RelationWords


class Pack(StrictModel):
    """All words of a language."""

    verbs: tuple[str, ...]
    names: Words
    """Patterns of tool names over {verb}, {noun}, {kind}."""
    returns: Words
    """What a tool of one relation says, over {doc}."""
    chooses: Words
    """What a tool of several relations says, over {kind}, {key}, {choices}."""
    subjects: Words
    """Names of the parameter for a thing, over {kind}."""
    subject_docs: Words
    key_docs: Words
    asks: Asks
    families: Annotated[tuple[Family, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _relations_are_named_once(self) -> Self:
        names = [name for family in self.families for name in family.relations]
        if twice := {name for name in names if names.count(name) > 1}:
            raise PydanticCustomError("pack", "relations of one name: {names}", {"names": ", ".join(sorted(twice))})
        return self

    @cached_property
    def relations(self) -> tuple[PackRelation, ...]:
        """Every relation, in the order of the file."""
        return tuple(
            PackRelation(name, family.subject, family.value, place, words)
            for place, family in enumerate(self.families)
            for name, words in family.relations.items()
        )

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of things, in the order of the file."""
        signatures = ((family.subject, family.value) for family in self.families)
        return tuple(kind for kind in dict.fromkeys(itertools.chain.from_iterable(signatures)) if kind != NUMBER)


@cache
def load_pack(name: str) -> Pack:
    """A pack of rlf by its name, or a file. Raises RlfError."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else PACKS / f"{name}.yaml"
    if not path.is_file():
        raise RlfError(f"no language pack {name!r} (known: {', '.join(pack_names())}). Name one, or a YAML file.")
    try:
        return Pack.model_validate(load_document(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise RlfError(f"{path}: {place}: {first['msg']}. Correct it there.") from error
    except ValueError as error:
        raise RlfError(f"{path}: not YAML: {error}. Correct it there.") from error


def pack_names() -> Sequence[str]:
    """The packs of rlf."""
    return sorted(path.stem for path in PACKS.glob("*.yaml"))


# The names of tools and questions that the parts of a build use.


class Register:
    """Tools and questions of the parts so far."""

    def __init__(self, *, apart: bool = False) -> None:
        """Takes whether the parts of the split share no tools."""
        self._apart = apart
        self._codes: dict[str, str] = {}
        self._splits: dict[str, str] = {}
        """By a tool's name, and by the words of its document."""
        self._questions: set[str] = set()

    def add(self, part: BuildPart) -> None:
        """Takes a part's names and questions."""
        self._codes.update(part.codes)
        self._questions.update(normalize(task.question) for task in part.tasks)
        for task in part.tasks[:1]:  # all are of one part of the split
            self._splits |= dict.fromkeys(part.codes, task.split)
            self._splits |= {_words_of(tool): task.split for tool in part.tools}

    def admitted(self, part: BuildPart) -> BuildPart:
        """The part with unused names, without tasks whose question another part has, and without look-alikes of it."""
        if any(normalize(task.question) in self._questions for task in part.tasks):
            dropped = {**part.dropped, "duplicate: the question is there already": len(part.tasks)}
            return replace(part, tasks=(), tools=(), codes={}, figures={}, dropped=dropped)
        part = self._without_shared(part)
        names: dict[str, str] = {}
        for name, code in part.codes.items():
            if self._codes.get(name, code) != code or self._is_of_another(name, part):
                used = {*self._codes, *part.codes, *names.values()}
                names[name] = next(free for number in count(2) if (free := f"{name}_{number}") not in used)
        return _rename_part(part, names) if names else part

    def _is_of_another(self, key: str, part: BuildPart) -> bool:
        """Whether a name or a document is of another part of the split than a part's tasks are."""
        return self._apart and any(self._splits.get(key, task.split) != task.split for task in part.tasks)

    def _without_shared(self, part: BuildPart) -> BuildPart:
        """The part without tools that no gold call needs and that another part of the split has."""
        needed = {step.tool for task in part.tasks for step in task.steps}
        shared = {t["name"] for t in part.tools if t["name"] not in needed and self._is_of_another(_words_of(t), part)}
        if not shared or part.data:  # a grammar's tools have names and data of their own, and few words
            return part
        reason = "left out, toolset: another part of the split has the look-alike"
        return replace(
            part,
            tools=tuple(tool for tool in part.tools if tool["name"] not in shared),
            codes={name: code for name, code in part.codes.items() if name not in shared},
            tasks=tuple(replace(t, tools=tuple(name for name in t.tools if name not in shared)) for t in part.tasks),
            dropped={**part.dropped, reason: len(shared)},
        )


def _words_of(tool: Mapping[str, Any]) -> str:
    return json.dumps([normalize(tool.get("description", "")), tool.get("inputSchema")], sort_keys=True)


def _rename_part(part: BuildPart, names: Mapping[str, str]) -> BuildPart:
    """The part with other names of tools; the functions keep theirs, and have the new ones beside them."""
    codes = {
        names.get(name, name): code + (f"\n\n{names[name]} = {name}\n" if name in names else "")
        for name, code in part.codes.items()
    }
    return replace(
        part,
        codes=codes,
        tools=tuple(_renamed_tool(tool, names) for tool in part.tools),
        tasks=tuple(_renamed_task(task, names) for task in part.tasks),
    )


def _renamed_tool(tool: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    if tool["name"] not in names:
        return tool
    name = names[tool["name"]]
    return {**tool, "name": name, "target": {**tool["target"], "file": f"{name}.py"}}


def _renamed_task(task: BuildTask, names: Mapping[str, str]) -> BuildTask:
    steps = tuple(replace(step, tool=names.get(step.tool, step.tool)) for step in task.steps)
    return replace(task, steps=steps, tools=tuple(names.get(tool, tool) for tool in task.tools))
