"""What is tried of a task beside its gold calls, without a model: whether another way than the gold's finds its values.

Calls are made in plays: a play begins a world, in which its calls are made one after the other. Each tool is known by
its document and by the data that it answers from, which other arguments are taken from.
"""

from __future__ import annotations

import ast
import json
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cached_property
from itertools import chain, product
from typing import Any, NamedTuple

from rlf.apps.build.leaks import SearchedText
from rlf.apps.build.task import REFERENCE, BuildTask, CallStep, Join, ProofFailure, Value
from rlf.core.readings import compile_schema
from rlf.rewards.values import text_keys, value_key, value_keys

MIN_ANSWERS = 5
"""Values that the tool of a gold call must be able to give, the gold among them: of fewer one is guessed."""
_MAX_POOL, _MAX_CALLS, _MAX_PAIRS = 96, 320, 120
_MAX_DEALT = 60
"""Calls of a tool whose values were dealt: chance has left no one way to them."""
_FEW = 4
"""Choices of an enum that may have one value by chance; a longer one names things."""
_NONSENSE = "qzxv"
MOMENTS = ((1930181250.0, 1e-9), (1542818655.0, 1 - 1e-9))
"""A Sunday night in spring 2031, and a Wednesday afternoon in autumn 2018; each with an end of what chance gives."""
_PLAIN_REPEATS = 3
_OWN_NAMES = "minimal: a value is found by the question's own names, without the call before"
_PIECES = re.compile(r"\s*[|:;/>]+\s*|\s*->\s*|\s*,\s*")

Path = tuple[str | int, ...]
Call = tuple[str, Mapping[str, Any]]


class Attempt(NamedTuple):
    """One call that was tried."""

    arguments: Mapping[str, Any]
    has_result: bool
    text: str
    """The result, or the error."""

    def holds(self, value: Value) -> bool:
        """Whether the result has a value as a whole that the arguments do not have."""
        key = value_key(value)
        return self.has_result and key in text_keys(self.text) and key not in value_keys(self.arguments)


Play = Callable[[Sequence[Call], tuple[float, float] | None], Awaitable[Sequence[Attempt]]]
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


# What is read: words of the question, of the documents, and of the code.


def check_arguments(question: SearchedText, arguments: Mapping[str, Any], tool: KnownTool) -> None:
    """What a gold call is given stands in the question, in the tool's document, or in earlier results.

    Raises:
        ProofFailure: a policy could not know an argument, or the question does not say of what it asks.
    """
    leaves = [leaf for _, leaf in list_leaves(arguments)]
    literals = [leaf for leaf in leaves if leaf is not None and not isinstance(leaf, Mapping)]
    shown = show_call(tool.name, arguments)
    for literal in literals:
        if not (isinstance(literal, bool) or question.gives(literal) or tool.text.find(literal)):
            words = "words: an argument of a gold call stands nowhere that a policy reads"
            raise ProofFailure(words, f"{literal!r} of {shown}")
    named = any(question.gives(each) for each in literals if not isinstance(each, bool))
    if literals and not named and not any(isinstance(leaf, Mapping) for leaf in leaves):
        raise ProofFailure("words: the question names no subject of a gold call", shown)


def check_code(code: str, tool: KnownTool, calls: Iterable[GoldCall]) -> None:
    """Code has no text of its own, beside its document's, that a gold call takes or finds. Raises ProofFailure."""
    texts = [node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)]
    searched = SearchedText("\n".join(text for text in texts if isinstance(text, str)))
    for call in calls:
        leaves = [leaf for _, leaf in list_leaves(call.arguments)]
        for value in (call.gold, *leaves):
            if isinstance(value, str) and len(value) > 2 and searched.find(value) and not tool.text.find(value):
                raise ProofFailure("code: it names what the task asks for", f"{value!r} stands in the code")


# What is called.


async def check_tool(
    tool: KnownTool,
    calls: Sequence[GoldCall],
    question: SearchedText,
    answer: Value,
    play: Play,
    *,
    hidden: Sequence[Value],
) -> None:
    """A tool finds each gold by its own arguments alone, always, among enough others, and its errors show none.

    Args:
        calls: the gold calls of the tool.
        answer: the final answer.
        hidden: the golds of the task's other calls.

    Raises:
        ProofFailure: the first that does not hold.
    """
    if not calls:
        return
    await _check_repeats(calls, play)
    for call in calls:
        tried = await play([(tool.name, each) for each in _vary(tool, call)], None)
        gold = await play([(tool.name, call.arguments)], None)
        _refuse_others(tool, call, tried, question)
        places = _places_of(call.gold, gold[0].text)
        others = {key for each in tried if each.has_result for key in _keys_at(places, each.text)}
        if len(others | {value_key(call.gold)}) < MIN_ANSWERS:
            raise ProofFailure(
                "probe: too few plausible answers",
                f"with other arguments {tool.name} gave {len(others - {value_key(call.gold)})} other values; the "
                f"least is {MIN_ANSWERS - 1}. Put more entries into its data",
            )
        check_errors(tool, tried, (call.gold, answer), hidden)


