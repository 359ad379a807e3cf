"""Text to tokens in two kinds: template text, where markup becomes special tokens, and data, where nothing can.

Invariants: no id of an added token (`<|im_end|>`, `<tool_call>`, ...) is ever in what `encode_data` returns, so no byte
of a question or of a tool result can end a turn, open a role or write a call; and the decoded text is unchanged.

Text is encoded in pieces, so a tokenizer that marks the beginning of every text (SentencePiece's `▁`) is asked for the
continuation of a text instead: a piece holds no space that nobody wrote. A tokenizer is taken as it is when first
seen: adding tokens to it afterwards goes unnoticed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from rlf.core import RlfError
from rlf.core.errors import first_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SURROGATE = re.compile("[\ud800-\udfff]")
_PROBE = " a\n\n é 中 <|im_end|>b  <tool_call>c\t"
_ANCHOR = "a"
"""Text put before tokens that a decoder would take for the beginning of a text."""

_Encode = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class _Markup:
    """The added tokens of one tokenizer."""

    ids: frozenset[int]
    start: re.Pattern[str]
    """Matches, with no width, wherever the text of an added token begins."""


@dataclass(frozen=True, slots=True)
class _Continuation:
    """How a tokenizer that marks the beginning of a text encodes and decodes what stands inside one."""

    encode: _Encode
    anchor: tuple[int, ...]
    """Tokens of `_ANCHOR`."""
    bytes: tuple[int, ...] | None
    """The token of each byte (`<0x0A>`), for characters that the vocabulary lacks; None when it has none."""


def encode_template(tokenizer: PreTrainedTokenizerBase, text: str, *, first: bool = False) -> list[int]:
    """Tokens of text that rlf or the model's template wrote; special tokens become their ids.

    Args:
        first: whether the conversation begins with this text, so that its beginning is marked as the tokenizer does.
    """
    return list(_encode_template(tokenizer, text, first))


def encode_data(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Tokens of text from outside, none of them an added token; lone surrogates become U+FFFD.

    Raises RlfError for a single character that the tokenizer only knows as a special token, or not at all.
    """
    return list((_encode_short if len(text) <= 4096 else _encode_data)(tokenizer, text))


