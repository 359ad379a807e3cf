"""A language model's answers at each stage, and the checks before anything runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import jsonschema_rs
from pydantic import BaseModel, ConfigDict, Field

from rlf.builder.shape import Shape
from rlf.builder.task import Join, Scenario, Value, ends_of
from rlf.core.readings import compile_schema

# `{2}` in a sub-question stands for the answer of sub-question 2.
_PLACEHOLDER = re.compile(r"\{(\d+)\}")
_WORD = re.compile(r"\w+")


class Answer(BaseModel):
    """An answer; keys beside the ones asked for are left out."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class DraftStep(Answer):
    """One sub-question."""

    question: Annotated[str, Field(min_length=1)]
    answer: int | float | Annotated[str, Field(min_length=1, max_length=200)]
    needs: tuple[int, ...] = ()


class Draft(Answer):
    """A decomposed question."""

    question: Annotated[str, Field(min_length=1)]
    steps: Annotated[tuple[DraftStep, ...], Field(min_length=1, max_length=40)]
    join: Join = Join.VALUE
    answer: int | float | str

    @property
    def ends(self) -> tuple[int, ...]:
        """The steps that no other needs."""
        return ends_of([step.needs for step in self.steps])

    @property
    def joined(self) -> str:
        """The answer that the values at the ends make. Raises ValueError where the join does not go with them."""
        values: list[Value] = [self.steps[end].answer for end in self.ends]
        if self.join not in (Join.VALUE, Join.LIST) and any(isinstance(value, str) for value in values):
            raise ValueError(f"`join` is {self.join}, but not all answers are numbers")
        if self.join is Join.DIFFERENCE and len(values) != 2:
            raise ValueError("`join` is difference, which needs two numbers")
        if self.join is Join.VALUE and len(values) != 1:
            raise ValueError("`join` is value, but several answers are needed by no sub-question; write `list`")
        return self.join.of(values)


class Verdicts(Answer):
    """Verdicts on a decomposed question."""

    dependency: Annotated[int, Field(ge=0, le=1)]
    atomic: Annotated[int, Field(ge=0, le=1)]
    unforced: Annotated[int, Field(ge=0, le=1)]
    complete: Annotated[int, Field(ge=0, le=1)]


class Guess(Answer):
    """An answer without tools."""

    answer: int | float | str


class Document(Answer):
    """A tool's document."""

    name: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{2,60}$")]
    description: Annotated[str, Field(min_length=10, max_length=2000)]
    parameters: Mapping[str, Any]


class Merged(Document):
    """A document that replaces others."""

    replaces: tuple[int, ...]


class Merge(Answer):
    """All documents after integration."""

    tools: Annotated[tuple[Merged, ...], Field(min_length=1)]


class Distractors(Answer):
    """Documents of tools that no sub-question needs."""

    tools: tuple[Document, ...]


class DraftCall(Answer):
    """The call that answers a sub-question."""

    step: int
    arguments: Mapping[str, Any]


class Deployed(Answer):
    """A function with its data."""

    data: Mapping[str, Any]
    code: Annotated[str, Field(min_length=10, max_length=20_000)]
    calls: tuple[DraftCall, ...] = ()


def check_draft(draft: Draft, scenario: Scenario, shape: Shape) -> None:
    """Raises ValueError where a draft is not of the shape that was asked for, or does not hold together."""
    for number, step in enumerate(draft.steps):
        if any(not 0 <= need < number for need in step.needs):
            raise ValueError(f"sub-question {number} needs one that comes after it")
        named = {int(found) for found in _PLACEHOLDER.findall(step.question)}
        if named != set(step.needs):
            raise ValueError(
                f"sub-question {number} lists {sorted(step.needs)} in `needs` and names {sorted(named)} as {{n}}: a "
                "chain whose steps pass no answer on is forced"
            )
        for earlier in draft.steps[:number]:
            if holds_word(step.question, str(earlier.answer)):
                raise ValueError(f"sub-question {number} names an earlier answer instead of {{n}}")
    _check_shape(draft, scenario, shape)
    if str(draft.answer).strip().casefold() != draft.joined.casefold():
        raise ValueError(f"`answer` is {draft.answer!r}, and the sub-questions make {draft.joined!r}")
    for step in draft.steps:
        if holds_word(draft.question, str(step.answer)):
            raise ValueError(f"the main question names {step.answer!r}, which a sub-question asks for")


