"""A format without its model: a tokenizer of single bytes with the family's special tokens and a small template.

For the grammar alone (`rlf format parse`, `rlf tools fuzz`, tests): nothing is rendered for a model with it. A stand-in
stands beside the file of its format, as `NAME.jinja`, whose first line says which tokens the family adds.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from rlf.chat.format import FORMATS, ChatFormat
from rlf.core import RlfError
from rlf.types import ToolDescription

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def stand_in(name: str, tools: Sequence[ToolDescription] = ()) -> ChatFormat:
    """A format by its name alone. Raises RlfError for a format that is unknown or has no stand-in."""
    format_ = FORMATS.get(name)
    return format_(_make_tokenizer(name), tools)


@cache
def _make_tokenizer(name: str) -> PreTrainedTokenizerBase:
    from tokenizers import (  # type: ignore[import-untyped]  # ships no stubs
        AddedToken,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
    )
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
class StandIn:
    """The special tokens of a family, and a small chat template."""

    special: list[str]
    """Added tokens that are special."""
    plain: list[str]
    """Added tokens that are not."""
    eos: str
    template: str


def read_stand_in(name: str) -> StandIn:
    """The stand-in of a format. Raises RlfError for a format that is unknown or has none."""
    file = Path(inspect.getfile(FORMATS.get(name))).with_suffix(".jinja")
    if not file.is_file():
        raise RlfError(f"chat format {name!r} cannot be used without its model. Name a spec whose model has it.")
    head, _, template = file.read_text(encoding="utf-8").removeprefix("{#- ").partition(" -#}\n")
    return StandIn(**json.loads(head), template=template)
