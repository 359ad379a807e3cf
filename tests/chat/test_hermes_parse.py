"""Every text of the Hermes format has one typed reading; nothing is lost, nothing thought is run."""

import itertools
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.core.plain_json import MAX_DEPTH
from rlf.types import FailureClass, ParseFailure, ToolCall

GOOD = '<tool_call>\n{"name": "search", "arguments": {"query": "Vell"}}\n</tool_call>'
CALL = ToolCall("search", {"query": "Vell"})
STOP = "<|im_end|>"


def block(body):
    return f"<tool_call>\n{body}\n</tool_call>"


def kinds(parsed):
    return [item.kind.value if isinstance(item, ParseFailure) else item.name for item in parsed.items]


def parse(chat, text, truncated=False):
    parsed = chat.parse(text, truncated=truncated)
    said = text.removesuffix(STOP)
    for failure in parsed.failures:
        assert said[failure.position : failure.position + len(failure.raw)] == failure.raw
        assert len(failure.message.split()) <= 25, failure.message
    positions = [failure.position for failure in parsed.failures]
    assert positions == sorted(positions)
    if "<tool_call>" in said.replace("`<tool_call>`", ""):  # a tag in backticks is spoken of
        assert parsed.items, "an opening tag was lost"
    return parsed


# The fourteen strings on which other parsers silently return no call, or run one that was only thought of.
OFF_FORMAT = {
    "single quotes": (block("{'name': 'search', 'arguments': {'query': 'Vell'}}"), ["bad_json"]),
    "trailing comma": (block('{"name": "search", "arguments": {"query": "Vell"},}'), ["bad_json"]),
    "no close tag": ('<tool_call>\n{"name": "search", "arguments": {"query": "Vell"}}', ["unterminated"]),
    "missing brace": (block('{"name": "search", "arguments": {"query": "Vell"}'), ["bad_json"]),
    "fenced JSON": (block('```json\n{"name": "search", "arguments": {"query": "Vell"}}\n```'), ["bad_json"]),
    "raw newline": (block('{"name": "search", "arguments": {"query": "Vell\nOrr"}}'), ["bad_json"]),
    "parameters": (block('{"name": "search", "parameters": {"query": "Vell"}}'), ["bad_arguments"]),
    "list of calls": (block('[{"name": "search", "arguments": {"query": "Vell"}}]'), ["bad_call"]),
    "string arguments": (block('{"name": "search", "arguments": "{\\"query\\": \\"Vell\\"}"}'), ["bad_arguments"]),
    "second malformed": (GOOD + "\n" + block('{"name": "search", "arguments": {"query": }}'), ["search", "bad_json"]),
    "rehearsed": (f"<think>\nI could write {GOOD}\n</think>\n\n", ["in_thinking"]),
    "no open tag": ('{"name": "search", "arguments": {"query": "Vell"}}\n</tool_call>', ["wrong_tag", "stray_tag"]),
    "no tags": ('{"name": "search", "arguments": {"query": "Vell"}}', ["wrong_tag"]),
    "wrong tag": (GOOD.replace("tool_call", "function_call"), ["wrong_tag"]),
}


@pytest.mark.parametrize("case", OFF_FORMAT)
def test_an_off_format_call_is_typed_and_never_an_answer(hermes, case):
    text, expected = OFF_FORMAT[case]
    parsed = parse(hermes, text + STOP)
    assert kinds(parsed) == expected
    assert parsed.answer is None and parsed.observed == parsed.items
    assert parsed.calls == ((CALL,) if "search" in expected else ())


MENDS = {
    "bad_json": {
        "{'name': 'a'}": "double quotes",
        '{"name": "a", "arguments": {"b": 1,}}': "trailing comma",
        '{"name": "a", "arguments": {"b": [1, ]}}': "trailing comma",
        '```json\n{"name": "a"}\n```': "code fence",
        '{"name": "a\nb"}': "line break",
        '{"name": "a", "arguments": {}': "not closed",
        '{"name": "a': "line break",
        '{"name": "a", "name": "b", "arguments": {}}': 'duplicate key "name"',
        '{"name": "a", "arguments": {"b": NaN}}': "NaN is not JSON",
        '{"name": "a", "arguments": {"b": -Infinity}}': "-Infinity is not JSON",
        '{"name": "a", "arguments": {"b": 1e999}}': "too large",
        '{"name": "a", "arguments": {"b": ' + "9" * 5000 + "}}": "too many digits",
        '{"name": "a", "arguments": {"b": "\\ud800"}}': "surrogate",
        '{"name": "a", "arguments": {"b": "\ud800"}}': "surrogate",
        '{"name": "a", "arguments": {"b": True}}': "at character 34",
        '{"name": "a", "arguments": {}} and more': "text between the JSON",
        '{"name": "a", "arguments": {}}}': "text between the JSON",
        "": "empty",
        "search": "at character 1",
    },
    "bad_call": {
        '"search"': "no object",
        "[]": "a list",
        '{"name": "a", "arguments": {}, "query": 1}': 'no key "query"',
    },
    "missing_name": {
        '{"arguments": {}}': '"name"',
        '{"name": "", "arguments": {}}': '"name"',
        '{"name": 3, "arguments": {}}': '"name"',
        '{"type": "function", "function": {"name": "a", "arguments": {}}}': '"name"',
    },
    "bad_arguments": {
        '{"name": "a"}': "missing",
        '{"name": "a", "arguments": null}': "no JSON object",
        '{"name": "a", "arguments": ["b"]}': "no JSON object",
        '{"name": "a", "arguments": "b"}': "is a string",
        '{"name": "a", "parameters": {}}': 'instead of "parameters"',
    },
}