def _check_shape(draft: Draft, scenario: Scenario, shape: Shape) -> None:
    depths: list[int] = []
    for step in draft.steps:
        if len(step.needs) > 1:
            raise ValueError("a sub-question needs at most one other")
        depths.append(1 + max((depths[need] for need in step.needs), default=0))
    lengths = [depths[end] for end in draft.ends]
    if sum(lengths) != len(draft.steps):
        raise ValueError("two chains share a sub-question")
    hops = shape.hops if scenario.is_chain else (1, 1)
    parallel = shape.parallel if scenario.is_parallel else (1, 1)
    if not all(hops[0] <= length <= hops[1] for length in lengths):
        raise ValueError(f"chains have {lengths} sub-questions; expected {hops[0]} to {hops[1]}")
    if not parallel[0] <= len(lengths) <= parallel[1]:
        raise ValueError(f"there are {len(lengths)} chains; expected {parallel[0]} to {parallel[1]}")


def check_document(document: Document, draft: Draft) -> None:
    """Raises ValueError for a document that is no tool's, or that names an answer."""
    parameters = document.parameters
    try:
        compile_schema(dict(parameters))
    except (jsonschema_rs.ValidationError, ValueError) as fault:
        raise ValueError(f"`parameters` is not a JSON Schema: {fault}") from fault
    if parameters.get("type") != "object" or not isinstance(parameters.get("properties"), dict):
        raise ValueError("`parameters` must be a schema of an object with `properties`")
    if not set(parameters.get("required", ())) <= set(parameters["properties"]):
        raise ValueError("`required` names something that is not a property")
    if not all(name.isidentifier() for name in parameters["properties"]):
        raise ValueError("parameters must have names that Python allows")
    text = json.dumps([document.name, document.description, parameters], ensure_ascii=False)
    for step in draft.steps:
        if holds_word(text, str(step.answer)):
            raise ValueError(f"the document contains the answer {step.answer!r}")


def check_merge(merge: Merge, documents: Sequence[Document], draft: Draft) -> None:
    """Raises ValueError if documents are lost, duplicated, or no longer documents."""
    replaced = sorted(number for tool in merge.tools for number in tool.replaces)
    if replaced != list(range(len(documents))):
        raise ValueError(f"each tool from 0 to {len(documents) - 1} must appear in one `replaces`; got {replaced}")
    names = [tool.name for tool in merge.tools]
    if len(set(names)) < len(names):
        raise ValueError("two tools have one name")
    for tool in merge.tools:
        check_document(tool, draft)


def check_scaled(scaled: Document, before: Document, draft: Draft, *, may_require: bool) -> None:
    """Raises ValueError where calls that worked before would not work after."""
    check_document(scaled, draft)
    old, new = set(before.parameters.get("required", ())), set(scaled.parameters.get("required", ()))
    if not old <= new or (new > old and not may_require):
        raise ValueError(f"`required` was {sorted(old)} and is {sorted(new)}: earlier calls would not work")
    changed = [
        name
        for name in old
        if scaled.parameters["properties"][name].get("type") != before.parameters["properties"][name].get("type")
    ]
    if changed:
        raise ValueError(f"required parameters have other types: {', '.join(changed)}")


def holds_word(text: str, word: str) -> bool:
    """Whether the words of one text stand in another, one after the other."""
    words, wanted = _WORD.findall(text.casefold()), _WORD.findall(word.casefold())
    return bool(wanted) and any(words[at : at + len(wanted)] == wanted for at in range(len(words) - len(wanted) + 1))
