"""What every chat format keeps; a new file of a format enrols itself."""

import subprocess
import sys

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from rlf.chat import FORMATS, detect_format
from rlf.chat.repair import read_stand_in
from rlf.core import RlfError
from rlf.types import Message, ParseFailure, ToolCall, ToolDescription

json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=12)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=8,
)
names = st.text(min_size=1, max_size=10).filter(str.strip)
calls = st.builds(ToolCall, names, st.dictionaries(st.text(max_size=8), json_values, max_size=4))
contents = st.text(max_size=30)


def stop_text(chat):
    return chat.decode(chat.stop_token_ids[:1])


def calls_of(chat):
    return calls if chat.family.CALLS is None else chat.family.CALLS


def write(chat, call):
    """The call as the format writes it; one that it refuses to write, rather than write it wrong, is no example."""
    try:
        return chat.write_call(call)
    except RlfError:
        reject()


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_a_written_call_reads_back_as_itself(any_format, data):
    written = data.draw(st.lists(calls_of(any_format), min_size=1, max_size=any_format.family.MAX_CALLS))
    text = "\n".join(write(any_format, call) for call in written) + stop_text(any_format)
    assert any_format.parse(text, truncated=False).items == tuple(written)


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_a_call_survives_the_way_through_tokens(any_format, data):
    call = data.draw(calls_of(any_format))
    text = write(any_format, call)
    tokens = any_format.tokenizer.encode(text, add_special_tokens=False)
    assert any_format.parse(any_format.decode(tokens), truncated=False).items == (call,)