@pytest.mark.parametrize(("kind", "body"), [(kind, body) for kind, of in MENDS.items() for body in of])
def test_the_corrective_message_names_the_fault(hermes, kind, body):
    parsed = parse(hermes, block(body))
    (failure,) = parsed.items
    assert failure.kind == kind and MENDS[kind][body] in failure.message and not failure.structural


@pytest.mark.parametrize("opening", ["[", '{"a":', "[{}, "])
@pytest.mark.parametrize("depth", [MAX_DEPTH, 900, 100_000])
def test_deep_nesting_is_bad_json_whatever_the_stack(hermes, opening, depth):
    body = '{"name": "a", "arguments": {"b": ' + opening * depth
    assert kinds(parse(hermes, block(body))) == ["bad_json"]


def test_nesting_is_allowed_to_its_limit_and_no_further(hermes):
    def nested(depth):
        return block('{"name": "a", "arguments": {"b": ' + "[" * depth + "]" * depth + "}}")

    # Two levels are the call's own.
    assert kinds(parse(hermes, nested(MAX_DEPTH - 2))) == ["a"]
    assert kinds(parse(hermes, nested(MAX_DEPTH - 1))) == ["bad_json"]
    assert kinds(parse(hermes, block('{"name": "a", "arguments": {"b": [' + "[], " * 200 + "[]]}}"))) == ["a"]


@pytest.mark.parametrize("tag", ["</tool_call>", "<tool_call>", "</think>", "<think>", GOOD.replace('"', '\\"'), STOP])
def test_a_tag_inside_a_string_argument_is_data(hermes, tag):
    text = block('{"name": "note", "arguments": {"text": "' + tag.replace("\n", "\\n") + '"}}')
    (call,) = parse(hermes, text + STOP).items
    assert call == ToolCall("note", {"text": tag.replace('\\"', '"')})


@pytest.mark.parametrize(
    "body",
    [
        "{'name': 'note', 'arguments': {'text': '" + GOOD + "'}}",
        '{"name": "note", "arguments": {"text": "\n' + GOOD.replace('"', '\\"') + '\n"}}',
        '{"name": "note", "arguments": {"text": "' + GOOD.replace('"', '\\"').replace("\n", "\\n") + '",}}',
    ],
)
def test_a_call_inside_a_string_of_a_broken_call_is_not_run(hermes, body):
    assert kinds(parse(hermes, block(body))) == ["bad_json"]


def test_several_calls_keep_their_order_and_the_good_ones_run(hermes):
    bad = block("{}")
    text = f"First.\n{GOOD}\n{bad} then {GOOD}</tool_call>{bad}{GOOD}{STOP}"
    parsed = parse(hermes, text)
    assert kinds(parsed) == ["search", "missing_name", "search", "stray_tag", "missing_name", "search"]
    assert parsed.calls == (CALL,) * 3 and parsed.answer is None
    assert not any(failure.structural for failure in parsed.failures)


def test_a_missing_close_tag_costs_one_call_only(hermes):
    text = GOOD.removesuffix("</tool_call>") + GOOD
    parsed = parse(hermes, text)
    assert kinds(parsed) == ["unterminated", "search"]
    assert not parsed.failures[0].structural
    (last,) = parse(hermes, "x " + GOOD.removesuffix("</tool_call>")).failures
    assert last.structural and last.position == 2


def test_thinking_is_kept_apart_from_the_answer(hermes):
    parsed = parse(hermes, f"<think>\nIs it 41?\n</think>\n\nIt is 42.{STOP}")
    assert (parsed.thinking, parsed.answer, parsed.items) == ("Is it 41?", "It is 42.", ())