def _encode_data(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[int, ...]:
    text = _SURROGATE.sub("\ufffd", text)
    markup, encode = _read_markup(tokenizer), _make_encoder(tokenizer)
    tokens = encode(text)
    if not markup.ids.isdisjoint(tokens):
        tokens = [
            token for piece in _cut_character(text, markup.start) for token in _encode_piece(encode, piece, markup.ids)
        ]
    if _find_continuation(tokenizer) is not None and decode(tokenizer, tokens) != text:
        tokens = _encode_spelt(tokenizer, text, markup.ids)
    assert markup.ids.isdisjoint(tokens), f"data became special tokens: {sorted(markup.ids.intersection(tokens))}"
    return tuple(tokens)


_encode_short = lru_cache(maxsize=256)(_encode_data)
"""Results that several trajectories of a group get are encoded once; longer ones would take much memory."""


def decode(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int]) -> str:
    """Text of tokens from anywhere in a conversation, special tokens and every space kept."""
    continuation = _find_continuation(tokenizer)
    anchor = () if continuation is None else continuation.anchor
    whole = [*anchor, *tokens]
    if _is_plain(tokenizer):
        text = tokenizer.backend_tokenizer.decode(whole, skip_special_tokens=False)
    else:
        text = tokenizer.decode(whole, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    assert isinstance(text, str), f"decoded to {type(text).__name__}"
    return text[len(_ANCHOR) :] if anchor else text


def markup_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The added tokens that data may never hold."""
    return _read_markup(tokenizer).ids


def check_lossless(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises RlfError for a tokenizer that changes text when it is encoded in pieces."""
    letters = [t.content for t in tokenizer.added_tokens_decoder.values() if len(t.content) == 1 and not t.special]
    probe = _PROBE + "".join(letters)
    try:
        decoded = decode(tokenizer, encode_data(tokenizer, probe))
    except RlfError as error:
        raise RlfError(f"model.path: {error}") from error
    if decoded != probe:
        raise RlfError(
            f"model.path: the tokenizer turns {probe!r} into {decoded!r}; expected the same text back. "
            "Use a model with a byte-level tokenizer (Qwen, Llama 3, GPT-2, ...) or with byte fallback (Llama 2, ...)."
        )


@lru_cache(maxsize=4096)
def _encode_template(tokenizer: PreTrainedTokenizerBase, text: str, first: bool) -> tuple[int, ...]:
    tokens = _make_encoder(tokenizer)(text)
    if first and _find_continuation(tokenizer) is not None:
        own = _encode_text(tokenizer, text)
        # Marks after special tokens, which legacy tokenizers put, would be spaces that the template did not write.
        tokens = own if tokenizer.decode(own, clean_up_tokenization_spaces=False) == text else tokens
    return tuple(tokens)


@lru_cache(maxsize=64)
def _is_plain(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a tokenizer's class adds nothing to the compiled one behind it, which answers several times faster."""
    kind: Any = type(tokenizer)
    base: Any = next((each for each in kind.__mro__ if each.__name__ == "TokenizersBackend"), None)
    names = ("encode", "decode", "_encode_plus", "_decode")
    return base is not None and all(getattr(kind, name) is getattr(base, name) for name in names)


def _encode_text(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    if _is_plain(tokenizer) and not tokenizer.split_special_tokens:
        behind = tokenizer.backend_tokenizer
        if behind.truncation is None and behind.padding is None and not behind.encode_special_tokens:
            return list(behind.encode(text, add_special_tokens=False).ids)
    tokens: list[int] = tokenizer.encode(text, add_special_tokens=False, verbose=False)
    return tokens


def _make_encoder(tokenizer: PreTrainedTokenizerBase) -> _Encode:
    continuation = _find_continuation(tokenizer)
    return partial(_encode_text, tokenizer) if continuation is None else continuation.encode


def _encode_piece(encode: _Encode, piece: str, forbidden: frozenset[int]) -> list[int]:
    """Encodes text that holds no added token as written; a normaliser may still make one, so it is looked for."""
    tokens = encode(piece)
    if forbidden.isdisjoint(tokens):
        return tokens
    if len(piece) == 1:
        raise RlfError(
            f"the tokenizer knows the character {piece!r} of the data only as a special token, or not at all; "
            "take it out of the data, or use a model with a byte-level tokenizer"
        )
    return [token for character in piece for token in _encode_piece(encode, character, forbidden)]


def _encode_spelt(tokenizer: PreTrainedTokenizerBase, text: str, forbidden: frozenset[int]) -> list[int]:
    """Encodes text character by character, in bytes where a character is not kept (`▁` itself, `<0x0A>` as text)."""
    continuation = _find_continuation(tokenizer)
    assert continuation is not None, "only the pieces of a marked text are spelt"
    tokens: list[int] = []
    for character in text:
        piece = continuation.encode(character)
        if not forbidden.isdisjoint(piece) or decode(tokenizer, piece) != character:
            piece = [continuation.bytes[byte] for byte in character.encode()] if continuation.bytes else []
        tokens += piece
    if decode(tokenizer, tokens) != text:
        raise RlfError(
            f"the tokenizer turns {text[:40]!r} of the data into {decode(tokenizer, tokens)[:40]!r}; expected the same "
            "text back. Use a model with a byte-level tokenizer, or with byte fallback"
        )
    return tokens


def _cut_character(text: str, start: re.Pattern[str]) -> list[str]:
    """Cuts one character into every added token, nested and overlapping ones too.

    Each occurrence begins somewhere and is cut right after its first character, so no piece holds a whole one.
    """
    cuts = [match.start() + 1 for match in start.finditer(text)]
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) if a < b]


@lru_cache(maxsize=16)
def _read_markup(tokenizer: PreTrainedTokenizerBase) -> _Markup:
    """Every added token but plain single characters, which are data (some vocabularies add a few letters)."""
    added = {i: t for i, t in tokenizer.added_tokens_decoder.items() if t.special or len(t.content) > 1}
    texts = sorted({token.content for token in added.values() if len(token.content) > 1})
    pattern = "|".join(re.escape(text) for text in texts) or "(?!)"
    return _Markup(frozenset(added), re.compile(f"(?={pattern})"))


@lru_cache(maxsize=16)
def _find_continuation(tokenizer: PreTrainedTokenizerBase) -> _Continuation | None:
    """None for a tokenizer that encodes the beginning of a text as it does the rest."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    states = [] if backend is None else [_part_state(part) for part in (backend.normalizer, backend.pre_tokenizer)]
    if backend is None or all(state is None or _strip_marks(state) == state for state in states):
        return None
    from tokenizers import Tokenizer  # type: ignore[import-untyped]  # ships no stubs

    state = json.loads(backend.to_str())
    for part in ("normalizer", "pre_tokenizer"):
        state[part] = _strip_marks(state[part])
    inside = Tokenizer.from_str(json.dumps(state))

    def encode(text: str) -> list[int]:
        tokens: list[int] = inside.encode(text, add_special_tokens=False).ids
        return tokens

    ids = [backend.token_to_id(f"<0x{byte:02X}>") for byte in range(256)]
    return _Continuation(encode, tuple(encode(_ANCHOR)), None if None in ids else tuple(ids))


def _part_state(part: Any) -> Any:
    """A part of a tokenizer as JSON; None when it is absent or written in Python."""
    try:
        return None if part is None else json.loads(part.__getstate__())
    except (TypeError, ValueError):
        return None


def _strip_marks(state: Any) -> Any:
    """The same part without the marks."""
    match state:
        case {"type": "Sequence"}:
            (key,) = state.keys() - {"type"}
            parts = [_strip_marks(part) for part in state[key]]
            return {**state, key: [part for part in parts if part is not None]}
        case {"type": "Prepend"}:
            return None
        case {"type": "Metaspace", "prepend_scheme": _}:
            return {**state, "prepend_scheme": "never"}
        case {"type": "ByteLevel", "add_prefix_space": True}:
            return {**state, "add_prefix_space": False}
    return state


# The model's tokenizer, which both engines read.


def load_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or Hugging Face id. Raises RlfError when there is none."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path)
    except Exception as error:  # it checks little of the files, and fails on the rest in any way
        raise RlfError(f"model.path: no tokenizer at {path!r}: {first_line(error)}") from error


# Where a sampled turn ends: what every format asks of a tokenizer at its start.


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
