"""What is tried of a task beside its gold calls, without a model: whether another way than theirs finds its values."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlf.apps.build.calls import (
    MAX_CALLS,
    Call,
    GoldCall,
    KnownTool,
    Path,
    Play,
    TriedCall,
    fill_options,
    gold_calls,
    list_leaves,
    plain_arguments,
    show_call,
    vary_arguments,
)
from rlf.apps.build.task import BuildTask, Join, ProofFailure, Value
from rlf.core.leaks import SearchedText
from rlf.rewards.values import text_keys, value_key, value_keys

MIN_ANSWERS = 5
"""Values that the tool of a gold call must be able to give, the gold among them: of fewer one is guessed."""
_FEW = 4
"""Choices of an enum that may have one value by chance; a longer one names things."""
MOMENTS = ((1930181250.0, 1e-9), (1542818655.0, 1 - 1e-9))
"""A Sunday night in spring 2031, and a Wednesday afternoon in autumn 2018; each with an end of what chance gives."""
_PLAIN_REPEATS = 3
_OWN_NAMES = "minimal: a value is found by the question's own names, without the call before"

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
        tried = await play([(tool.name, each) for each in vary_arguments(tool, call)], None)
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


def _refuse_others(tool: KnownTool, call: GoldCall, tried: Sequence[TriedCall], question: SearchedText) -> None:
    """Raises ProofFailure where another argument gives the gold too; of values that were dealt, where most do."""
    found = [each for each in tried if each.holds(call.gold) and not _is_coincidence(tool, call, each, tried)]
    if not found or (tool.is_dealt and 2 * len(found) <= sum(each.has_result for each in tried)):
        return
    goes_around = any(question.find(leaf) for leaf in _changed(call, found[0]).values() if call.given and leaf)
    raise ProofFailure(
        _OWN_NAMES if goes_around else "probe: another argument gives the gold too",
        f"{show_call(tool.name, found[0].arguments)} returned {found[0].text!r:.80}",
    )


def _changed(call: GoldCall, attempt: TriedCall) -> dict[Path, Any]:
    """The arguments that an attempt has in place of a gold call's."""
    before = dict(list_leaves(call.arguments))
    return {path: leaf for path, leaf in list_leaves(attempt.arguments) if before.get(path, leaf) != leaf}


def _is_coincidence(tool: KnownTool, call: GoldCall, attempt: TriedCall, tried: Sequence[TriedCall]) -> bool:
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


def check_errors(tool: KnownTool, tried: Iterable[TriedCall], own: Sequence[Value], hidden: Sequence[Value]) -> None:
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
            if isinstance(leaf, str) and leaf:
                words = words.replace(leaf, " ")
            elif isinstance(leaf, int | float):
                words = re.sub(rf"(?<!\d){re.escape(str(leaf))}(?!\d)", " ", words)
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
        if any(set(plain_arguments(call.arguments)) <= set(plain_arguments(attempt.arguments)) for call in own):
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
        if any(_gives(attempt, gold) for gold in golds) or _holds_answer(attempt, task.answer):
            raise ProofFailure(
                "distractor: a tool that no gold call needs gives a value of the task",
                f"{show_call(tool.name, attempt.arguments)} returned {attempt.text!r:.80}",
            )
    check_errors(tool, tried, (task.answer,), golds)


def _gives(attempt: TriedCall, gold: Value) -> bool:
    """Whether a result is a gold or has it as a part, or is a sentence with one that the call did not name."""
    if attempt.holds(gold):
        return True
    given = json.dumps(plain_arguments(attempt.arguments), ensure_ascii=False)
    is_text = attempt.has_result and isinstance(gold, str) and not SearchedText(given).find(gold)
    return is_text and SearchedText(attempt.text).find(gold) is not None


async def _try_around(
    task: BuildTask, calls: Sequence[GoldCall], tools: Sequence[KnownTool], play: Play
) -> list[tuple[KnownTool, TriedCall]]:
    """Calls tools with the arguments of every gold call, and with each of its values in every place."""
    made: list[tuple[KnownTool, Call]] = []
    for tool in tools:
        wanted: list[Mapping[str, Any]] = []
        for call in calls:
            names = [leaf for _, leaf in list_leaves(call.arguments) if not isinstance(leaf, bool)]
            for name in names:
                for each in fill_options(tool.schema, str(name)):
                    known = {key: value for key, value in call.arguments.items() if key in each}
                    wanted += [{**each, **known}, each]
        distinct = {json.dumps(each, sort_keys=True): each for each in wanted if tool.accepts(each)}
        made += [(tool, (tool.name, each)) for each in list(distinct.values())[:MAX_CALLS]]
    attempts = await play([call for _, call in made], None) if made else []
    return [(tool, attempt) for (tool, _), attempt in zip(made, attempts, strict=True)]


def _holds_answer(attempt: TriedCall, answer: str) -> bool:
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
