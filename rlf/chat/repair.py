"""Repair of calls that are written a little wrong: only what cannot change the meaning.

A fix is tried on the text of the turn, and the whole turn is read again: it counts only if the failure becomes one
call and everything else of the turn reads as before. So every format is repaired by its own parser, and a fix that a
format does not know is no fix. What is ambiguous (an apostrophe in single quotes, two values for a key) stays a
failure.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf.chat.calls import CallFault, json_at
from rlf.chat.format import FORMATS, ChatFormat
from rlf.chat.marks import ParsedTurn
from rlf.core import RlfError
from rlf.types import FailureClass, ParseFailure, Repair, RepairKind, ToolCall, ToolDescription

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_REPAIRABLE = frozenset(
    {
        FailureClass.BAD_JSON,
        FailureClass.BAD_ARGUMENTS,
        FailureClass.BAD_CALL,
        FailureClass.WRONG_TAG,
        FailureClass.UNTERMINATED,
    }
)
_JSON_FAULTS = _REPAIRABLE - {FailureClass.WRONG_TAG, FailureClass.UNTERMINATED}
_MAX_REPAIRS = 16
"""Failures of one turn that are tried; a turn of more is noise and must not cost quadratic time."""
_FENCE = re.compile(r"```[a-z]*\s*\Z")
# A fence that the whole turn begins with, which may have a language and no line break.
_TURN_FENCE = re.compile(r"```[a-z]*[ \t]*\n?\Z")
_END_FENCE = re.compile(r"\s*```")
# Possessive repeats (`*+`, `++`) give nothing back: broken quotes cannot make the scan quadratic.
_TOKEN = re.compile(
    r"""(?P<double>"(?:[^"\\]|\\.)*+")|(?P<single>'(?:[^'\\]|\\.)*+')|(?P<comma>,(?=\s*[}\]]))|[^"',]++|.""", re.DOTALL
)
# JSON allows no raw control characters in strings; models write line breaks there.
_CONTROL = re.compile(r"[\x00-\x1f]")
# What may follow a string in JSON. An apostrophe within text has something else behind it.
_AFTER_STRING = re.compile(r"\s*[,:}\]]")

_Fix = tuple[str, frozenset[RepairKind]]


def repaired(
    chat: ChatFormat, text: str, parsed: ParsedTurn, *, truncated: bool
) -> tuple[ParsedTurn, tuple[Repair, ...]]:
    """A turn with its safe repairs made, and what they were.

    Args:
        text: what `parsed` was read from; positions of the result are those of this text.
    """
    items: list[ToolCall | ParseFailure | None] = list(parsed.items)
    repairs: list[Repair] = []
    candidates = [
        (i, item)
        for i, item in enumerate(parsed.items)
        if isinstance(item, ParseFailure) and item.kind in _REPAIRABLE and not item.structural
    ]
    for index, failure in candidates[:_MAX_REPAIRS]:
        found = _repair_failure(chat, text, parsed, index, truncated)
        if found is not None:
            call, num_items, kinds = found
            items[index : index + num_items] = [call, *[None] * (num_items - 1)]
            repairs += [Repair(kind, failure.position, failure.raw) for kind in sorted(kinds)]
    left = tuple(item for item in items if item is not None)
    return (replace(parsed, items=left), tuple(repairs)) if repairs else (parsed, ())


def _repair_failure(
    chat: ChatFormat, text: str, parsed: ParsedTurn, index: int, truncated: bool
) -> tuple[ToolCall, int, frozenset[RepairKind]] | None:
    """The repaired call, if the repair leaves the rest of the turn unchanged, with the number of items it replaces."""
    for fixed, num_items, kinds in _list_candidates(chat, text, parsed, index):
        items = chat.parse(fixed, truncated=truncated).items
        if len(items) != len(parsed.items) - num_items + 1:
            continue
        call = items[index]
        after = zip(items[index + 1 :], parsed.items[index + num_items :], strict=True)
        others = [*zip(items[:index], parsed.items[:index], strict=True), *after]
        if isinstance(call, ToolCall) and all(_is_same_item(one, other) for one, other in others):
            return call, num_items, kinds
    return None


def _list_candidates(
    chat: ChatFormat, text: str, parsed: ParsedTurn, index: int
) -> Iterator[tuple[str, int, frozenset[RepairKind]]]:
    """Texts of the turn with one failure repaired, and the number of items that the failure covers."""
    failure = parsed.items[index]
    assert isinstance(failure, ParseFailure), f"{failure} is no failure"
    start, end = failure.position, failure.position + len(failure.raw)
    if failure.kind in _JSON_FAULTS:
        for raw, kinds in _list_fixes(failure.raw):
            yield text[:start] + raw + text[end:], 1, kinds
        opening, closing = _TURN_FENCE.search(text, 0, start), _END_FENCE.match(text, end)
        if opening and closing and _is_whole_turn(chat, text[: opening.start()], text[closing.end() :]):
            yield text[: opening.start()] + failure.raw + text[closing.end() :], 1, frozenset({RepairKind.CODE_FENCE})
    following = parsed.items[index + 1] if index + 1 < len(parsed.items) else None
    num_items = 1
    if isinstance(following, ParseFailure) and (following.kind, following.position) == (FailureClass.STRAY_TAG, end):
        end, num_items = end + len(following.raw), 2
    restored = chat.restore_tags(text[start:end])
    if restored is not None:
        yield text[:start] + restored[0] + text[end:], num_items, restored[1]


