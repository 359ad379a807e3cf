"""Where a sampled turn ends: what every format asks of a tokenizer at its start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlf.chat.encoding import check_lossless
from rlf.core import RlfError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class TurnEnds:
    """The tokens that end a turn."""

    token_ids: tuple[int, ...]
    texts: tuple[str, ...]
    """The same, as text."""

    def cut_from(self, text: str) -> str:
        """A turn's text without the stop token that ends it."""
        for stop in self.texts:
            if text.endswith(stop):
                return text[: -len(stop)]
        return text


def turn_ends(tokenizer: PreTrainedTokenizerBase, ends: Sequence[str], name: str, models: str) -> TurnEnds:
    """The ends of a format's turns: each of `ends` that the tokenizer knows, and its end-of-text token.

    Raises RlfError for a tokenizer that lacks the first of `ends`, or that changes text.
    """
    ids = {token.content: index for index, token in tokenizer.added_tokens_decoder.items()}
    if ends and ends[0] not in ids:
        raise RlfError(
            f"chat.format: {name}: the model's tokenizer has no special token {ends[0]} to end a turn with. "
            f"Use {models}, or another `chat.format`."
        )
    check_lossless(tokenizer)
    found = [ids[end] for end in ends if end in ids]
    if tokenizer.eos_token_id is not None:
        found.append(int(tokenizer.eos_token_id))
    found = list(dict.fromkeys(found))
    return TurnEnds(tuple(found), tuple(str(tokenizer.convert_ids_to_tokens(token)) for token in found))
