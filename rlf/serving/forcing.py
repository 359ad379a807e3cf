"""Calls that a request demands: the turn begins with the tokens that begin a call, and the sampler writes the rest.

Which of several tools is called is drawn by the model where their names part, among their tokens alone. So a demanded
call is always made; its arguments are as the model writes them, and fit no schema by force.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlf.chat import ChatFormat, encode_template
from rlf.chat.examples import readings_of
from rlf.core import RlfError
from rlf.serving.refusal import Refusal
from rlf.types import ToolCall, ToolDescription
from rlf.types.policy import Host, Sampling

_VALUES: Mapping[str, tuple[Any, Any]] = {
    "string": ("a", "b"),
    "integer": (1, 2),
    "number": (1, 2),
    "boolean": (True, False),
    "array": ([], [1]),
    "object": ({}, {"a": 1}),
}
"""Two values of each type that has two."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The beginning of a turn."""

    tokens: tuple[int, ...] = ()
    text: str = ""
    name: str | None = None
    """Of the tool that is called; None where nothing is forced."""


async def choose_opening(
    host: Host, chat: ChatFormat, prompt: Sequence[int], tools: Sequence[ToolDescription], temperature: float, seed: int
) -> Opening:
    """The beginning of a call of one of the tools. Raises Refusal in a format whose calls cannot be begun."""
    left = {tool.name: _common_tokens(chat, tool) for tool in tools}
    chosen: list[int] = []
    while len(left) > 1:
        tokens = {opening[len(chosen)] for opening in left.values() if len(opening) > len(chosen)}
        if not tokens:
            break  # nothing tells them apart
        token = (
            tokens.pop() if len(tokens) == 1 else await _draw_token(host, [*prompt, *chosen], tokens, temperature, seed)
        )
        chosen.append(token)
        left = {name: opening for name, opening in left.items() if list(opening[: len(chosen)]) == chosen}
    name, opening = next(iter(left.items()))
    return Opening(tuple(opening), chat.decode(opening), name)


def _common_tokens(chat: ChatFormat, tool: ToolDescription) -> list[int]:
    """The tokens that every call of a tool begins with."""
    closing = chat.thinking_marks[1] if chat.begins_thinking else ""
    try:
        texts = [chat.write_calls([ToolCall(tool.name, arguments)]) for arguments in _probe_arguments(tool)]
    except RlfError as error:
        raise Refusal(400, f"tool_choice: {error}", key="tool_choice") from error
    written = [encode_template(chat.tokenizer, closing + text) for text in texts]
    shared = next((at for at, tokens in enumerate(zip(*written, strict=False)) if len(set(tokens)) > 1), 0)
    text = chat.decode(written[0][:shared])
    if tool.name not in text:
        words = "tool_choice: in the model's chat format a call cannot be forced; write `auto`"
        raise Refusal(400, words, key="tool_choice")
    return encode_template(chat.tokenizer, text)  # which may take longer tokens than the probes did


def _probe_arguments(tool: ToolDescription) -> Iterator[dict[str, Any]]:
    """Arguments that differ wherever a model may choose: what their calls have in common is the same in every call."""
    readings, required = readings_of(tool), tool.input_schema.get("required")
    first = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    if not first:
        yield {}
    for name in first or [*readings.names, "x"]:
        kinds = readings.admitted(name).every_kind
        for value in next((_VALUES[kind] for kind in _VALUES if kind in kinds), _VALUES["string"]):
            yield {name: value}


async def _draw_token(host: Host, prompt: Sequence[int], tokens: set[int], temperature: float, seed: int) -> int:
    """One of the tokens, as likely as the model finds it among them."""
    everything = Sampling(temperature=0.0, num_top=1 << 20)
    sample = await host.complete(prompt, 1, everything, seed)
    logprobs = {token: sample.tops[0].get(token, -math.inf) for token in sorted(tokens)}
    best = max(logprobs, key=logprobs.__getitem__)
    if temperature == 0 or logprobs[best] == -math.inf:
        return best
    weights = [math.exp((value - logprobs[best]) / temperature) for value in logprobs.values()]
    return random.Random(f"{seed}/{len(prompt)}").choices(list(logprobs), weights)[0]
