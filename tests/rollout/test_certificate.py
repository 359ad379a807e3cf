"""The certificate holds for a sound template and falls for each of many ways to spoil one."""

import copy
import importlib
import importlib.util
import re
from importlib.resources import files

import pytest

from rlf.chat import FORMATS
from rlf.chat.history import BREAKS_LINES, DROPS_THINKING, REWRITES
from rlf.chat.repair import stand_in
from rlf.chat.settings import HistoryPolicy
from rlf.core import CheckError, RlfError
from rlf.rollout.certificate import CHECKS, certify
from rlf.types import ToolCall

from .conftest import TEMPLATE, TOOLS

DROPPING = (
    "message.content",
    "(message.content.split('</think>')[-1].lstrip('\\n') if message.role == 'assistant' and not loop.last"
    " else message.content)",
)
MUTATIONS = {
    "a result is cut": ("message.content + '\\n</tool_resp", "message.content[:500] + '\\n</tool_resp"),
    "a result is changed": ("message.content + '\\n</tool_resp", "message.content | upper + '\\n</tool_resp"),
    "a result is left out": ("'\\n<tool_response>\\n' + message.content", "'\\n<tool_response>\\n'"),
    "an empty result is left out": (
        "{{- '\\n<tool_response>\\n'",
        "{{- '' if not message.content else '\\n<tool_response>\\n'",
    ),
    "marks in results are rewritten": (
        "message.content + '\\n</tool_resp",
        "message.content.replace('<|im_start|>', '') + '\\n</tool_resp",
    ),
    "the second turn is rendered in another way": (
        "{{- '<|im_start|>' + message.role",
        "{{- ('' if loop.index < 4 else ' ') + '<|im_start|>' + message.role",
    ),
    "turns are closed by another token": ("<|im_end|>", "<|endoftext|>"),
    "there is no generation prompt": ("{%- if add_generation_prompt %}", "{%- if false %}"),
    "the generation prompt is another role's": ("{{- '<|im_start|>assistant\\n' }}", "{{- '<|im_start|>model\\n' }}"),
    "tools are not told": ("(tool | tojson)", "''"),
    "one tool is told": ("for tool in tools", "for tool in tools[:1]"),
    "special tokens of the question are dropped": (
        "message.role + '\\n' + message.content",
        "message.role + '\\n' + message.content.replace('<|im_end|>', '')",
    ),
    "the last turn is not closed": ("{%- else %}\n        {{-", "{%- elif loop.index < 5 %}\n        {{-"),
}


def mutated(name):
    before, after = MUTATIONS[name]
    assert before in TEMPLATE, f"{name}: the template has no {before!r}"
    return TEMPLATE.replace(before, after)


def test_a_sound_template_is_certified(chat):
    certificate = certify(chat, "hermes", TOOLS, history=HistoryPolicy.REFUSE)
    assert certificate.checks == CHECKS and not certificate.differences
    assert certificate.has_thinking and certificate.has_parallel_calls
    assert 0 < certificate.num_sampled < certificate.num_tokens


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutated_template_fails(make_chat, name):
    with pytest.raises(RlfError) as caught:
        certify(make_chat(mutated(name)), "hermes", TOOLS)
    assert len(str(caught.value).split()) > 6, "it names what differs"


def test_a_template_that_drops_thinking_is_kept_with_a_notice_or_refused(make_chat):
    assert DROPPING[0] in TEMPLATE
    role, content = "message.role + '\\n' + message.content", DROPPING[1]
    chat = make_chat(TEMPLATE.replace(role, f"message.role + '\\n' + {content}"))
    assert certify(chat, "hermes", TOOLS, history=HistoryPolicy.KEEP).differences == (DROPS_THINKING,)
    with pytest.raises(CheckError, match=r"chat\.history: refuse: .*thinking of earlier turns"):
        certify(chat, "hermes", TOOLS, history=HistoryPolicy.REFUSE)


def test_a_template_that_rewrites_calls_is_kept_with_a_notice_or_refused(make_chat):
    content = "message.role + '\\n' + message.content"
    assert content in TEMPLATE
    spoken = "(message.content.split('<tool_call>')[0] if message.role == 'assistant' else message.content)"
    rewriting = TEMPLATE.replace(content, f"message.role + '\\n' + {spoken}")
    chat = make_chat(rewriting.replace("message.tool_calls or []", "[]"))
    assert certify(chat, "hermes", TOOLS).differences == (REWRITES,)
    with pytest.raises(CheckError, match="refuse"):
        certify(chat, "hermes", TOOLS, history=HistoryPolicy.REFUSE)


