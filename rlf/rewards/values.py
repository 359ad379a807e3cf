"""Values by value and type: whether what a tool returned holds a gold as one whole value, never as a part of one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any, NamedTuple, TypeAlias

from rlf.core.plain_json import read_json
from rlf.core.redact import fold
from rlf.rewards.normalization import Normalization, holds, normalize
from rlf.types import CallRecord, Outcome, Trajectory

ValueKey: TypeAlias = tuple[str, Any]
"""Equal for equal values: numbers by number, truth by truth, texts once they are normalised."""


def value_key(value: Any) -> ValueKey | None:
    """The key of one value; None for nothing, a list or a mapping.

    >>> value_key("The Elbe ") == value_key("the elbe"), value_key(1) == value_key(1.0), value_key(1) == value_key("1")
    (True, True, False)
    """
    if isinstance(value, str):
        return "text", _normalize_value(value)
    if isinstance(value, bool):
        return "truth", value
    return ("number", value) if isinstance(value, int | float) else None


def value_keys(found: Any) -> frozenset[ValueKey]:
    """The keys of every value within a JSON value; the names of an object's fields are none."""
    keys: set[ValueKey] = set()
    _add_keys(found, keys)
    return frozenset(keys)


def _add_keys(value: Any, keys: set[ValueKey]) -> None:
    if isinstance(value, dict | list | tuple):
        for child in value.values() if isinstance(value, dict) else value:
            _add_keys(child, keys)
    elif (key := value_key(value)) is not None:
        keys.add(key)


@lru_cache(maxsize=65_536)
def text_keys(text: str) -> frozenset[ValueKey]:
    """The keys of what a text holds: the values of a JSON object or list; else it as a text, and as what JSON reads."""
    if text[:1].isalpha() and text not in ("true", "false", "null"):
        return frozenset([("text", _normalize_value(text))])
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return frozenset([("text", _normalize_value(text))])
    keys = value_keys(found)
    return keys if isinstance(found, dict | list) else keys | {("text", _normalize_value(text))}


@lru_cache(maxsize=65_536)
def _normalize_value(text: str) -> str:
    """The normalised text; one that a normalisation leaves nothing of as it stands."""
    if text.isalnum() and text.isascii():  # one word, which is its own normal form but for case
        return text.casefold()
    return normalize(text) or text.strip()


class Finding(NamedTuple):
    """One call: its tool, the values within its result, and those within its arguments."""

    tool: str
    found: frozenset[ValueKey]
    given: frozenset[ValueKey]


Golds: TypeAlias = Mapping[str, Sequence[frozenset[ValueKey]]]
"""The keys of the golds by tool, each of which finds a gold."""


def keyed_golds(golds: Mapping[str, Iterable[Any]]) -> Golds:
    """Golds by tool as their keys; FTRL writes numbers as texts, so that a text of a number is both."""
    return {tool: [_gold_keys(gold) for gold in found] for tool, found in golds.items()}


def _gold_keys(gold: Any) -> frozenset[ValueKey]:
    if isinstance(gold, str) and not gold.lstrip().startswith(("{", "[", '"')):
        return text_keys(gold)
    key = value_key(gold)
    return frozenset() if key is None else frozenset([key])


def count_solved(calls: Iterable[Finding], golds: Golds) -> int:
    """Sub-questions that calls solve: each ticks the first open gold of its tool that it found and was not given."""
    left = {tool: [*keys] for tool, keys in golds.items()}
    solved = 0
    for tool, found, given in calls:
        if not found:
            continue
        for keys in left.get(tool, ()):
            if not keys.isdisjoint(found) and keys.isdisjoint(given):
                left[tool].remove(keys)
                solved += 1
                break
    return solved


class Solved(NamedTuple):
    """Sub-questions that a trajectory's calls solve: q solved of n, by p calls."""

    solved: int
    calls: int
    total: int

    @property
    def precision(self) -> float:
        """q / p; 1 without a call."""
        return self.solved / self.calls if self.calls else 1.0

    @property
    def recall(self) -> float:
        """q / n; 1 where there is nothing to solve."""
        return self.solved / self.total if self.total else 1.0

    @property
    def f1(self) -> float:
        """2 q / (p + n); 0 where both are 0."""
        return 2 * self.solved / (self.calls + self.total) if self.calls + self.total else 0.0