def _refuse_others(tool: KnownTool, call: GoldCall, tried: Sequence[Attempt], question: SearchedText) -> None:
    """Raises ProofFailure where another argument gives the gold too; of values that were dealt, where most do."""
    found = [each for each in tried if each.holds(call.gold) and not _is_coincidence(tool, call, each, tried)]
    if not found or (tool.is_dealt and 2 * len(found) <= sum(each.has_result for each in tried)):
        return
    goes_around = any(question.find(leaf) for leaf in _changed(call, found[0]).values() if call.given and leaf)
    raise ProofFailure(
        _OWN_NAMES if goes_around else "probe: another argument gives the gold too",
        f"{show_call(tool.name, found[0].arguments)} returned {found[0].text!r:.80}",
    )


def _changed(call: GoldCall, attempt: Attempt) -> dict[Path, Any]:
    """The arguments that an attempt has in place of a gold call's."""
    before = dict(list_leaves(call.arguments))
    return {path: leaf for path, leaf in list_leaves(attempt.arguments) if before.get(path, leaf) != leaf}


def _is_coincidence(tool: KnownTool, call: GoldCall, attempt: Attempt, tried: Sequence[Attempt]) -> bool:
    """Whether what differs is a choice of few, another of which gives another value."""
    paths = list(_changed(call, attempt))
    if len(paths) != 1 or not 0 < len(tool.schema_at(paths[0]).get("enum", ())) <= _FEW:
        return False
    rest = [each for each in tried if list(_changed(call, each)) == paths]
    return not all(each.holds(call.gold) for each in rest if each.has_result)


async def _check_repeats(calls: Sequence[GoldCall], play: Play) -> None:
    """Five times the same, once twice in one world, and at two other times with the two ends of chance."""
    once = [(call.tool, call.arguments) for call in calls]
    found: list[list[str]] = []
    for moment in (*[None] * _PLAIN_REPEATS, *MOMENTS):
        made = await play(once if found else once + once, moment)
        found.append([f"{each.has_result}: {each.text}" for each in made])
        first, again = found[0][: len(once)], found[-1] if len(found) > 1 else found[0][len(once) :]
        if first != again:
            when = "is made again" if moment is None else "is made at another time, or by chance"
            place = next(at for at, (one, other) in enumerate(zip(first, again, strict=True)) if one != other)
            raise ProofFailure(
                f"repeat: a call gives another result when it {when}",
                f"{calls[place].shown} gave {first[place]:.80}, then {again[place]:.80}",
            )


def check_errors(tool: KnownTool, tried: Iterable[Attempt], own: Sequence[Value], hidden: Sequence[Value]) -> None:
    """No error names a value that the tool finds, nor, unless among enough others, one that another call finds.

    A name that is near to a misspelt one may be named, so that what another call finds must stand in two errors; so
    must each value of a tool whose values are names that were dealt.
    """
    named = Counter[Value]()
    for each in tried:
        if each.has_result:
            continue
        given, words = value_keys(each.arguments), each.text
        for _, leaf in list_leaves(each.arguments):  # what an error repeats it did not know
            words = words.replace(leaf, " ") if isinstance(leaf, str) and leaf else words
        text = SearchedText(words)
        found = [value for value in (*own, *hidden) if value_key(value) not in given and text.find(value)]
        if hidden and found and not set(found) & set(own):
            others = sum(text.find(value) is not None for value in tool.pool if value not in hidden)
            found = found if others < MIN_ANSWERS - 1 else []
        named.update(found)
        shown = [value for value in found if named[value] > (tool.is_dealt or value not in own)]
        if shown:
            raise ProofFailure(
                "error: the text of an error gives a value away",
                f"{show_call(tool.name, each.arguments)} failed with {each.text!r:.120}, which names {shown[0]!r}",
            )


async def check_ways(task: BuildTask, tools: Mapping[str, KnownTool], play: Play) -> None:
    """No tool that a gold call needs finds a value by the question's own names, or before the call that must find it.

    Raises:
        ProofFailure: a gold call can be gone around.
    """
    calls = gold_calls(task.steps)
    results = await play([(call.tool, call.arguments) for call in calls], None)
    for call, result in zip(calls, results, strict=True):
        for other in calls:
            if other is call or other.number in _ancestors(task, call.number):
                continue
            if result.holds(other.gold):
                is_one = value_key(call.gold) == value_key(other.gold)
                words = "two find one value, so that one can be left out" if is_one else "one finds another's value too"
                raise ProofFailure(f"minimal: of the gold calls {words}", f"{call.shown} returned {result.text!r:.80}")
        if task.join in (Join.SUM, Join.DIFFERENCE) and _holds_answer(result, task.answer):
            words = f"{call.shown} returned {result.text!r:.80}"
            raise ProofFailure("minimal: one call returns the final answer", words)
    needed = [tools[name] for name in dict.fromkeys(step.tool for step in task.steps)]
    for tool, attempt in await _try_around(task, calls, needed, play):
        own = [call for call in calls if call.tool == tool.name]
        if any(set(_plain(call.arguments)) <= set(_plain(attempt.arguments)) for call in own):
            continue
        for call in calls:
            if attempt.holds(call.gold):
                raise ProofFailure(
                    _OWN_NAMES if call.tool == tool.name else "minimal: a value is found by another tool too",
                    f"{show_call(tool.name, attempt.arguments)} returned {attempt.text!r:.80}",
                )


