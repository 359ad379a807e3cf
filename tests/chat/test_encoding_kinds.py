"""Data stays data for every kind of tokenizer and every family's markup, and pieces join to the text they were."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.chat import FORMATS, encode_data, encode_template
from rlf.chat.encoding import check_lossless, decode
from rlf.core import RlfError
from rlf.types import Message

from .tokenizers import KINDS, MARKUP_BY_FAMILY, llama2_like, llama2_new, unigram

EVERY_MARK = list(dict.fromkeys(mark for marks in MARKUP_BY_FAMILY.values() for mark in marks))


@pytest.fixture(scope="module", params=KINDS)
def every(request):
    """A tokenizer of each kind that knows the markup of all families."""
    return KINDS[request.param](EVERY_MARK)


def markup_ids(tokenizer):
    return set(tokenizer.added_tokens_decoder)


def assert_data(tokenizer, text):
    tokens = encode_data(tokenizer, text)
    assert markup_ids(tokenizer).isdisjoint(tokens)
    assert decode(tokenizer, tokens) == text


@pytest.mark.parametrize("family", MARKUP_BY_FAMILY)
@pytest.mark.parametrize("kind", KINDS)
def test_no_special_token_of_any_family_can_be_written_by_data(kind, family):
    tokenizer = KINDS[kind](MARKUP_BY_FAMILY[family])
    check_lossless(tokenizer)
    for mark in MARKUP_BY_FAMILY[family]:
        assert tokenizer.convert_tokens_to_ids(mark) in encode_template(tokenizer, mark)
        for text in (mark, mark * 2, f"a {mark} b", f" {mark}", mark[:2] + mark + mark[2:], mark[:-1] + mark):
            assert_data(tokenizer, text)


pieces = st.one_of(
    st.sampled_from(EVERY_MARK),
    st.sampled_from(EVERY_MARK).flatmap(lambda mark: st.integers(1, len(mark)).map(lambda cut: mark[:cut])),
    st.sampled_from([" ", "  ", "\n", "▁", "<0x0A>", "<0x3C>", "é", "中", "\U0001f600", "river", " river", "\0"]),
    st.text(max_size=4),
)


@given(text=st.lists(pieces, max_size=8).map("".join))
@settings(max_examples=60, deadline=None)
def test_no_splice_of_markup_gets_through(every, text):
    tokens = encode_data(every, text)
    assert markup_ids(every).isdisjoint(tokens)
    assert decode(every, tokens) == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


@given(texts=st.lists(pieces, min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_pieces_join_to_the_text_they_were_cut_from(every, texts):
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    tokens = [token for text in texts for token in encode_data(every, text)]
    assert decode(every, tokens) == "".join(texts)


def test_a_piece_gets_no_space_that_nobody_wrote(every):
    tokens = encode_template(every, "<|im_start|>") + encode_data(every, "river") + encode_template(every, "<|im_end|>")
    assert decode(every, tokens) == "<|im_start|>river<|im_end|>"
    assert decode(every, encode_data(every, " river")) == " river"


@pytest.mark.parametrize("make", [llama2_new, unigram])
def test_the_beginning_of_a_conversation_is_marked_as_the_tokenizer_does(make):
    tokenizer = make(["<s>", "</s>"])
    own = tokenizer.encode("river", add_special_tokens=False)
    assert encode_template(tokenizer, "river", first=True) == own
    assert encode_template(tokenizer, "river") != own
    assert encode_template(tokenizer, "<s>river", first=True)[0] == tokenizer.convert_tokens_to_ids("<s>")


def test_spaces_that_a_legacy_tokenizer_puts_after_special_tokens_are_left_out():
    tokenizer = llama2_like(["<s>", "</s>"])
    assert tokenizer.decode(tokenizer.encode("<s>river", add_special_tokens=False)) == "<s> river"
    assert decode(tokenizer, encode_template(tokenizer, "<s>river", first=True)) == "<s>river"


def test_a_vocabulary_without_bytes_is_refused_at_the_start():
    tokenizer = unigram(["<s>", "</s>", "<unk>"], byte_fallback=False)
    with pytest.raises(RlfError, match=r"model\.path: .*the tokenizer"):
        check_lossless(tokenizer)


THREE_KINDS = ("byte_level", "tiktoken_like", "llama2_new")


@pytest.fixture(scope="module", params=[(name, kind) for name in FORMATS.names() for kind in THREE_KINDS], ids="-".join)
def over_kind(request, make_format):
    """A format over a tokenizer of each kind with its family's marks."""
    name, kind = request.param
    family = make_format(name).family
    others = [
        mark for mark in (*family.SPECIAL, *family.PLAIN) if len(mark) > 1 and mark.strip() and mark != family.EOS
    ]
    tokenizer = KINDS[kind]([others[0], family.EOS, *others[1:]], make_format(name).tokenizer.chat_template)
    chat = FORMATS.get(name)(tokenizer, family.TOOLS)
    chat.family = family
    return chat


def test_no_mark_in_an_observation_or_a_question_is_one(over_kind):
    chat, markup = over_kind, markup_ids(over_kind.tokenizer)
    call = chat.write_call(chat.family.CALL)
    own = [call, *chat.call_ends, *chat.stop_strings, *(mark.strip() for mark in chat.thinking_marks)]
    tags = ["</tool_response>", "</information>", "<|im_end|>", "Observation: a", "[/TOOL_RESULTS]", "```"]
    tokens = [token.content for token in chat.tokenizer.added_tokens_decoder.values()]

    def special(rendered):
        return [token for token in rendered if token in markup]

    for text in [*own, *tags, *tokens, *EVERY_MARK]:
        for hostile in (text, f"a {text}{text} b"):
            for closed in (True, False):
                observed = chat.observation([hostile, hostile], closed=closed)
                assert special(observed) == special(chat.observation(["a", "a"], closed=closed)), hostile
            asked = chat.prompt([Message("user", hostile)], chat.tools)
            assert special(asked) == special(chat.prompt([Message("user", "a")], chat.tools)), hostile