def test_a_rehearsed_call_is_counted_but_answered_only_when_nothing_else_is_said(hermes):
    thought = f"<think>maybe {GOOD} or <tool_call>{{</think>"
    with_answer = parse(hermes, thought + "42")
    assert with_answer.answer == "42" and kinds(with_answer) == ["in_thinking"] and with_answer.observed == ()
    with_call = parse(hermes, thought + GOOD)
    assert with_call.observed == (CALL,) and kinds(with_call) == ["in_thinking", "search"]
    alone = parse(hermes, thought)
    assert alone.answer is None and kinds(alone) == ["in_thinking"] and alone.observed == alone.items
    assert alone.failures[0].raw == GOOD


@pytest.mark.parametrize(
    "text",
    [
        f"maybe {GOOD}</think>",
        f"<think>a</think>{GOOD}</think>",
        "<think>a</think>b<tool_call>{'</think>",
        f'<think><tool_call>{{"name": "a", "arguments": {{"b": "</think>{GOOD}"}}}}</tool_call></think>',
    ],
)
def test_nothing_before_the_last_end_of_thinking_is_run(hermes, text):
    parsed = parse(hermes, text)
    assert parsed.calls == () and "in_thinking" in kinds(parsed)
    assert parse(hermes, text + "42").answer == "42"
    assert parse(hermes, text + GOOD).calls == (CALL,)


def test_text_before_thinking_stays_part_of_the_answer(hermes):
    parsed = parse(hermes, "Well. <think>a</think> It is <think>b</think>42.")
    assert (parsed.answer, parsed.thinking) == ("Well.  It is 42.", "a\nb")


def test_thinking_that_never_ends_hides_no_call(hermes):
    parsed = parse(hermes, f"<think>a {GOOD}{STOP}")
    assert kinds(parsed) == ["unclosed_thinking", "in_thinking"] and parsed.failures[0].structural
    assert parsed.answer is None and parsed.calls == ()
    after = parse(hermes, f"{GOOD}<think>a")
    assert kinds(after) == ["search", "unclosed_thinking"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is 4", ["truncated"]),
        ("", ["truncated"]),
        ("<think>a", ["truncated"]),
        (f"<think>{GOOD}", ["truncated", "in_thinking"]),
        (f"<think>{GOOD}</think>", ["in_thinking", "truncated"]),
        ("<think>a</think>", ["truncated"]),
        (GOOD[:-1], ["truncated"]),
        (f"Let me look. {GOOD}", ["search"]),
        (f"{GOOD} and then", ["search", "truncated"]),
        (GOOD + "\n<tool_c", ["search", "truncated"]),
        (GOOD + GOOD[:30], ["search", "truncated"]),
        (GOOD, ["search"]),
        (GOOD + "\n", ["search"]),
        (block("{"), ["bad_json"]),
    ],
)
def test_a_turn_cut_by_its_budget_is_truncated_not_answered(hermes, text, expected):
    parsed = parse(hermes, text, truncated=True)
    assert kinds(parsed) == expected and parsed.answer is None


@pytest.mark.parametrize(
    "text",
    [
        *("<tool_calls>[]</tool_calls>", "<TOOL_CALL>{}</TOOL_CALL>", "<tool-call>x", "<toolcall>", "<|tool_call|>"),
        *("<function=search>", "<function_call>", "<tool_call {", "< tool_call>", '[TOOL_CALLS] [{"name": "a"}]'),
        *(
            "<|python_tag|>x()",
            "I call ```json\n{'name': 'a', 'arguments': {}}\n```",
            '{"name": "a", "parameters": {}}',
        ),
    ],
)
def test_what_looks_like_a_call_is_no_answer(hermes, text):
    assert kinds(parse(hermes, "Well. " + text)) == ["wrong_tag"]
    assert kinds(parse(hermes, text + GOOD)) == ["wrong_tag", "search"]


@pytest.mark.parametrize("text", ["a < b", '{"name": "Ann", "age": 3}', "<b>42</b>", "the function f(x) = {x}", "[1]"])
def test_an_answer_with_brackets_is_an_answer(hermes, text):
    assert parse(hermes, text).answer == text


