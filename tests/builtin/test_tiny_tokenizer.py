"""The tiny model's tokenizer and the token layout of its conversations."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.embedded.encyclopedia.world import WorldSize, generate_world
from benchmarks.embedded.tiny.layout import (
    ToolCallTextError,
    call_text,
    data_ids,
    observation_ids,
    parse_calls,
    prompt_ids,
    turn_ids,
)
from benchmarks.embedded.tiny.tokenizer import SPECIAL_TOKENS, build_tokenizer
from rlf.builtin.encyclopedia.names import ENDS, STARTS, NameSplit

TOKENIZER = build_tokenizer()
QUESTION = "Where were Bakbir and Kalfex born?"
FIRST_RESULT = "Bakbir was born in Zelmas.\nBakbir works for Kalfex."
SECOND_RESULT = "Zelmas is the town where Kalfex was born."
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "", "parameters": {"type": "object"}}}
    for name in ("search", "calculator")
]
MESSAGES = [
    {"role": "user", "content": QUESTION},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"type": "function", "function": {"name": "search", "arguments": {"query": "Bakbir born"}}},
            {"type": "function", "function": {"name": "search", "arguments": '{"query": "Kalfex born"}'}},
        ],
    },
    {"role": "tool", "content": FIRST_RESULT},
    {"role": "tool", "content": SECOND_RESULT},
    {"role": "assistant", "content": "Zelmas and Zelmas"},
]
CALLS = [("search", {"query": "Bakbir born"}), ("search", {"query": "Kalfex born"})]
TEXT = (
    "<|im_start|>system\nTools: search, calculator<|im_end|>\n"
    "<|im_start|>user\nWhere were Bakbir and Kalfex born?<|im_end|>\n"
    "<|im_start|>assistant\n"
    '<tool_call>\n{"name": "search", "arguments": {"query": "Bakbir born"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "search", "arguments": {"query": "Kalfex born"}}\n</tool_call><|im_end|>\n'
    "<|im_start|>user\n"
    "<tool_response>\nBakbir was born in Zelmas.\nBakbir works for Kalfex.\n</tool_response>\n"
    "<tool_response>\nZelmas is the town where Kalfex was born.\n</tool_response><|im_end|>\n"
    "<|im_start|>assistant\n"
    "Zelmas and Zelmas<|im_end|>\n"
)
texts = st.text() | st.lists(st.sampled_from([*SPECIAL_TOKENS, *STARTS[:5], *ENDS[:5], "12", " ", "<"])).map("".join)


@given(texts)
def test_decoding_gives_back_every_encodable_text(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(texts)
def test_data_decodes_to_itself_and_holds_no_special_token(text):
    token_ids = data_ids(TOKENIZER, text)
    assert TOKENIZER.decode(token_ids) == text
    assert not set(token_ids) & set(TOKENIZER.convert_tokens_to_ids(list(SPECIAL_TOKENS)))


@given(
    st.sampled_from(STARTS), st.sampled_from(ENDS), st.integers(1000, 9999), st.sampled_from(["", " ", "\n", '"', "("])
)
def test_a_name_and_a_number_are_spelled_by_the_same_two_tokens_everywhere(start, end, number, before):
    for word, parts in ((start + end, [start, end]), (str(number), [str(number)[:2], str(number)[2:]])):
        token_ids = TOKENIZER.convert_tokens_to_ids(parts)
        assert TOKENIZER.encode(word) == token_ids
        for after in (" was born in ", '"}}\n', ".", "?", " and "):
            whole = TOKENIZER.encode(before + word + after)
            assert any(whole[place : place + 2] == token_ids for place in range(len(whole)))


@given(st.integers(1, 19_998))
def test_a_result_of_any_length_is_pairs_of_digits_and_the_last_digit_alone(number):
    text = str(number)
    pieces = [text[place : place + 2] for place in range(0, len(text), 2)]
    assert data_ids(TOKENIZER, text) == TOKENIZER.convert_tokens_to_ids(pieces)


def test_a_calculator_call_spells_its_numbers_as_the_passages_do():
    token_ids = turn_ids(TOKENIZER, call_text([("calculator", {"expression": "4512 - 1307"})]))
    digits_and_operator = TOKENIZER.convert_tokens_to_ids(["45", "12", "Ġ-Ġ", "13", "07"])
    assert any(token_ids[place : place + 5] == digits_and_operator for place in range(len(token_ids)))


def test_special_tokens_are_single_tokens_with_their_roles():
    for token in SPECIAL_TOKENS:
        assert len(TOKENIZER.encode(token)) == 1
    assert TOKENIZER.eos_token == "<|im_end|>"
    assert TOKENIZER.pad_token == "<|endoftext|>"
    assert len(TOKENIZER) < 1000


def test_the_skeleton_of_a_call_costs_few_tokens():
    assert len(turn_ids(TOKENIZER, call_text(CALLS[:1]))) <= 8


def test_every_passage_is_a_handful_of_tokens():
    world = generate_world(0, NameSplit.TRAIN, WorldSize(persons=50, towns=20, rivers=20, companies=20, countries=20))
    assert max(len(TOKENIZER.encode(passage)) for passage in world.passages) <= 8


def test_the_template_renders_the_layout():
    assert TOKENIZER.apply_chat_template(MESSAGES, tools=TOOLS, tokenize=False) == TEXT


@pytest.mark.parametrize("num_messages", [1, 4])
def test_the_template_ends_with_the_assistant_header_when_a_turn_is_to_come(num_messages):
    rendered = TOKENIZER.apply_chat_template(
        MESSAGES[:num_messages], tools=TOOLS, tokenize=False, add_generation_prompt=True
    )
    assert TEXT.startswith(rendered)
    assert rendered.endswith("<|im_end|>\n<|im_start|>assistant\n")


def test_token_pieces_concatenate_to_the_rendered_conversation():
    token_ids = [
        *prompt_ids(TOKENIZER, ["search", "calculator"], QUESTION),
        *turn_ids(TOKENIZER, call_text(CALLS)),
        *observation_ids(TOKENIZER, [FIRST_RESULT, SECOND_RESULT]),
        *turn_ids(TOKENIZER, "Zelmas and Zelmas"),
    ]
    assert TOKENIZER.decode(token_ids) + "\n" == TEXT


def test_a_system_message_stands_before_the_tools():
    messages = [{"role": "system", "content": "Be brief."}, *MESSAGES[:1]]
    rendered = TOKENIZER.apply_chat_template(messages, tools=TOOLS[:1], tokenize=False)
    assert rendered.startswith("<|im_start|>system\nBe brief.\nTools: search<|im_end|>\n<|im_start|>user\n")


def test_without_tools_there_is_no_system_block():
    assert TOKENIZER.apply_chat_template(MESSAGES[:1], tokenize=False) == f"<|im_start|>user\n{QUESTION}<|im_end|>\n"


queries = st.text(st.characters(codec="utf-8"))


@given(st.lists(queries, max_size=3))
def test_parsing_calls_undoes_rendering_them(values):
    calls = [("search", {"query": value}) for value in values if "tool_call>" not in value]
    assert parse_calls(call_text(calls)) == calls


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "search", "arguments": {"query": "x"}\n</tool_call>',
        '<tool_call>\n{"name": "search"}\n</tool_call>',
        '<tool_call>\n{"name": "search", "arguments": "x"}\n</tool_call>',
        "<tool_call>\n[]\n</tool_call>",
        '<tool_call>\n{"name": "search", "arguments": {"query": "x"}}',
    ],
)
def test_a_call_that_cannot_be_read_is_a_fault(text):
    with pytest.raises(ToolCallTextError, match=json.dumps("x")[1] if "x" in text else "tool call"):
        parse_calls(text)