def read_golds(column: Any) -> dict[str, list[Any]] | None:
    """The golds of sub-questions by tool, of a mapping or of its JSON; None where there is something else."""
    if isinstance(column, str):
        try:
            column = read_json(column)
        except ValueError:
            return None
    if not isinstance(column, Mapping) or not all(isinstance(golds, list | tuple) for golds in column.values()):
        return None
    return {str(tool): [gold for gold in golds if gold is not None] for tool, golds in column.items()}


def solved_by(trajectory: Trajectory) -> Solved | None:
    """The sub-questions that a trajectory's calls solve, by value and type; None where its row has no sub-questions.

    A call that could not be read counts as a call.
    """
    golds = read_golds(trajectory.task.columns.get("unsolved_set"))
    if not golds or not any(golds.values()):
        return None
    findings = [found for record in trajectory.calls if (found := finding_of(record)) is not None]
    num_calls = len(trajectory.calls) + len(trajectory.failures)
    return Solved(count_solved(findings, keyed_golds(golds)), num_calls, sum(map(len, golds.values())))


def finding_of(record: CallRecord) -> Finding | None:
    """The finding of a call; None where it failed."""
    if record.result.outcome is not Outcome.OK:
        return None
    return Finding(record.call.name, text_keys(record.result.text), value_keys(record.call.arguments))


# Evidence in the results of calls that the trajectory found something.

_TOKEN = re.compile(r"[-+]?\d(?:[\d.,:/]*\d)?|[^\W\d_]+")


def shows(trajectory: Trajectory, record: CallRecord, piece: str, by: Normalization = Normalization.TEXT) -> bool:
    """Whether a call of a trajectory shows a piece of evidence: its result holds the words, which are no guess."""
    if finding(record) is None or not holds(record.result.text, piece, by):
        return False
    return not names(record, piece, by) and not _is_guessed(trajectory, record, piece, by)


def _is_guessed(trajectory: Trajectory, record: CallRecord, piece: str, by: Normalization) -> bool:
    """Whether an earlier call named a piece before the question or a result held it: tools read back what was noted."""
    if holds(" ".join(message.content for message in trajectory.task.messages), piece, by):
        return False
    for earlier in takewhile(lambda call: call is not record, trajectory.calls):
        if names(earlier, piece, by):
            return True
        if finding(earlier) is not None and holds(earlier.result.text, piece, by):
            return False
    return False


def finding(record: CallRecord) -> str | None:
    """The text of a result; None where the call failed, since an error text is no evidence."""
    return record.result.text if record.result.outcome is Outcome.OK else None


def names(record: CallRecord, piece: str, by: Normalization = Normalization.TEXT) -> bool:
    """Whether the arguments of a call hold a piece: a tool that repeats them finds nothing.

    Punctuation between its words does not count, so that a piece in a query or in code is seen; nor does the order of
    the words of a name, so that it cannot be put together from several arguments.
    """
    if not piece.strip():
        return False
    text = argument_text(record)
    tokens = _split_tokens(piece)
    if len(tokens) > 1 and any(map(str.isalpha, tokens)) and tokens <= _split_tokens(text):
        return True
    if holds(text, piece, by):
        return True
    words = normalize(piece).split() or [fold(piece).strip().casefold()]
    pattern = r"[\W_]+".join(map(re.escape, words))
    starts, ends = words[0][:1].isalnum(), words[-1][-1:].isalnum()
    whole = (r"(?<![^\W_])" if starts else "") + pattern + (r"(?![^\W_])" if ends else "")
    return re.search(whole, fold(text).casefold()) is not None


def _split_tokens(text: str) -> frozenset[str]:
    """The words and the numbers of a text, numbers with their signs and points."""
    return frozenset(_TOKEN.findall(fold(text).casefold()))


def argument_text(record: CallRecord) -> str:
    """Every text and number of the arguments, a line each."""
    return "\n".join(_iterate_leaf_texts(record.call.arguments))


def _iterate_leaf_texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield str(key)
            yield from _iterate_leaf_texts(child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _iterate_leaf_texts(child)
    elif value is not None:
        yield str(value)