async def check_distractor(tool: KnownTool, task: BuildTask, play: Play) -> None:
    """A tool that no gold call needs finds no value of the task. Raises ProofFailure."""
    calls = gold_calls(task.steps)
    golds = [call.gold for call in calls]
    tried = [attempt for _, attempt in await _try_around(task, calls, [tool], play)]
    for attempt in tried:
        if any(attempt.holds(gold) for gold in golds) or _holds_answer(attempt, task.answer):
            raise ProofFailure(
                "distractor: a tool that no gold call needs gives a value of the task",
                f"{show_call(tool.name, attempt.arguments)} returned {attempt.text!r:.80}",
            )
    check_errors(tool, tried, (task.answer,), golds)


async def _try_around(
    task: BuildTask, calls: Sequence[GoldCall], tools: Sequence[KnownTool], play: Play
) -> list[tuple[KnownTool, Attempt]]:
    """Calls tools with the arguments of every gold call, and with each of its values in every place."""
    made: list[tuple[KnownTool, Call]] = []
    for tool in tools:
        wanted: list[Mapping[str, Any]] = []
        for call in calls:
            names = [leaf for _, leaf in list_leaves(call.arguments) if not isinstance(leaf, bool)]
            for name in names:
                for each in _fill_options(tool.schema, str(name)):
                    known = {key: value for key, value in call.arguments.items() if key in each}
                    wanted += [{**each, **known}, each]
        distinct = {json.dumps(each, sort_keys=True): each for each in wanted if tool.accepts(each)}
        made += [(tool, (tool.name, each)) for each in list(distinct.values())[:_MAX_CALLS]]
    attempts = await play([call for _, call in made], None) if made else []
    return [(tool, attempt) for (tool, _), attempt in zip(made, attempts, strict=True)]


def _holds_answer(attempt: Attempt, answer: str) -> bool:
    """Whether a result has the final answer, as text or as a number."""
    keys = {value_key(answer)}
    if re.fullmatch(r"-?\d+(\.\d+)?", answer):
        keys.add(value_key(float(answer)))
    return attempt.has_result and bool(keys & text_keys(attempt.text)) and not keys & value_keys(attempt.arguments)


def _ancestors(task: BuildTask, number: int) -> set[int]:
    found: set[int] = set()
    left = [*task.steps[number].needs]
    while left:
        found.add(each := left.pop())
        left += task.steps[each].needs
    return found


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return _plain(one) == _plain(other)


def _plain(arguments: Mapping[str, Any]) -> list[tuple[Path, Any]]:
    return sorted(((path, value_key(leaf)) for path, leaf in list_leaves(arguments)), key=repr)


# Other arguments.


def _vary(tool: KnownTool, call: GoldCall) -> list[dict[str, Any]]:
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
    distinct = {json.dumps(_plain(each), default=str): each for each in found if tool.accepts(each)}
    return [each for each in distinct.values() if not _is_same(each, call.arguments)][
        : _MAX_DEALT if tool.is_dealt else _MAX_CALLS
    ]


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
        numbers = [each for each in tool.pool if not isinstance(each, str)]
        return list(dict.fromkeys([leaf + 1, leaf - 1, leaf + 10, leaf * 2, 0, leaf + 100, *numbers]))[:_MAX_POOL]
    days = _near_days(leaf)
    texts = [each for each in tool.pool if isinstance(each, str)]
    return list(dict.fromkeys([_NONSENSE, "", leaf[:1], leaf[::-1], *(days or texts)]))[:_MAX_POOL]


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


_MAX_FILLED = 32


def _fill_options(schema: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
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


# Where in a result the gold stands, so that other results are compared there.


def _places_of(gold: Value, text: str) -> frozenset[tuple[str, ...]]:
    key = value_key(gold)
    return frozenset(place for place, leaf in _list_places(text) if value_key(leaf) == key)


def _keys_at(places: frozenset[tuple[str, ...]], text: str) -> set[Any]:
    return {value_key(leaf) for place, leaf in _list_places(text) if place in places} - {None}


def _list_places(text: str) -> list[tuple[tuple[str, ...], Any]]:
    """The values of a result with their places, all items of a list at one."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = text
    return [(tuple("*" if isinstance(part, int) else part for part in path), leaf) for path, leaf in list_leaves(found)]
