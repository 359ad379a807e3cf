"""Calls of tools as checks make them: what is tried, what is known of a tool, and other arguments than the gold's.

A play begins a world, in which its calls are made one after the other. Each tool is known by its document and by the
data that it answers from, which other arguments are taken from.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cached_property
from itertools import chain, product
from typing import Any, NamedTuple, Protocol

from rlf.apps.build.task import REFERENCE, BuildTask, CallStep, Value
from rlf.core.leaks import SearchedText
from rlf.core.readings import compile_schema
from rlf.rewards.values import text_keys, value_key, value_keys

MAX_CALLS = 320
"""Calls of a tool that are tried for one gold."""
_MAX_POOL, _MAX_PAIRS, _MAX_FILLED = 96, 120, 32
_MAX_DEALT = 60
"""Calls of a tool whose values were dealt: chance has left no one way to them."""
_NONSENSE = "qzxv"
_PIECES = re.compile(r"\s*[|:;/>]+\s*|\s*->\s*|\s*,\s*")

Path = tuple[str | int, ...]
Call = tuple[str, Mapping[str, Any]]


class TriedCall(NamedTuple):
    """One call that was tried."""

    arguments: Mapping[str, Any]
    has_result: bool
    text: str
    """The result, or the error."""

    def holds(self, value: Value) -> bool:
        """Whether the result has a value as a whole that the arguments do not have."""
        key = value_key(value)
        return self.has_result and key in text_keys(self.text) and key not in value_keys(self.arguments)


Play = Callable[[Sequence[Call], tuple[float, float] | None], Awaitable[Sequence[TriedCall]]]
"""Plays calls in a world of their own, at a moment with an end of chance where one is given. Raises ProofFailure."""


@dataclass(frozen=True)
class KnownTool:
    """A tool as it is known to who checks it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    data: Any
    """What it answers from: mappings, lists, texts and numbers."""
    is_dealt: bool = False
    """Whether chance has dealt its values evenly, so that one may stand at other places too."""

    @cached_property
    def text(self) -> SearchedText:
        """All that the model is shown of it."""
        return SearchedText(json.dumps([self.name, self.description, self.schema], ensure_ascii=False))

    @cached_property
    def pool(self) -> tuple[Value, ...]:
        """Names and values of its data."""
        return tuple(dict.fromkeys(_list_values(self.data)))

    @cached_property
    def _validator(self) -> Any:
        return compile_schema(dict(self.schema))

    def accepts(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the schema does."""
        return bool(self._validator.is_valid(dict(arguments)))

    def schema_at(self, path: Path) -> Mapping[str, Any]:
        """The schema of an argument."""
        found: Mapping[str, Any] = self.schema
        for part in path:
            found = found.get("items", {}) if isinstance(part, int) else found.get("properties", {}).get(part, {})
        return found


@dataclass(frozen=True, slots=True)
class GoldCall:
    """A gold call with its arguments filled in."""

    number: int
    tool: str
    arguments: Mapping[str, Any]
    gold: Value
    given: frozenset[Path] = field(default=frozenset())
    """Arguments that are values of earlier calls."""

    @property
    def shown(self) -> str:
        """As a message names it."""
        return show_call(self.tool, self.arguments)


def show_call(tool: str, arguments: Mapping[str, Any]) -> str:
    """A call in words."""
    return f"{tool}({json.dumps(dict(arguments), ensure_ascii=False)})"[:200]


def gold_calls(steps: Sequence[CallStep]) -> list[GoldCall]:
    """The gold calls of a task."""
    values = [step.gold for step in steps]
    return [
        GoldCall(
            number,
            step.tool,
            step.filled(values),
            step.gold,
            frozenset(path for path, leaf in list_leaves(step.arguments) if isinstance(leaf, dict)),
        )
        for number, step in enumerate(steps)
    ]


def list_leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value within arguments with its place; a placeholder is one."""
    if isinstance(value, Mapping) and REFERENCE not in value:
        for key, child in value.items():
            yield from list_leaves(child, (*path, key))
    elif isinstance(value, list | tuple):
        for place, child in enumerate(value):
            yield from list_leaves(child, (*path, place))
    else:
        yield path, value


def _list_values(value: Any) -> Iterator[Value]:
    """Keys, texts and numbers of data, also the parts of keys such as `Orvik|Sarnel`."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            pieces = _PIECES.split(str(key))
            yield from [str(key), *(pieces if len(pieces) > 1 else ())]
            yield from _list_values(child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _list_values(child)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield value


# Other arguments.


def plain_arguments(arguments: Mapping[str, Any]) -> list[tuple[Path, Any]]:
    """Each argument's place and value without case and space."""
    return sorted(((path, value_key(leaf)) for path, leaf in list_leaves(arguments)), key=repr)


def vary_arguments(tool: KnownTool, call: GoldCall) -> list[dict[str, Any]]:
    """Other valid arguments of a gold call: one value changed, several that go together, and one left out."""
    leaves = dict(list_leaves(call.arguments))
    varied = {path: leaf for path, leaf in leaves.items() if _is_subject(tool, call, path, leaf)}
    found = [_put(call.arguments, {path: each}) for path, leaf in varied.items() for each in _others(tool, path, leaf)]
    found += [_put(call.arguments, dict(zip(varied, row, strict=True))) for row in _rows_like(tool, varied)]
    if len(varied) > 1:
        pairs = list(product(*(_others(tool, path, leaf)[:16] for path, leaf in varied.items())))
        random.Random(0).shuffle(pairs)
        found += [_put(call.arguments, dict(zip(varied, values, strict=True))) for values in pairs[:_MAX_PAIRS]]
    for path in varied:
        if len(path) == 1:
            found.append({key: value for key, value in call.arguments.items() if key != path[0]})
    distinct = {json.dumps(plain_arguments(each), default=str): each for each in found if tool.accepts(each)}
    own = _values_of(call.arguments)  # in another order they may mean the same: from A to B, from B to A
    other = [each for each in distinct.values() if _values_of(each) != own]
    return other[: _MAX_DEALT if tool.is_dealt else MAX_CALLS]


def _values_of(arguments: Mapping[str, Any]) -> list[str]:
    return sorted(repr(value) for _, value in plain_arguments(arguments))


def _is_subject(tool: KnownTool, call: GoldCall, path: Path, leaf: Any) -> bool:
    """Whether an argument chooses what is found: one of the question, of an earlier call, or a required choice."""
    if isinstance(leaf, bool) or leaf is None:
        return False
    is_required = path[0] in tool.schema.get("required", ())
    if "enum" in tool.schema_at(path):
        return is_required
    return path in call.given or not tool.text.find(leaf)


def _others(tool: KnownTool, path: Path, leaf: Any) -> list[Any]:
    schema = tool.schema_at(path)
    if "enum" in schema:
        return [each for each in schema["enum"] if each != leaf]
    if isinstance(leaf, int | float):
        numbers = [int(each) if isinstance(each, str) else each for each in tool.pool if not _is_word(each)]
        return list(dict.fromkeys([leaf + 1, leaf - 1, leaf + 10, leaf * 2, 0, leaf + 100, *numbers]))[:_MAX_POOL]
    days = _near_days(leaf)
    texts = [each for each in tool.pool if isinstance(each, str)]
    return list(dict.fromkeys([_NONSENSE, "", leaf[:1], leaf[::-1], *(days or texts)]))[:_MAX_POOL]


def _is_word(value: Value) -> bool:
    return isinstance(value, str) and not value.isdecimal()


def _near_days(text: str) -> list[str]:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return []
    return [str(day + timedelta(days=days)) for days in (1, -1, 2, 3, -5, 40, -75, 366)]


def _rows_like(tool: KnownTool, varied: Mapping[Path, Any]) -> Iterator[list[Any]]:
    """Values of the data that stand together as the varied arguments do: of other records, or of other keys."""
    if len(varied) < 2:
        return
    wanted = [value_key(leaf) for leaf in varied.values()]
    for rows in _list_tables(tool.data):
        for row in rows:
            keys = {value_key(value): name for name, value in row.items()}
            if all(each in keys for each in wanted):
                names = [keys[each] for each in wanted]
                yield from ([other[name] for name in names] for other in rows if all(name in other for name in names))
                break


def _list_tables(data: Any) -> Iterator[list[dict[str, Any]]]:
    """Lists of records within data: of its lists, its mappings, and the parts of its keys."""
    if isinstance(data, Mapping):
        rows = [{"": key, **(child if isinstance(child, Mapping) else {})} for key, child in data.items()]
        rows += [dict(zip(map(str, range(9)), _PIECES.split(str(key)), strict=False)) for key in data]
        nested = [{"": key, " ": inner} for key, child in data.items() if isinstance(child, Mapping) for inner in child]
        yield from (rows, nested)
        yield from chain.from_iterable(map(_list_tables, data.values()))
    elif isinstance(data, list | tuple):
        yield [each for each in data if isinstance(each, dict)]
        yield from chain.from_iterable(map(_list_tables, data))


def _put(value: Any, changes: Mapping[Path, Any], path: Path = ()) -> Any:
    """Arguments with other values at some places."""
    if path in changes:
        return changes[path]
    if isinstance(value, Mapping):
        return {key: _put(child, changes, (*path, key)) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_put(child, changes, (*path, place)) for place, child in enumerate(value)]
    return value


def fill_schema(schema: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Possible arguments of a schema for a name: the name for every text, and every choice of an enum."""
    found: list[dict[str, Any]] = [{}]
    for each in schema.get("required", ()):
        values = _fill_value(schema["properties"][each], name)
        found = [{**arguments, each: value} for arguments in found for value in values][:_MAX_FILLED]
    return found


def fill_options(schema: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """The same, also with the name in each place that may be left empty, beside the others and alone."""
    filled = fill_schema(schema, name)
    options = [key for key in schema.get("properties", {}) if key not in schema.get("required", ())]
    for key in options:
        values = [{key: value} for value in _fill_value(schema["properties"][key], name)]
        filled += [*values, *({**filled[0], **each} for each in values)]
    return filled


def _fill_value(schema: Mapping[str, Any], name: str) -> list[Any]:
    if "enum" in schema:
        return list(schema["enum"])
    match schema.get("type"):
        case "integer" | "number":
            return [int(name) if name.lstrip("-").isdecimal() else schema.get("default", 1)]
        case "boolean":
            return [True, False]
        case "array":
            return [[value] for value in _fill_value(schema.get("items", {}), name)]
        case "object":
            return list(fill_schema(schema, name))
    return [name]


class BuiltTools(Protocol):
    """The tools of a built world, as its files are."""

    keeps_state: bool
    """Whether a call may change what later ones find."""

    def known(self, task: BuildTask, tool: str) -> KnownTool:
        """A tool that a task shows. Raises ProofFailure where there is no such tool."""
        ...

    @property
    def play(self) -> Play:
        """Plays calls, each time in a new world."""
        ...

    def code(self, tool: str) -> str | None:
        """The code of a tool that a model wrote; None of others."""
        ...