@given(text=st.text(), truncated=st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_text_has_a_typed_reading(any_format, text, truncated):
    parsed = any_format.parse(text, truncated=truncated)
    assert (parsed.answer is None) == bool(parsed.observed)
    assert not (truncated and parsed.answer is not None)
    assert len(parsed.calls) + len(parsed.failures) == len(parsed.items)
    assert set(map(id, parsed.observed)) <= set(map(id, parsed.items))


def test_every_cut_of_a_turn_is_truncated_or_whole(any_format):
    call = any_format.family.CALL
    turn = any_format.family.SAY.format("I look it up.") + any_format.write_call(call)
    for length in range(len(turn)):
        parsed = any_format.parse(turn[:length], truncated=True)
        assert parsed.calls == () and parsed.answer is None
        assert [failure.structural for failure in parsed.failures] == [True]
    assert any_format.parse(turn, truncated=True).items == (call,)


@given(texts=st.lists(contents, min_size=1, max_size=3), results=st.lists(contents, min_size=1, max_size=3))
@settings(max_examples=30, deadline=None)
def test_observations_end_like_prompts_and_hold_no_stray_special_token(any_format, tools, texts, results):
    tokenizer = any_format.tokenizer
    markup = {index for index, token in tokenizer.added_tokens_decoder.items() if len(token.content) > 1}

    def skeleton(tokens):
        return [token for token in tokens if token in markup]

    messages = [Message("user", text) for text in texts]
    prompt = any_format.prompt(messages, tools)
    observation = any_format.observation(results, closed=True)
    assert skeleton(prompt) == skeleton(any_format.prompt([Message("user", "a")] * len(texts), tools))
    assert skeleton(observation) == skeleton(any_format.observation(["a"] * len(results), closed=True))
    speaks = any_format.prompt([Message("user", "a")], [])[-1:]
    after_result = speaks if any_format.family.SPEAKS else any_format.observation(["a"], closed=True)[-1:]
    assert prompt[-1:] == speaks and observation[-1:] == after_result
    decoded = any_format.decode(observation)
    assert all(any_format.family.SHOWN(result) in decoded for result in results)


def test_an_open_turn_is_closed_first(any_format):
    if any_format.stop_strings:
        # Such a turn goes on in the same text: no role changes hands.
        assert not set(any_format.observation(["a"], closed=False)) & set(any_format.stop_token_ids)
        return
    closed = any_format.observation(["a"], closed=True)
    assert any_format.observation(["a"], closed=False) == [any_format.stop_token_ids[0], *closed]
    assert any_format.stop_token_ids[0] != closed[0]


def test_its_own_template_is_detected(any_format):
    if any_format.by_name and any_format.matches(any_format.tokenizer.chat_template) is None:
        return
    name, reason = detect_format(any_format.tokenizer)
    assert isinstance(any_format, FORMATS.get(name))
    assert reason


def test_plain_text_is_the_answer(any_format):
    answer = any_format.family.ANSWER.format("  It is 42. \u4e2d\U0001f600\n")
    parsed = any_format.parse(answer + stop_text(any_format), truncated=False)
    assert (parsed.items, parsed.answer) == ((), "It is 42. \u4e2d\U0001f600")


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_an_empty_turn_is_a_failure(any_format, text):
    (failure,) = any_format.parse(text + stop_text(any_format), truncated=False).items
    assert isinstance(failure, ParseFailure) and failure.kind == "empty"


def test_importing_the_package_loads_no_heavy_library():
    code = "import rlf.chat, rlf.chat.formats.hermes, sys; assert not {'torch', 'transformers'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


OPEN_AFTER_QUESTIONS = "{%- if add_generation_prompt and messages[-1].role == 'user' %}{{- '<think>\\n' }}{%- endif %}"


@pytest.fixture(scope="session", params=[name for name in FORMATS.names() if FORMATS.get(name).thinks_in_tags])
def thinks_after_questions(request, make_format):
    """A format over its stand-in's template, which then opens thinking after what a user says and nothing else.

    A format that thinks without tags says so in each turn: no prompt can open it.
    """
    chat = make_format(request.param)
    return make_format(request.param, chat.tokenizer.chat_template + OPEN_AFTER_QUESTIONS)


def test_a_turn_is_read_as_what_stands_before_it_left_thinking(thinks_after_questions):
    chat, call = thinks_after_questions, thinks_after_questions.family.CALL
    question = chat.prompt([Message("user", "a")], chat.tools)
    contexts = [question, *(chat.observation(["a"], closed=closed) for closed in (True, False))]
    contexts += [[*question, *context] for context in contexts[1:]]
    for context in contexts:
        reader = chat.after(context)
        assert reader.begins_thinking == chat.decode(context).endswith("<think>\n")
        written = reader.write_call(call)
        assert reader.parse(written, truncated=False).calls == (() if reader.begins_thinking else (call,))
        assert reader.parse(f"so\n</think>\n\n{written}", truncated=False).calls == (call,)
        assert reader.parse(f"so {written}\n</think>\n\n{written}", truncated=False).calls == (call,)
    assert chat.after(question).begins_thinking


def test_no_data_opens_thinking(thinks_after_questions):
    chat = thinks_after_questions
    for closed in (True, False):
        hostile, harmless = (chat.observation([text], closed=closed) for text in ("<think>\n", "a"))
        assert chat.after(hostile).begins_thinking == chat.after(harmless).begins_thinking


def _fragments(chat):
    written = chat.write_call(chat.family.CALL)
    cuts = st.integers(0, len(written)).map(lambda cut: written[:cut])
    return st.lists(st.one_of(st.just(written), cuts, st.text(max_size=6)), max_size=6).map("".join)


@given(data=st.data(), truncated=st.booleans())
@settings(max_examples=25, deadline=None)
def test_nothing_in_thinking_that_never_ends_is_run(thinks_after_questions, data, truncated):
    chat = thinks_after_questions
    text = data.draw(_fragments(chat).filter(lambda text: "</think>" not in text))
    asked = chat.after(chat.prompt([Message("user", "a")], chat.tools))
    assert not asked.parse(text, truncated=truncated).calls
    parsed = asked.parse(f"<think>{text}", truncated=truncated)
    assert not parsed.calls and parsed.answer is None


def of_points(is_recursive):
    """A tool whose argument is a list of what `$defs` describes."""
    point = {"type": "object", "properties": {"longitude": {"type": "number"}}}
    if is_recursive:
        point["properties"]["next"] = {"$ref": "#/$defs/Point"}
    path = {"type": "array", "items": {"$ref": "#/$defs/Point"}}
    schema = {"type": "object", "properties": {"path": path}, "required": ["path"], "$defs": {"Point": point}}
    return ToolDescription("walk", "Walks.", schema)


@pytest.mark.parametrize("is_recursive", [False, True])
def test_the_prompt_of_every_format_with_schemas_shows_what_a_referenced_type_holds(any_format, is_recursive):
    try:
        chat = type(any_format)(any_format.tokenizer, (of_points(is_recursive),))
    except RlfError as refusal:
        assert "one tool with one required argument" in str(refusal)
        return
    prompt = chat.decode(chat.prompt([Message("user", "Where?")], (of_points(is_recursive),)))
    assert ("longitude" in prompt) == ('"path"' in prompt), "a format without schemas shows neither"


def test_a_template_that_writes_its_own_types_is_given_definitions_in_place_of_references(make_format):
    own = "{{ tool.function.parameters.properties | tojson }}"
    template = read_stand_in("gpt_oss").template.replace("{{ tool.function.parameters | tojson }}", own)
    chat = make_format("gpt_oss", template)
    prompt = chat.decode(chat.prompt([Message("user", "Where?")], (of_points(False),)))
    assert '"longitude": {"type": "number"}' in prompt
    assert "$ref" not in prompt