def test_a_template_that_breaks_lines_of_history_in_another_way_is_kept_with_a_notice_or_refused(make_chat):
    closing = "message.content + '\\n</tool_response>'"
    assert closing in TEMPLATE
    chat = make_chat(TEMPLATE.replace(closing, f"{closing} + ('' if loop.last else '\\n')"))
    assert certify(chat, "hermes", TOOLS).differences == (BREAKS_LINES,)
    with pytest.raises(CheckError, match="refuse"):
        certify(chat, "hermes", TOOLS, history=HistoryPolicy.REFUSE)


def test_a_template_that_names_the_tool_of_a_result_is_given_the_name(make_chat):
    result = "'\\n<tool_response>\\n' + message.content"
    assert result in TEMPLATE
    naming = TEMPLATE.replace(result, "'\\n<tool_response>\\n' + message.name + ': ' + message.content")
    chat = make_chat(naming)
    assert certify(chat, "hermes", TOOLS, history=HistoryPolicy.REFUSE).checks == CHECKS
    turn = chat.write_calls([ToolCall("search", {}), ToolCall("now", {})]) + "<tool_call>{</tool_call>"
    shown = chat.decode(chat.observation(["a", "b", "c"], closed=True, turn=turn))
    assert [line for line in shown.split("\n") if ": " in line] == ["search: a", "now: b", "unknown: c"]


def _real_templates():
    folder = importlib.util.find_spec("trl")
    if folder is None:
        return []
    found = sorted(files("trl").joinpath("chat_templates").iterdir(), key=lambda file: file.name)
    return [file for file in found if file.name.endswith(".jinja")]


def _families(template):
    return [name for name in FORMATS.names() if FORMATS.get(name).matches(template) is not None]


@pytest.mark.skipif(not _real_templates(), reason="TRL's chat templates are not here: pip install --no-deps trl")
def test_every_template_of_a_supported_family_that_trl_ships_is_certified():
    families = [(file.read_text(), found) for file in _real_templates() if (found := _families(file.read_text()))]
    assert all(len(found) == 1 for _, found in families) and len(families) > 30
    for template, (name,) in families:
        tokenizer = copy.deepcopy(stand_in(name, TOOLS).tokenizer)
        tokenizer.chat_template = template
        tokenizer.add_special_tokens({"additional_special_tokens": sorted(set(re.findall(r"<\|\w+\|>", template)))})
        assert certify(FORMATS.get(name)(tokenizer, TOOLS), name, TOOLS).num_sampled > 0


def test_without_tools_and_with_a_system_message_it_holds_too(chat):
    assert certify(chat, "hermes", ()).has_parallel_calls is False
    assert certify(chat, "hermes", TOOLS, system="Be brief.").checks == CHECKS


def test_a_mask_that_is_wrong_by_one_token_fails(chat, monkeypatch):
    from rlf.rollout import rollout as builder

    def act(self, tokens, logprobs):
        self.tokens += tokens
        self.action_mask += [True] * (len(tokens) - 1) + [False]
        self.rollout_logprobs += logprobs

    monkeypatch.setattr(builder.TokenRecord, "act", act)
    with pytest.raises(CheckError, match=r"action_mask\[\d+\] is False; expected True"):
        certify(chat, "hermes", TOOLS)


def test_an_observation_with_data_as_special_tokens_fails(chat, monkeypatch):
    from rlf.chat import template
    from rlf.chat.encoding import encode_template

    monkeypatch.setattr(template, "encode_data", encode_template)
    with pytest.raises(CheckError, match="special tokens"):
        certify(chat, "hermes", TOOLS)


def test_a_certificate_is_of_the_files_beside_its_format_too(tmp_path, monkeypatch):
    from rlf.runs import opening

    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_format.py").write_text(
        "from rlf.chat.formats.hermes import HermesFormat\nclass Own(HermesFormat): ..."
    )
    of_file = opening._code_hash.__wrapped__
    own = importlib.import_module("own_format").Own
    before = of_file(own)
    assert before == of_file(own)
    (tmp_path / "beside.py").write_text("")
    assert before != of_file(own)
