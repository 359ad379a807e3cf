"""Usage that an answer reports, read with suspicion: no count and no cost that cannot be true is counted.

Servers name things differently: OpenAI has `prompt_tokens_details.cached_tokens`, and `input_tokens` in its newer API;
DeepSeek `prompt_cache_hit_tokens`; OpenRouter its own `cost` in US dollars.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_MAX_TOKENS: Final = 10_000_000
"""Of one request: a hundred times the longest context there is for sale."""
_MAX_COST_USD: Final = 1_000.0
"""Of one request."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and cost of requests."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    cached_tokens: int = 0
    """Those of the prompt that the server had in its cache."""

    def by_unit(self) -> dict[str, float]:
        """As `ToolOutput.usage` has it; a cost and cached tokens of nothing are left out."""
        usage: dict[str, float] = {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.completion_tokens}
        rare = {"cached_tokens": self.cached_tokens, "cost_usd": self.cost_usd}
        return usage | {unit: value for unit, value in rare.items() if value}


@dataclass(frozen=True, slots=True)
class Reported:
    """The numbers of one answer, before prices."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None
    """The server's own; None where it names none."""
    num_images: int = 0
    is_absurd: bool = False
    """Whether it names a number that cannot be true, which then counts as 0."""
    is_known: bool = False
    """Whether it names any number, or holds images."""


def read_usage(answer: Mapping[str, Any]) -> Reported:
    """The usage that an answer reports."""
    items = answer.get("data")
    num_images = len(items) if isinstance(items, list) else 0
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return Reported(num_images=num_images, is_known=num_images > 0)
    details = usage.get("prompt_tokens_details", usage.get("input_tokens_details"))
    cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("prompt_cache_hit_tokens")
    reported = [
        usage.get("prompt_tokens", usage.get("input_tokens")),
        usage.get("completion_tokens", usage.get("output_tokens")),
        cached,
    ]
    found = [_read_count(value) for value in reported]
    prompt, completion, cached_tokens = found
    cost = _read_cost(usage.get("cost"))
    absurd = any(value is not None and number is None for value, number in zip(reported, found, strict=True))
    absurd |= usage.get("cost") is not None and cost is None
    too_many = (cached_tokens or 0) > (prompt or 0)
    return Reported(
        prompt_tokens=prompt or 0,
        completion_tokens=completion or 0,
        cached_tokens=0 if too_many else cached_tokens or 0,
        cost_usd=cost,
        num_images=num_images,
        is_absurd=absurd or too_many,
        is_known=num_images > 0 or any(value is not None for value in (*reported, usage.get("cost"))),
    )


def usage_of_error(body: bytes) -> Reported:
    """The usage that the body of an error reports."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return Reported()
    return read_usage(answer) if isinstance(answer, dict) else Reported()


def _read_count(value: Any) -> int | None:
    """A number of tokens; None for what is none. Some servers write whole numbers as floats."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= _MAX_TOKENS or value != int(value):
        return None
    return int(value)


def _read_cost(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _MAX_COST_USD else None