def _is_whole_turn(chat: ChatFormat, before: str, after: str) -> bool:
    """Whether nothing but thinking stands before a fence, and nothing but the end of the turn after it."""
    stops = [chat.decode([token]) for token in chat.stop_token_ids]
    return (not before.strip() or before.rstrip().endswith(chat.think[1])) and after.strip() in ("", *stops)


def _is_same_item(one: ToolCall | ParseFailure, other: ToolCall | ParseFailure) -> bool:
    """Whether two items are equal but for where they stand."""
    if isinstance(one, ParseFailure) and isinstance(other, ParseFailure):
        return (one.kind, one.raw) == (other.kind, other.raw)
    return one == other


def _list_fixes(raw: str) -> Iterator[_Fix]:
    """Texts that say the same as a broken call, the least changed first."""
    start, end = raw.find("{"), raw.rfind("}") + 1
    if start < 0 or end <= start:
        return
    strict = _to_strict_json(raw[start:end])
    if strict is None:
        return
    written, kinds = strict
    read = json_at(written, 0)
    if isinstance(read, CallFault) or read[1] != len(written):
        return
    value = read[0]
    for body, more in _list_bodies(value, written):
        for outer_start, outer_end, fence in _list_borders(raw, start, end):
            every = kinds | more | fence
            if every:
                yield raw[:outer_start] + body + raw[outer_end:], every


def _list_borders(raw: str, start: int, end: int) -> Iterator[tuple[int, int, frozenset[RepairKind]]]:
    """Where the JSON begins and ends: as it stands, then with a code fence around it taken along."""
    yield start, end, frozenset()
    opening, closing = _FENCE.search(raw, 0, start), _END_FENCE.match(raw, end)
    if opening and closing:
        yield opening.start(), closing.end(), frozenset({RepairKind.CODE_FENCE})


def _list_bodies(value: Any, written: str) -> Iterator[_Fix]:
    """The JSON as written, then with its arguments under their name and as an object."""
    yield written, frozenset()
    if not isinstance(value, dict) or set(value) not in ({"name", "arguments"}, {"name", "parameters"}):
        return
    kinds = set[RepairKind]()
    arguments = value.get("arguments", value.get("parameters"))
    if "parameters" in value:
        kinds.add(RepairKind.PARAMETERS)
    if isinstance(arguments, str):
        read = json_at(arguments.strip(), 0)
        if isinstance(read, CallFault) or not isinstance(read[0], dict) or read[1] != len(arguments.strip()):
            return
        arguments = read[0]
        kinds.add(RepairKind.STRING_ARGUMENTS)
    if kinds and isinstance(arguments, dict):
        yield json.dumps({"name": value["name"], "arguments": arguments}, ensure_ascii=False), frozenset(kinds)


def _to_strict_json(text: str) -> _Fix | None:
    """JSON with double quotes, without trailing commas or raw control characters; None where that is ambiguous."""
    parts, kinds = list[str](), set[RepairKind]()
    for match in _TOKEN.finditer(text):
        token = match.group()
        if match["comma"]:
            kinds.add(RepairKind.TRAILING_COMMA)
            continue
        if match["single"]:
            if not _AFTER_STRING.match(text, match.end()):
                return None
            kinds.add(RepairKind.SINGLE_QUOTES)
            token = _double_quoted(token)
        elif token == "'":
            return None
        if token[0] == '"' and _CONTROL.search(token):
            kinds.add(RepairKind.RAW_NEWLINE)
            token = _CONTROL.sub(lambda found: json.dumps(found.group())[1:-1], token)
        parts.append(token)
    return "".join(parts), frozenset(kinds)


def _double_quoted(token: str) -> str:
    """A single-quoted string in double quotes; escapes mean the same in both."""
    inner = re.sub(r"\\.|\"", lambda found: {"\\'": "'", '"': '\\"'}.get(found.group(), found.group()), token[1:-1])
    return f'"{inner}"'


# A format without its model: a tokenizer of single bytes with the family's special tokens and a small template.
#
# For the grammar alone (`rlf format parse`, tests): nothing is rendered for a model with it. A
# stand-in stands beside the file of its format, as `NAME.jinja`, whose first line says which tokens the family adds.


def stand_in(name: str, tools: Sequence[ToolDescription] = ()) -> ChatFormat:
    """A format by its name alone. Raises RlfError for a format that is unknown or has no stand-in."""
    format_ = FORMATS.get(name)
    return format_(_make_tokenizer(name), tools)


@cache
def _make_tokenizer(name: str) -> PreTrainedTokenizerBase:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # type: ignore[import-untyped]  # ships no stubs
    from transformers import PreTrainedTokenizerFast

    family = read_stand_in(name)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in family.special])
    backend.add_tokens([AddedToken(text, normalized=False) for text in family.plain])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers is untyped here
        tokenizer_object=backend, eos_token=family.eos, chat_template=family.template
    )


@dataclass(frozen=True, slots=True)
class FamilyTemplate:
    """The special tokens of a family, and a small chat template."""

    special: list[str]
    """Added tokens that are special."""
    plain: list[str]
    """Added tokens that are not."""
    eos: str
    template: str


def read_stand_in(name: str) -> FamilyTemplate:
    """The stand-in of a format. Raises RlfError for a format that is unknown or has none."""
    file = Path(inspect.getfile(FORMATS.get(name))).with_suffix(".jinja")
    if not file.is_file():
        raise RlfError(f"chat format {name!r} cannot be used without its model. Name a spec whose model has it.")
    head, _, template = file.read_text(encoding="utf-8").removeprefix("{#- ").partition(" -#}\n")
    return FamilyTemplate(**json.loads(head), template=template)
