"""Data never becomes markup."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from rlf.chat import encode_data, encode_template
from rlf.chat.encoding import check_lossless
from rlf.core import RlfError

MARKUP = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"),
    *("<tool_response>", "</tool_response>", "<think>", "</think>", "  "),
]


def markup_ids(tokenizer):
    return {index for index, token in tokenizer.added_tokens_decoder.items() if token.content != "中"}


def assert_neutral(tokenizer, text):
    tokens = encode_data(tokenizer, text)
    assert markup_ids(tokenizer).isdisjoint(tokens)
    assert tokenizer.decode(tokens, skip_special_tokens=False) == text


fragments = st.sampled_from(MARKUP).flatmap(
    lambda text: st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(
        lambda ends: text[min(ends) : max(ends)]
    )
)
spliced = st.sampled_from(MARKUP).flatmap(
    lambda outer: st.tuples(st.integers(0, len(outer)), st.sampled_from(MARKUP)).map(
        lambda cut: outer[: cut[0]] + cut[1] + outer[cut[0] :]
    )
)
hostile = st.lists(st.one_of(st.sampled_from(MARKUP), fragments, spliced, st.text(max_size=4)), max_size=8).map("".join)


@pytest.mark.parametrize("text", MARKUP)
def test_every_added_token_is_cut_wherever_it_stands(tokenizer, text):
    assert tokenizer.encode(text, add_special_tokens=False)[0] in markup_ids(tokenizer)
    for data in (text, text * 3, f"a{text}b", f"{text[:2]}{text}{text[2:]}", text[:-1] + text, text + text[1:]):
        assert_neutral(tokenizer, data)


@given(text=hostile)
@settings(max_examples=150, deadline=None)
def test_no_splice_of_markup_becomes_a_special_token(tokenizer, text):
    assert_neutral(tokenizer, text)


@given(text=hostile)
@settings(max_examples=60, deadline=None)
def test_no_splice_becomes_markup_after_normalisation(make_tokenizer, text):
    tokenizer = make_tokenizer(None, nfkc=True)
    assert markup_ids(tokenizer).isdisjoint(encode_data(tokenizer, text))


def test_a_normaliser_cannot_make_markup_of_lookalike_characters(make_tokenizer):
    tokenizer = make_tokenizer(None, nfkc=True)
    text = "\uff1ctool_call\uff1e"
    assert not markup_ids(tokenizer).isdisjoint(tokenizer.encode(text, add_special_tokens=False))
    assert markup_ids(tokenizer).isdisjoint(encode_data(tokenizer, text))


def test_plain_data_is_encoded_as_the_tokenizer_does(tokenizer):
    text = "the answer is 42, søster \u4e2d\u6587 \U0001f600"
    tokens = encode_data(tokenizer, text)
    assert tokens == tokenizer.encode(text, add_special_tokens=False)
    tokens.clear()
    assert encode_data(tokenizer, text), "a caller's list is its own"


def test_template_text_keeps_its_special_tokens(tokenizer):
    tokens = encode_template(tokenizer, "<|im_start|>user\n")
    assert tokens[0] == tokenizer.convert_tokens_to_ids("<|im_start|>")
    tokens.clear()
    assert encode_template(tokenizer, "<|im_start|>user\n"), "a caller's list is its own"


def test_nul_is_kept_and_lone_surrogates_are_replaced(tokenizer):
    tokens = encode_data(tokenizer, "a\0b\ud800c\udfff")
    assert tokenizer.decode(tokens) == "a\0b\ufffdc\ufffd"
    assert encode_data(tokenizer, "") == []


def test_a_letter_among_the_added_tokens_is_data(tokenizer):
    assert_neutral(tokenizer, "中a中中")


def test_a_single_character_known_only_as_a_special_token_is_refused(make_tokenizer):
    tokenizer = make_tokenizer(None)
    tokenizer.add_special_tokens({"additional_special_tokens": ["\u2588"]})
    with pytest.raises(RlfError, match="only as a special token"):
        encode_data(tokenizer, "a\u2588b")


def test_a_tokenizer_that_changes_text_is_refused(make_tokenizer):
    check_lossless(make_tokenizer(None))
    tokenizer = make_tokenizer(None)
    tokenizer.backend_tokenizer.normalizer = normalizers.Strip()
    with pytest.raises(RlfError, match="byte-level"):
        check_lossless(tokenizer)


def test_a_tokenizer_whose_added_letter_stands_for_a_byte_is_refused(make_tokenizer):
    tokenizer = make_tokenizer(None)
    tokenizer.add_tokens(["ø"])
    with pytest.raises(RlfError, match="same text back"):
        check_lossless(tokenizer)
