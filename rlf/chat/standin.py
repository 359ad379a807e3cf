"""A format without its model: a tokenizer of single bytes with the family's special tokens and a small template.

For what concerns the grammar alone (`rlf chat parse`, `rlf tools fuzz`). Nothing is rendered for a model with it. The
first line of `standins/NAME.jinja` says which tokens the family adds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rlf.chat.format import FORMATS, ChatFormat
from rlf.core import RlfError
from rlf.types import ToolDescription

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_FOLDER = files("rlf.chat").joinpath("standins")


def stand_in(name: str, tools: Sequence[ToolDescription] = ()) -> ChatFormat:
    """A format by its name alone. Raises RlfError for a format that is unknown or has no stand-in."""
    format_ = FORMATS.get(name)
    return format_(_tokenizer(name), tools)


@cache
def _tokenizer(name: str) -> PreTrainedTokenizerBase:
    from tokenizers import (  # type: ignore[import-untyped]  # ships no stubs
        AddedToken,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
    )
    from transformers import PreTrainedTokenizerFast

    head, template = _read(name)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in head["special"]])
    backend.add_tokens([AddedToken(text, normalized=False) for text in head["plain"]])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers is untyped here
        tokenizer_object=backend, eos_token=head["eos"], chat_template=template
    )


def _read(name: str) -> tuple[dict[str, Any], str]:
    file = _FOLDER.joinpath(f"{name}.jinja")
    if not file.is_file():
        raise RlfError(f"chat format {name!r} cannot be used without its model. Name a spec whose model has it.")
    text = file.read_text(encoding="utf-8")
    head, _, template = text.removeprefix("{#- ").partition(" -#}\n")
    return json.loads(head), template
