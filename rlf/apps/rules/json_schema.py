"""`rule: json_schema`: the answer is JSON that satisfies a schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import jsonschema_rs
from pydantic import ConfigDict, Field, field_validator

from rlf.core.kinds import wrong_value
from rlf.core.plain_json import read_json
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Task, Trajectory

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?```\s*", re.DOTALL | re.IGNORECASE)
_PLAIN_VALUES: tuple[Any, ...] = (None, True, 1, 1.5, "x")
_KINDS_OF_VALUES: tuple[Any, ...] = (*_PLAIN_VALUES, [1], {"a": 1})


class JsonSchema(Rule):
    """1 if the answer is one JSON value, in a code fence or not, that satisfies the schema, formats included; else 0.

    An object with one key twice, and a number beyond what a float holds, are no answer: readers disagree on them.
    A schema that every JSON value satisfies, such as {}, is refused, and so is one without `type` that every number and
    text satisfies, such as {required: [town]}, and one that names another document or a format that is not known.
    """

    model_config = ConfigDict(populate_by_name=True)

    sample: ClassVar[KnownSample] = KnownSample(
        gold={"answer": '{"town": "Paris"}'}, options={"schema": {"type": "object", "required": ["town"]}}
    )

    rule: Literal["json_schema"] = "json_schema"
    json_schema: Mapping[str, Any] = Field(alias="schema")
    """A JSON Schema of the drafts 4 to 2020-12."""

    @field_validator("json_schema")
    @classmethod
    def _schema_is_right(cls, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            validator = _make_validator(schema)
        except ValueError as error:
            raise wrong_value(f"got an invalid JSON Schema: {str(error).splitlines()[0]}. Fix the schema.") from error
        if all(validator.is_valid(value) for value in _KINDS_OF_VALUES):
            raise wrong_value(
                "got a schema that every JSON value satisfies. Write e.g. `{type: object, required: [town]}`."
            )
        if "type" not in schema and all(validator.is_valid(value) for value in _PLAIN_VALUES):
            raise wrong_value(
                "got a schema without `type`, which every number and text satisfies. Write e.g. `type: object`."
            )
        return schema

    def misread_keys(self, datasets: Sequence[Sequence[Task]]) -> Iterator[tuple[str, str]]:
        """The schema, where empty values satisfy it."""
        empty = [text for text in ("{}", "[]", '""', "null") if self._own_validator.is_valid(json.loads(text))]
        if empty:
            message = f"got a schema that {' and '.join(empty)} satisfies and which then earns the full reward; "
            yield "schema", f"{message}expected content. Write e.g. `required`, or `minItems: 1`."

    @cached_property
    def _own_validator(self) -> Any:
        return _make_validator(self.json_schema)

    def judge(self, trajectory: Trajectory) -> Verdict:
        fenced = _FENCED.fullmatch(trajectory.answer or "")
        text = fenced[1] if fenced else trajectory.answer or ""
        try:
            error = next(self._own_validator.iter_errors(read_json(text)), None)
        except ValueError as fault:
            return Verdict(0.0, f"no JSON: {str(fault)[:200]}")
        if error is None:
            return Verdict(1.0, "satisfies the schema")
        where = "".join(f"[{step!r}]" for step in error.instance_path)
        return Verdict(0.0, f"{where}: {error.message[:200]}".removeprefix(": "))


def _make_validator(schema: Mapping[str, Any]) -> Any:
    """A validator of the schema; `format` is asserted, and nothing is fetched. Raises ValueError."""
    return jsonschema_rs.validator_for(
        dict(schema), validate_formats=True, ignore_unknown_formats=False, retriever=_not_retrieved
    )


def _not_retrieved(address: str) -> None:
    raise ValueError("it is another document, which rlf does not fetch. Put it under `$defs`")