def mutations():
    """Malformed blocks: each operator on each call."""
    bodies = [
        '{"name": "search", "arguments": {"query": "Vell"}}',
        '{"name": "add", "arguments": {"a": [1, 2.5], "b": {"c": null, "d": "é \\u4e2d"}}}',
        '{"name": "note", "arguments": {"text": "it\'s a \\"</tool_call>\\" tag"}}',
        '{"name": "now", "arguments": {}}',
    ]
    edits = [
        lambda s: s[:-1],
        lambda s: s[:-2],
        lambda s: s[1:],
        lambda s: s[: len(s) // 2],
        lambda s: s + "}",
        lambda s: s + ";",
        lambda s: s + s,
        lambda s: s + "," + s,
        lambda s: f"[{s}]",
        lambda s: f"({s})",
        lambda s: f"```json\n{s}\n```",
        lambda s: f"`{s}`",
        lambda s: f"call: {s}",
        lambda s: f"json\n{s}",
        lambda s: f"\u00a0{s}",
        lambda s: f"\ufeff{s}",
        lambda s: json.dumps(s),
        lambda s: s.replace('"', "'"),
        lambda s: s.replace('"', "\u201c"),
        lambda s: s.replace('"', ""),
        lambda s: s.replace('"name"', "name"),
        lambda s: s.replace('"name"', '"tool"'),
        lambda s: s.replace('"name": ', ""),
        lambda s: s.replace('"arguments"', '"parameters"'),
        lambda s: s.replace('"arguments"', '"args"'),
        lambda s: s.replace(":", " ="),
        lambda s: s.replace(",", ""),
        lambda s: s.replace("}", ",}"),
        lambda s: s.replace("}", ")"),
        lambda s: s.replace("{", "<"),
        lambda s: s.replace("{", '{"name": 1, ', 1),
        lambda s: s.replace("{", '{"id": 1, ', 1),
        lambda s: s.replace("{", "{// a comment\n", 1),
        lambda s: s.replace('"arguments": {', '"arguments": {"x": NaN, '),
        lambda s: s.replace('"arguments": {', '"arguments": {"x": +1, '),
        lambda s: s.replace('"arguments": {', '"arguments": {"x": 01, '),
        lambda s: s.replace('"arguments": {', '"arguments": {"x": undefined, '),
        lambda s: s.replace('"arguments": {', '"arguments": {"x": "\t", '),
        lambda s: s.replace('"arguments": {', '"arguments": [{'),
        lambda s: s.replace('"arguments": ', '"arguments": null, "x": '),
        lambda s: "",
        lambda s: "null",
    ]
    for body, edit in itertools.product(bodies, edits):
        if edit(body) != body:
            yield edit(body)


@pytest.mark.parametrize(
    ("before", "after"), [("", ""), ("I call.\n", "\nDone."), ("<think>hm</think>", ""), (GOOD, GOOD), ("", GOOD)]
)
def test_no_malformed_call_is_lost_run_or_taken_for_an_answer(hermes, before, after):
    bodies = list(mutations())
    assert len(bodies) > 150
    for body in bodies:
        parsed = parse(hermes, before + block(body) + after + STOP)
        assert parsed.failures, body
        assert parsed.answer is None, body
        expected = before.count("search") + after.count("search")
        assert parsed.calls == (CALL,) * expected, body


soup = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "<tool_call>",
                "</tool_call>",
                "<think>",
                "</think>",
                GOOD,
                "{",
                "}",
                '"',
                "'",
                "\\",
                "[",
                "]",
                ",",
                ":",
                "\n",
            ]
        ),
        st.sampled_from(['{"name": "a", "arguments": {}}', '"name": "a"', STOP, "é", "<tool_call>\n{"]),
        st.text(max_size=3),
    ),
    max_size=14,
).map("".join)


@given(text=soup, truncated=st.booleans())
@settings(max_examples=500, deadline=None)
def test_any_soup_of_tags_has_a_typed_reading(hermes, text, truncated):
    parsed = parse(hermes, text, truncated)
    assert (parsed.answer is None) == bool(parsed.observed)
    if parsed.answer is not None:
        assert "<tool_call>" not in parsed.answer and not truncated
    said = text.removesuffix(STOP).rpartition("</think>")[2] if "<tool_call>" not in text else text
    assert len(parsed.calls) <= said.count("<tool_call>")


def test_hostile_turns_are_read_in_linear_time(hermes):
    for piece in (
        '<tool_call>{\\"',
        "<tool_call>",
        "</tool_call>",
        "</think>",
        "<think>",
        '<tool_call>{"a":',
        "[",
        "<tool_call>{'",
    ):
        text = piece * (100_000 // len(piece))
        started = time.process_time()
        parse(hermes, text)
        assert time.process_time() - started < 3, piece


def test_every_failure_class_can_be_met(hermes):
    texts = [text for text, _ in OFF_FORMAT.values()] + ["", "<think>", "</tool_call>", block("{}")]
    met = {failure.kind for text in texts for failure in parse(hermes, text).failures}
    assert met | {FailureClass.TRUNCATED, FailureClass.TWO_ANSWERS} == set(FailureClass)
