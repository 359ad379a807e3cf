"""The tiny model's tokenizer: byte-level BPE whose words may be whole phrases of the encyclopedia.

A text is cut before every capital syllable, its following lower-case syllable, every pair of digits and the phrase
between two of those. A piece that is in the vocabulary is one token (`ignore_merges`), so a name is always START +
END and a four-digit number two pairs, wherever they stand: one spelling, one tokenisation, easy to copy. Any other
text falls back on merges and bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-untyped]  # ships no stubs
from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.encyclopedia.questions import question_templates
from benchmarks.embedded.encyclopedia.world import RELATIONS
from rlf.builtin.encyclopedia.names import ENDS, STARTS
from rlf.builtin.encyclopedia.search import NOTHING_FOUND

END_OF_TURN = "<|im_end|>"
END_OF_TEXT = "<|endoftext|>"
_CONTROL_TOKENS = ("<|im_start|>", END_OF_TURN, END_OF_TEXT)
_TAG_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
SPECIAL_TOKENS: tuple[str, ...] = _CONTROL_TOKENS + _TAG_TOKENS
_PAIRS = tuple(f"{pair:02d}" for pair in range(100))
NUMBERS = (*map(str, range(10)), *_PAIRS)
"""Digits and pairs of digits."""

_PIECE = r"\d{1,2}|[A-Z][a-z]{2}|(?<=[A-Z][a-z][a-z])[a-z]+|[^A-Z\d]+|[A-Z]"
_CHAT_TEXTS = (
    "system\nTools: search, calculator",
    "Tools: search",
    "Tools: calculator",
    "user\n",
    "assistant\n",
    "\n",
    '\n{"name": "search", "arguments": {"query": "',
    '\n{"name": "calculator", "arguments": {"expression": "',
    '"}}\n',
    '"}\n',
    " + ",
    " * ",
    " - ",
    "unknown",
    " and ",
    NOTHING_FOUND,
    "Error: ",
    "error: ",
)
_WORD_TEXTS = (
    "the tool call could not be read as JSON",
    "unknown tool",
    "missing argument",
    "is not allowed",
    "timed out",
    "name arguments query expression result message",
    "please write one valid call and answer with the value",
)
_NUM_MERGES = 96


@cache
def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer, built from the world's own syllables and templates; no seed, no corpus file."""
    return make_tokenizer([*STARTS, *ENDS, *_PAIRS, *_phrases()], _PIECE, merges=_word_merges())


def cut_at(phrases: Iterable[str], rest: str) -> str:
    """The pattern of pieces that are a phrase, the longest that there is, or match `rest`."""
    return "|".join([*map(re.escape, sorted(phrases, key=len, reverse=True)), rest])


def make_tokenizer(
    texts: Iterable[str],
    piece: str,
    *,
    merges: Sequence[tuple[str, str]] = (),
    template_of: str = "tiny",
    max_length: int = 1024,
) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer as transformers has it, with the special tokens and ends of the built-in models.

    Args:
        texts: one token each, where the pattern `piece` cuts them out.
        merges: of byte-level letters, for pieces that are no token.
        template_of: the built-in model whose chat template it has.
    """
    vocabulary = {token: token_id for token_id, token in enumerate(SPECIAL_TOKENS)}
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    for token in [*alphabet, *(left + right for left, right in merges), *map(_spell_bytes, texts)]:
        vocabulary.setdefault(token, len(vocabulary))
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges), ignore_merges=True))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(piece), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(_CONTROL_TOKENS))
    backend.add_tokens(list(_TAG_TOKENS))
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers is untyped here
        tokenizer_object=backend,
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        chat_template=files(f"rlf.builtin.{template_of}").joinpath("chat_template.jinja").read_text(encoding="utf-8"),
    )


def _template_texts() -> list[str]:
    """Every text that the encyclopedia and the chat layout are made of, with names already cut out."""
    passages = [text for relation in RELATIONS.values() for text in relation.passages]
    templates = passages + [f"{text}\n" for text in passages] + list(question_templates())
    gaps = [gap for template in templates for gap in re.split(r"\{\w\}", template)]
    calls = [f' {relation.keyword}"}}}}\n' for relation in RELATIONS.values()]
    calls += [f" {relation.keyword}" for relation in RELATIONS.values()]
    return [*_CHAT_TEXTS, *gaps, *calls]


def _phrases() -> list[str]:
    """The pieces of the template texts, in order of first use."""
    return list(dict.fromkeys(piece for text in _template_texts() for piece in re.findall(_PIECE, text)))


def _spell_bytes(text: str) -> str:
    """The text as a byte-level tokenizer spells it in its vocabulary."""
    return "".join(piece for piece, _ in pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str(text))


def _word_merges() -> list[tuple[str, str]]:
    """Merges learned on the single words of the templates, for texts that are no template."""
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + _NUM_MERGES, initial_alphabet=alphabet, show_progress=False
    )
    learner.train_from_iterator([*_template_texts(), *_WORD_TEXTS], trainer)
    token_by_id = sorted(learner.get_vocab(), key=learner.get_vocab().__getitem__)
    return _splits(token_by_id[len(alphabet) :])


def _splits(merged_tokens: list[str]) -> list[tuple[str, str]]:
    """Each merged token with the two parts it was made of: the split whose parts are both known by then."""
    known: set[str] = set(pre_tokenizers.ByteLevel.alphabet())
    merges = []
    for token in merged_tokens:
        cut = next(cut for cut in range(1, len(token)) if token[:cut] in known and token[cut:] in known)
        merges.append((token[:cut], token[cut:]))
        known.add(token)
    return merges
