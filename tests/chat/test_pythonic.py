"""Pythonic lists against LFM2's real template, well-formed calls as vLLM reads them, and malformed ones.

Where vLLM 0.29.0 reads otherwise: it takes sets and f-strings without placeholders for lists and strings, and drops
the whole turn when text stands before or after the list or when one argument is no named literal.
It drops dotted names, takes the last of two arguments of one name, infinities and halves of surrogate pairs, and a
list whose closing token is missing. Here each of these is a typed failure, but text may stand around a list, dotted
names are names, and the good calls of a list run.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.chat import detect_format
from rlf.core import RlfError
from rlf.types import ToolCall

GOOD = "[search(query='Vell')]"
CALL = ToolCall("search", {"query": "Vell"})
STOP = "<|eot|>"


@pytest.fixture(scope="module")
def pythonic(make_format):
    return make_format("pythonic")


@pytest.fixture(scope="module")
def lfm2(make_tokenizer, trl_template):
    from rlf.chat import FORMATS

    special = [
        "<|startoftext|>",
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|tool_call_start|>",
        "<|tool_call_end|>",
    ]
    tokenizer = make_tokenizer(trl_template("lfm2_2_5"), special=special, plain=["<think>", "</think>"])
    tokenizer.bos_token = "<|startoftext|>"
    return FORMATS.get("pythonic")(tokenizer)


def message(content, calls):
    return {"content": content, "tool_calls": [{"function": {"name": c.name, "arguments": c.arguments}} for c in calls]}


def test_a_trajectory_is_what_lfm2s_own_template_renders(lfm2, tools, assert_is_the_templates):
    second = ToolCall("add", {"a": [1, None], "b": True})
    both = "<|tool_call_start|>[add(a=[1, None], b=True), search(query='Vell')]<|tool_call_end|>"
    turns = [
        (lfm2.write_call(CALL) + "<|im_end|>", message("", [CALL]), [{"content": "<|im_end|> 900\n"}]),
        (both + "<|im_end|>", message("", [second, CALL]), [{"content": "]"}, {"content": ""}]),
    ]
    assert_is_the_templates(lfm2, tools, turns)
    assert lfm2.parse(turns[1][0], truncated=False).items == (second, CALL)
    assert detect_format(lfm2.tokenizer)[0] == "pythonic"


def test_a_trajectory_is_what_a_llama_4_template_renders(pythonic, tools, assert_is_the_templates):
    turns = [(pythonic.write_call(CALL) + STOP, message("", [CALL]), [{"content": "900"}, {"content": " a\n"}])]
    assert_is_the_templates(pythonic, tools, turns)


# Input text and the calls that vLLM's pythonic parsers read in it too.
AGREED = {
    GOOD: [CALL],
    '[search(query="Vell")]': [CALL],
    "[now()]": [ToolCall("now", {})],
    "[search(query='Vell'), now()]": [CALL, ToolCall("now", {})],
    "[f(a=1, b=-2.5, c=True, d=None, e=[1, 'x'], f={'k': {'l': False}})]": [
        ToolCall("f", {"a": 1, "b": -2.5, "c": True, "d": None, "e": [1, "x"], "f": {"k": {"l": False}}})
    ],
    "[f(a=true, b=null, c=false)]": [ToolCall("f", {"a": True, "b": None, "c": False})],
    "[f(size=(800, 600))]": [ToolCall("f", {"size": [800, 600]})],
    "[f(a={}, b=[])]": [ToolCall("f", {"a": {}, "b": []})],
    r"[f(city='Martha\'s Vineyard', metric='\"cool units\"')]": [
        ToolCall("f", {"city": "Martha's Vineyard", "metric": '"cool units"'})
    ],
    "[search(query='é中')]": [ToolCall("search", {"query": "é中"})],
    f"<|python_start|>{GOOD}<|python_end|>": [CALL],
}


@pytest.mark.parametrize("text", AGREED)
def test_well_formed_calls_are_read_as_vllm_reads_them(pythonic, text):
    assert list(pythonic.parse(text, truncated=False).items) == AGREED[text]


@pytest.mark.parametrize("tag", ["]", ")]", "<|python_end|>", "</think>", "<think>", GOOD.replace("'", '"'), "#", STOP])
def test_a_bracket_or_tag_inside_a_string_is_data(pythonic, tag):
    for text in (GOOD, f"<|python_start|>{GOOD}<|python_end|>"):
        (call,) = pythonic.parse(text.replace("Vell", tag) + STOP, truncated=False).items
        assert call == ToolCall("search", {"query": tag})


@pytest.mark.parametrize("end", ["", STOP, "\n", "<|python_end|>"])
def test_the_end_token_may_be_missing_at_the_end_of_a_turn(pythonic, end):
    text = f"<|python_start|>{GOOD}{end}"
    assert pythonic.parse(text, truncated=False).items == (ToolCall("search", {"query": "Vell"}),)
    cut = pythonic.parse(f"<|python_start|>{GOOD}", truncated=True)
    assert not cut.calls and cut.answer is None


@pytest.mark.parametrize("opening", ["<|python_start|>", "<|tool_call_start|>"])
@pytest.mark.parametrize("text", ["a\nb", "a\r\nb\n", "say \\'hi\\'\nthere", "a \\\\\nb", "[\n(]", '"\n"'])
def test_a_string_between_tokens_may_hold_line_breaks_as_they_are(pythonic, opening, text):
    read = pythonic.parse(f"{opening}[search(query='{text}', limit=[1,\n 2])]", truncated=False)
    value = text.replace("\\'", "'").replace("\\\\", "\\")
    assert read.items == (ToolCall("search", {"query": value, "limit": [1, 2]}),)


@pytest.mark.parametrize(
    "text", ["[search(query='a\nb')]", "<|python_start|>[search(query='a\nb)]\n[search(query='c)]"]
)
def test_a_line_break_in_a_string_without_tokens_and_a_quote_that_is_not_closed_run_nothing(pythonic, text):
    read = pythonic.parse(text, truncated=False)
    assert read.failures and not read.calls and read.answer is None


def test_two_strings_without_a_comma_are_no_string(pythonic, kinds):
    read = pythonic.parse("<|python_start|>[search(query='Vell' 'Orr')]<|python_end|>", truncated=False)
    assert kinds(read) == ["bad_call"]


def test_an_unknown_escape_stays_what_it_is(pythonic):
    (call,) = pythonic.parse(r"[f(a='\d+')]", truncated=False).items
    assert call.arguments == {"a": r"\d+"}


def test_one_bad_call_of_a_list_does_not_keep_the_others(pythonic, read, kinds):
    parsed = read(pythonic, "I call.\n[search(query='Vell'), search(query=open('x')), search('Vell')]\nDone.")
    assert kinds(parsed) == ["search", "bad_arguments", "bad_arguments"] and parsed.calls == (CALL,)


MALFORMED = {
    "not closed": ("[search(query='Vell')", "unterminated"),
    "not closed string": ("[search(query='Vell)]", "unterminated"),
    "raw newline": ("[search(query='Vell\nOrr')]", "unterminated"),
    "quote in a string": ("[search(query='It's')]", "unterminated"),
    "positional": ("[search('Vell')]", "bad_arguments"),
    "unpacked": ("[search(**{'query': 'Vell'})]", "bad_arguments"),
    "twice": ("[search(query='Vell', query='Orr')]", "bad_arguments"),
    "a name": ("[search(query=Vell)]", "bad_arguments"),
    "an expression": ("[search(query='Vell' + 'Orr')]", "bad_arguments"),
    "a nested call": ("[search(query=now())]", "bad_arguments"),
    "an f-string": ("[search(query=f'Vell')]", "bad_arguments"),
    "bytes": ("[search(query=b'Vell')]", "bad_arguments"),
    "a set": ("[search(query={'Vell'})]", "bad_arguments"),
    "a number as key": ("[search(query={1: 'Vell'})]", "bad_arguments"),
    "too large": ("[search(query=1e999)]", "bad_arguments"),
    "too many digits": (f"[search(query={'9' * 5000})]", "bad_call"),
    "a surrogate": (r"[search(query='\ud800')]", "bad_arguments"),
    "too deep": (f"[search(query={'[' * 99}{']' * 99})]", "bad_call"),
    "two calls without a comma": ("[search(query='Vell') now()]", "bad_call"),
    "JSON colon": ("[search(query: 'Vell')]", "bad_call"),
    "something else": ("[search(query='Vell'), 3]", "search"),
    "no list": ("search(query='Vell')", "wrong_tag"),
    "mid-line": ("I call [search(query='Vell')]", "wrong_tag"),
    "JSON": ('[{"name": "search", "arguments": {"query": "Vell"}}]', "wrong_tag"),
    "Hermes": ('<tool_call>{"name": "search"}</tool_call>', "wrong_tag"),
    "token not closed before text": (f"<|python_start|>{GOOD} and", "unterminated"),
    "token not closed before a call": (f"<|python_start|>{GOOD}\n{GOOD}", "unterminated"),
    "nothing in tokens": ("<|python_start|><|python_end|>", "unterminated"),
    "text in tokens": (f"<|python_start|>{GOOD} and <|python_end|>", "bad_call"),
    "only an end": ("<|python_end|>", "stray_tag"),
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize("before", ["", "<think>hm</think>", GOOD + "\n"])
def test_no_malformed_call_is_lost_run_or_taken_for_an_answer(pythonic, read, kinds, case, before):
    text, kind = MALFORMED[case]
    parsed = read(pythonic, before + text + STOP)
    assert parsed.answer is None and parsed.failures
    assert parsed.calls == (CALL,) * (before.count(GOOD) + (case == "something else"))
    if not before:
        assert kinds(parsed)[0] == kind


@pytest.mark.parametrize("text", ["serch(query='Vell')", "So:\n  now()\n", "a.b(c=1, d=[2])"])
def test_a_call_without_its_brackets_is_no_answer_whatever_it_names(pythonic, kinds, text):
    assert kinds(pythonic.parse(text, truncated=False)) == ["wrong_tag"]


def test_nothing_thought_is_run(pythonic, read, kinds):
    assert kinds(read(pythonic, f"<think>\n{GOOD}</think>42")) == ["in_thinking"]
    assert kinds(read(pythonic, f"{GOOD}</think>")) == ["in_thinking"]
    assert kinds(read(pythonic, f"<think>{GOOD}")) == ["unclosed_thinking", "in_thinking"]


@pytest.mark.parametrize("text", ["[1, 2]", "see [1]", "a[0] = f(x)", "[link](http://a)", "[x for x in y]"])
def test_an_answer_with_brackets_is_an_answer(pythonic, text):
    assert pythonic.parse(text, truncated=False).answer == text


@pytest.mark.parametrize(
    "call", [ToolCall("a-b", {}), ToolCall("f", {"from": 1}), ToolCall("", {}), ToolCall("f", {"a b": 1})]
)
def test_a_name_that_python_cannot_write_is_refused(pythonic, call):
    with pytest.raises(RlfError, match="pythonic cannot write the call"):
        pythonic.write_call(call)


PIECES = [
    *("[", "]", "(", ")", "search", "(a=", "'", '"', "\\", ",", "\n", "<|python_start|>", "<|python_end|>", "<think>"),
    *("</think>", GOOD, "é", "{", "}", ":", "\0", '"""', STOP),
]


@given(text=st.lists(st.sampled_from(PIECES), max_size=14).map("".join), truncated=st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_soup_has_a_typed_reading(pythonic, read, text, truncated):
    parsed = read(pythonic, text, truncated)
    assert (parsed.answer is None) == bool(parsed.observed)
    if parsed.answer is not None:
        assert "<|python_start|>" not in parsed.answer and GOOD not in parsed.answer and not truncated


def test_hostile_turns_are_read_in_linear_time(pythonic, assert_linear):
    assert_linear(
        pythonic, ["[a(", "\n[a(", "[", "\n[a()]", GOOD + "\n", "<|python_start|>", "\n[a('", "<think>", "(["]
    )
