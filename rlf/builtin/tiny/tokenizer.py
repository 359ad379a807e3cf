"""The tiny model's tokenizer: byte-level BPE whose words may be whole phrases of the encyclopedia.

A text is cut before every capital syllable, its following lower-case syllable, every pair of digits and the phrase
between two of those. A piece that is in the vocabulary is one token (`ignore_merges`), so a name is always START +
END and a four-digit number two pairs, wherever they stand: one spelling, one tokenisation, easy to copy. Any other
text falls back on merges and bytes.
"""

from __future__ import annotations

import itertools
import re
from functools import cache
from importlib.resources import files

from tokenizers import (  # type: ignore[import-untyped]  # ships no stubs
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from rlf.builtin.encyclopedia.questions import question_templates
from rlf.builtin.encyclopedia.search import NOTHING_FOUND
from rlf.builtin.encyclopedia.world import ENDS, RELATIONS, STARTS

__all__ = ["END_OF_TEXT", "END_OF_TURN", "SPECIAL_TOKENS", "build_tokenizer", "wrap_tokenizer"]

END_OF_TURN = "<|im_end|>"
END_OF_TEXT = "<|endoftext|>"
_CONTROL_TOKENS = ("<|im_start|>", END_OF_TURN, END_OF_TEXT)
_TAG_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
SPECIAL_TOKENS: tuple[str, ...] = _CONTROL_TOKENS + _TAG_TOKENS

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
    vocabulary = {token: token_id for token_id, token in enumerate(SPECIAL_TOKENS)}
    merges = _word_merges()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*STARTS, *ENDS, *(f"{pair:02d}" for pair in range(100))]
    for token in [*alphabet, *(left + right for left, right in merges), *names, *_phrases()]:
        vocabulary.setdefault(token, len(vocabulary))
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECE), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    template = files("rlf.builtin.tiny").joinpath("chat_template.jinja").read_text(encoding="utf-8")
    return wrap_tokenizer(backend, template)


def wrap_tokenizer(backend: Tokenizer, chat_template: str) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer as transformers has it, with the special tokens and ends of the built-in models."""
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(_CONTROL_TOKENS))
    backend.add_tokens(list(_TAG_TOKENS))
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers is untyped here
        tokenizer_object=backend,
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
        chat_template=chat_template,
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
    """The pieces of the template texts in byte-level letters, in order of first use."""
    pieces = itertools.chain.from_iterable(re.findall(_PIECE, text) for text in _template_texts())
    return list(dict.fromkeys(byte_level(piece) for piece in pieces))


def byte_level(text: str) -> str:
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
