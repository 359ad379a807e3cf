"""Verdicts read from a judge's reply. A reply that says anything but one verdict is unreadable: it is never guessed at.

Only the judge's own words are read, after what it thought aloud. Two verdicts in a reply, as of one that quotes the
text it judges, are none.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlf.endpoints.openai import TokenLogprob

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n?```", re.DOTALL)
_THOUGHT = "</think>"
# Nine digits at most: a judge that writes endless digits gives no score instead of a huge one.
_NUMBER = re.compile(r"\s*[+-]?\d{1,9}(?:\.\d{1,9})?\s*")
_WHOLE = re.compile(r"\s*\d{1,3}\s*")
_SHOWN = 80


class UnreadableReply(ValueError):
    """Why a reply is no verdict, in words for a person who reads the trace."""


def json_object(text: str) -> Mapping[str, Any]:
    """The one JSON object that the reply is, in a code fence or not. Raises Unreadable."""
    answer = _drop_thoughts(text)
    whole = _FENCED.fullmatch(answer)
    try:
        value = json.loads(whole[1] if whole else answer, object_pairs_hook=_refuse_duplicates)
    except (ValueError, RecursionError) as fault:
        raise UnreadableReply(f"no single JSON object: {_show_text(answer)}") from fault
    if not isinstance(value, dict):
        raise UnreadableReply(f"no JSON object: {_show_text(answer)}")
    return value


def tagged(text: str, tag: str) -> str:
    """The text in the one `<tag>...</tag>` of the reply. Raises Unreadable."""
    answer = _drop_thoughts(text)
    found = re.findall(rf"<{re.escape(tag)}>(.*?)</{re.escape(tag)}>", answer, re.DOTALL)
    if len(found) != 1:
        raise UnreadableReply(f"{len(found) or 'no'} <{tag}> in {_show_text(answer)}")
    return str(found[0])


def score_of(value: Any, low: float, high: float) -> float:
    """A score within its range, both ends included, as a share of it. Raises Unreadable."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UnreadableReply(f"the score {_show_text(str(value))} is not a number")
    if not low <= value <= high:
        raise UnreadableReply(f"the score {value:g} lies outside {low:g} to {high:g}")
    return (value - low) / (high - low)


def ranking_of(value: Any, num: int) -> list[int]:
    """Positions from 0, the best first, from numbers from 1 that each stand there once. Raises Unreadable."""
    if isinstance(value, str):
        value = [int(word) for word in re.findall(r"\d{1,6}", value)]
    if not isinstance(value, list) or sorted(map(str, value)) != sorted(str(n + 1) for n in range(num)):
        raise UnreadableReply(f"{_show_text(str(value))} is not an order of 1 to {num}")
    return [int(number) - 1 for number in value]


def whole_number(low: float, high: float) -> Callable[[str], float | None]:
    """Reads a token that is a whole number within the range; None for any other."""

    def read(token: str) -> float | None:
        value = int(token) if _WHOLE.fullmatch(token) else None
        return None if value is None or not low <= value <= high else float(value)

    return read


def expected(
    tokens: Sequence[TokenLogprob], read: Callable[[str], float | None], coverage: float
) -> tuple[float, float]:
    """The expected value where the verdict begins, and the probability that lies on verdicts there.

    At the first token where at least `coverage` of the probability lies on tokens that are verdicts v, with p(v) their
    summed probability: sum(v p(v)) / sum(p(v)), as in G-Eval (Liu et al. 2023, eq. 1), over the verdicts alone.

    Raises:
        Unreadable: the server gives no probabilities, none lies on verdicts, or a verdict took two tokens.
    """
    if not tokens:
        raise UnreadableReply("the endpoint gave no logprobs")
    for place, token in enumerate(tokens):
        chances = {**token.top, token.token: token.logprob}
        verdicts = [(value, math.exp(chance)) for text, chance in chances.items() if (value := read(text)) is not None]
        mass = sum(chance for _, chance in verdicts)
        if mass >= coverage:
            following = tokens[place + 1].token if place + 1 < len(tokens) else ""
            if read(token.token) is not None and re.match(r"\w|\.\d", following):
                raise UnreadableReply(f"the verdict is several tokens: {_show_text(token.token + following)}")
            return sum(value * chance for value, chance in verdicts) / mass, min(mass, 1.0)
    reply = "".join(token.token for token in tokens)
    raise UnreadableReply(f"no token with {coverage:g} of its probability on verdicts: {_show_text(reply)}")


def _drop_thoughts(text: str) -> str:
    """The reply after the thoughts."""
    return text.rpartition(_THOUGHT)[2].strip()


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is written twice")
    return found


def _show_text(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
