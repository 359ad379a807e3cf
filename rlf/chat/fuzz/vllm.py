"""vLLM's tool parsers as readers, to compare with rlf's own. Only where vLLM is installed."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

from rlf.chat.fuzz.report import Reader
from rlf.chat.parsed import Parsed
from rlf.core import RlfError
from rlf.types import FailureClass, ParseFailure, ToolCall


def vllm_reader(name: str, tokenizer: Any) -> Reader:
    """Reads turns with vLLM's parser of a name. Raises RlfError where vLLM or the parser is not there."""
    if importlib.util.find_spec("vllm") is None:
        raise RlfError(f"--parser vllm:{name}: vLLM is not installed here. Install it, or leave --parser out.")
    manager = _find_manager()
    try:
        parser = manager.get_tool_parser(name)(tokenizer)
        parser.extract_tool_calls("", _Request())
    except KeyError as error:
        raise RlfError(f"--parser vllm:{name}: vLLM has no such parser. Name one of vLLM's tool parsers.") from error
    except NotImplementedError as error:
        raise RlfError(
            f"--parser vllm:{name}: vLLM's parser of that name does not read text. Name another parser."
        ) from error

    def read(text: str, truncated: bool) -> Parsed:
        found = parser.extract_tool_calls(text, _Request())
        items: list[ToolCall | ParseFailure] = []
        for call in found.tool_calls:
            try:
                items.append(ToolCall(call.function.name, json.loads(call.function.arguments)))
            except ValueError:
                items.append(ParseFailure(FailureClass.BAD_ARGUMENTS, "no JSON", call.function.arguments, 0, False))
        return Parsed(tuple(items), None if items else str(found.content or ""), "")

    return read


class _Request:
    """The part of a request that vLLM's parsers read: whether there are tools."""

    tools: tuple[Any, ...] = ()
    tool_choice = "auto"
    skip_special_tokens = False


def _find_manager() -> Any:
    for place in ("vllm.tool_parsers", "vllm.entrypoints.openai.tool_parsers"):
        if importlib.util.find_spec(place) is not None:
            return importlib.import_module(place).ToolParserManager
    raise RlfError("--parser: this vLLM has no tool parsers that rlf knows. Use vLLM 0.10 or later.")
