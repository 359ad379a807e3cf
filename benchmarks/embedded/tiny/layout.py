"""The token layout of a conversation with the tiny model: the chat template's text, cut where data begins and ends.

Template pieces and data pieces (questions, tool results) are tokenised apart and joined, and data cannot spell a
special token. A turn is what the model samples; it ends with END_OF_TURN.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.tiny.tokenizer import END_OF_TURN, SPECIAL_TOKENS

_INSIDE_SPECIAL = re.compile("(?<=<)(?=" + "|".join(re.escape(token[1:]) for token in SPECIAL_TOKENS) + ")")
_CALL = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)


class ToolCallTextError(ValueError):
    """A turn opens a tool call that cannot be read."""


def turn_ids(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    """`text` and the end of the turn; special tokens in it are read as such."""
    return list(tokenizer.encode(text + END_OF_TURN))


def data_ids(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    """`text` as data: a special token spelled in it comes out as ordinary tokens."""
    return [token for piece in _INSIDE_SPECIAL.split(text) for token in tokenizer.encode(piece)]


def prompt_ids(tokenizer: PreTrainedTokenizerFast, tool_names: Sequence[str], question: str) -> list[int]:
    """Everything before the first turn."""
    return opening_ids(tokenizer, f"Tools: {', '.join(tool_names)}", question)


def opening_ids(tokenizer: PreTrainedTokenizerFast, system: str, question: str) -> list[int]:
    """Everything before the first turn, with the text of the system block."""
    system = f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n"
    after = "<|im_end|>\n<|im_start|>assistant\n"
    return [*tokenizer.encode(system), *data_ids(tokenizer, question), *tokenizer.encode(after)]


def observation_ids(tokenizer: PreTrainedTokenizerFast, results: Sequence[str]) -> list[int]:
    """Everything between a turn with calls and the next turn."""
    opening = "\n<|im_start|>user\n<tool_response>\n"
    token_ids: list[int] = []
    for result in results:
        token_ids += [*tokenizer.encode(opening), *data_ids(tokenizer, result)]
        opening = "\n</tool_response>\n<tool_response>\n"
    return [*token_ids, *tokenizer.encode("\n</tool_response><|im_end|>\n<|im_start|>assistant\n")]


def message_ids(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    """Everything between a turn without calls and the next turn: a further message of the user's."""
    opening, closing = "\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
    return [*tokenizer.encode(opening), *data_ids(tokenizer, text), *tokenizer.encode(closing)]


def call_text(calls: Sequence[tuple[str, Mapping[str, str | int]]]) -> str:
    """The text of a turn that makes `calls`, each a tool's name and its arguments."""
    bodies = [json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False) for name, arguments in calls]
    return "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)


def parse_calls(text: str) -> list[tuple[str, dict[str, str]]]:
    """The calls of a turn's text; an empty list means that the text is a final answer.

    Raises:
        ToolCallTextError: a call is not closed, is not JSON or lacks a string argument.
    """
    bodies = _CALL.findall(text)
    if len(bodies) != text.count("<tool_call>"):
        raise ToolCallTextError(f"a tool call is not closed: {text!r}")
    calls = []
    for body in bodies:
        try:
            call = json.loads(body)
            calls.append((str(call["name"]), {str(key): str(value) for key, value in call["arguments"].items()}))
        except (ValueError, TypeError, KeyError, AttributeError) as fault:
            raise ToolCallTextError(f"not a tool call: {body!r}") from fault
    return calls
