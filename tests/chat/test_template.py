"""Prompts and observations are what the model's own template renders, with data kept data."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.chat import FORMATS, detect_format, encode_data, encode_template
from rlf.core import RlfError
from rlf.types import Message, ToolCall

USER = (Message("user", "How many live in Vell?"),)
TURNS = st.lists(st.tuples(st.text(max_size=20), st.lists(st.text(max_size=20), min_size=1, max_size=3)), max_size=3)


def build(make_tokenizer, template):
    return FORMATS.get("hermes")(make_tokenizer(template))


def rendered(chat, messages, tools=()):
    plain = [{"role": message.role, "content": message.content} for message in messages]
    shown = [tool.as_openai() for tool in tools] or None
    return chat.tokenizer.apply_chat_template(plain, tools=shown, add_generation_prompt=True, tokenize=False)


@pytest.mark.parametrize(
    "messages",
    [
        USER,
        (Message("system", "Be brief. <|im_end|>"), *USER),
        (Message("system", ""), Message("user", "")),
        (*USER, Message("assistant", "900"), Message("user", " And in Orr?\n")),
        (*USER, Message("system", "in the middle")),
    ],
)
def test_a_prompt_decodes_to_what_the_template_renders(hermes, tools, messages):
    for shown in ((), tools):
        assert hermes.decode(hermes.prompt(messages, shown)) == rendered(hermes, messages, shown)


def test_a_prompt_of_plain_words_has_the_tokens_of_its_pieces(hermes):
    head, tail = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
    tokenizer = hermes.tokenizer
    data = encode_data(tokenizer, USER[0].content)
    assert hermes.prompt(USER, ()) == [*encode_template(tokenizer, head), *data, *encode_template(tokenizer, tail)]


def test_the_users_markup_is_data_and_the_systems_is_not(hermes):
    stop = hermes.stop_token_ids[0]
    assert hermes.prompt([Message("user", "<|im_end|>")], ()).count(stop) == 1
    assert hermes.prompt([Message("system", "<|im_end|>"), *USER], ()).count(stop) == 3


def test_sentinel_text_in_data_is_data(hermes):
    messages = [Message("user", "@@rlf:1@@"), Message("assistant", "\v@@rlf:0@@"), Message("user", "@@rlf:turn@@")]
    assert hermes.decode(hermes.prompt(messages, ())) == rendered(hermes, messages)


def test_an_observation_has_the_layout_of_qwen3(hermes):
    assert hermes.decode(hermes.observation(["one", "two\n"], closed=True)) == (
        "\n<|im_start|>user\n<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@given(turns=TURNS, question=st.text(max_size=20))
@settings(max_examples=60, deadline=None)
def test_a_whole_trajectory_decodes_to_what_the_template_renders(hermes, tools, turns, question):
    conversation = [{"role": "user", "content": question}]
    tokens = hermes.prompt([Message("user", question)], tools)
    action_mask = [False] * len(tokens)
    num_sampled = 0
    for said, results in turns:
        calls = [ToolCall("search", {"query": result}) for result in results]
        text = "\n".join(([said] if said else []) + [hermes.write_call(call) for call in calls])
        sampled = [*encode_data(hermes.tokenizer, text), hermes.stop_token_ids[0]]
        before = list(tokens)
        tokens += sampled + (observation := hermes.observation(results, closed=True))
        action_mask += [True] * len(sampled) + [False] * len(observation)
        num_sampled += len(sampled)
        assert tokens[: len(before)] == before
        functions = [{"function": {"name": call.name, "arguments": call.arguments}} for call in calls]
        conversation.append({"role": "assistant", "content": said, "tool_calls": functions})
        conversation += [{"role": "tool", "content": result} for result in results]
    shown = [tool.as_openai() for tool in tools]
    expected = hermes.tokenizer.apply_chat_template(
        conversation, tools=shown, add_generation_prompt=True, tokenize=False
    )
    assert hermes.decode(tokens) == expected
    assert len(action_mask) == len(tokens) and sum(action_mask) == num_sampled


def test_the_generation_prompt_is_the_templates_own(make_tokenizer, template):
    mark = "{{- '<|im_start|>assistant\\n' }}"
    assert template.count(mark) == 1
    empty_block = build(make_tokenizer, template.replace(mark, mark + "{{- '<think>\\n\\n</think>\\n\\n' }}"))
    for tokens in (empty_block.prompt(USER, ()), empty_block.observation(["a"], closed=True)):
        assert empty_block.decode(tokens).endswith("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
    call = empty_block.write_call(ToolCall("a", {}))
    assert empty_block.parse(call, truncated=False).calls == (ToolCall("a", {}),)

    thinks = build(make_tokenizer, template.replace(mark, mark + "{{- '<think>\\n' }}"))
    assert thinks.decode(thinks.prompt(USER, ())).endswith("<think>\n")
    assert thinks.parse(call, truncated=False).calls == ()
    parsed = thinks.parse(f"so {call}</think>{call}", truncated=False)
    assert parsed.calls == (ToolCall("a", {}),) and parsed.thinking.startswith("so <tool_call>")


def test_a_template_that_strips_contents_strips_the_data_alike(make_tokenizer, template):
    chat = build(
        make_tokenizer,
        template.replace("message.role + '\\n' + message.content", "message.role + '\\n' + message.content | trim"),
    )
    messages = [Message("user", " \n a  <|im_end|>\n")]
    assert chat.decode(chat.prompt(messages, ())) == rendered(chat, messages)
    assert "user\na " in rendered(chat, messages)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("message.role + '\\n' + message.content", "message.role + '\\n'", "expected"),
        ("message.role + '\\n' + message.content", "message.role + '\\n' + message.content * 2", "expected"),
        ("message.role + '\\n' + message.content", "message.role + '\\n' + message.content.lstrip('\\n')", "expected"),
        ("(tool | tojson)", "''", "does not show the model the tools search, add"),
        ("{{- '<|im_start|>assistant\\n' }}", "", "generation prompt"),
        ("{%- for message in messages %}", "{{- raise_exception('no') }}{%- for message in messages %}", "no"),
        ("\\n<tool_response>\\n' + message.content", "\\n<tool_response>\\n'", "expected"),
        (
            "{{- '<|im_end|>\\n' }}\n    {%- endif %}\n{%- endfor",
            "{%- endif %}\n{%- endfor",
            "after an assistant's turn",
        ),
        ("<tool_call>", "<call>", "contradicts the model's chat template"),
        ("{%- set has", "{# <function= #}{%- set has", "contradicts the model's chat template"),
    ],
)
def test_a_template_that_breaks_the_format_is_refused(make_tokenizer, template, tools, old, new, fault):
    assert old in template

    def play():
        chat = build(make_tokenizer, template.replace(old, new))
        chat.prompt(USER, tools)
        chat.observation(["a"], closed=True)

    with pytest.raises(RlfError, match=fault):
        play()


def test_a_system_text_with_a_sentinel_is_refused(hermes):
    with pytest.raises(RlfError, match="each once"):
        hermes.prompt([Message("system", "@@rlf:1@@"), *USER], ())


def test_no_messages_are_refused(hermes):
    with pytest.raises(RlfError, match="cannot render"):
        hermes.prompt([], ())


def test_an_end_of_text_token_that_differs_stops_a_turn_too(make_tokenizer, template):
    tokenizer = make_tokenizer(template, eos="<|endoftext|>")
    chat = FORMATS.get("hermes")(tokenizer)
    assert chat.decode(chat.stop_token_ids) == "<|im_end|><|endoftext|>"
    assert chat.parse("42<|endoftext|>", truncated=False).answer == "42"


def test_a_tokenizer_without_the_end_of_turn_token_is_refused(template):
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    bare = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), chat_template=template)
    with pytest.raises(RlfError, match=r"no special token <\|im_end\|>"):
        FORMATS.get("hermes")(bare)


def test_detection_says_why_and_refuses_with_the_fix(make_tokenizer, template, monkeypatch):
    assert detect_format(make_tokenizer(template)) == (
        "hermes",
        "its chat template asks for calls as JSON with `arguments` in <tool_call> tags",
    )
    with pytest.raises(RlfError, match=r"no chat template .*chat_template\.jinja"):
        detect_format(make_tokenizer(None))
    with pytest.raises(RlfError, match=r"matches no known chat format; .*Name it, e\.g\. `chat: {format: "):
        detect_format(make_tokenizer("{{ messages }}"))
    monkeypatch.setattr(FORMATS, "names", lambda: ["hermes", "twin"])
    monkeypatch.setattr("rlf.chat.settings.are_own", lambda package: False)  # so nothing is remembered
    monkeypatch.setitem(FORMATS._loaded, "twin", FORMATS.get("hermes"))
    with pytest.raises(RlfError, match="expected exactly one of hermes, twin"):
        detect_format(make_tokenizer(template))


def test_the_template_for_tools_decides_among_several(make_tokenizer, template):
    tokenizer = make_tokenizer(None)
    tokenizer.chat_template = {"default": "{{ messages }}", "tool_use": template}
    assert detect_format(tokenizer)[0] == "hermes"
