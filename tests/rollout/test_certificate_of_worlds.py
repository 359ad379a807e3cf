"""The certificate of a run whose world speaks: dialogues in every format, and templates that spoil them."""

import pytest

from rlf.chat import FORMATS
from rlf.chat.repair import stand_in
from rlf.core import RlfError
from rlf.rollout.certificate import SPEAKS, certify
from rlf.types import ToolDescription

from .conftest import TEMPLATE, TOOLS

ONE_TOOL = (
    ToolDescription(
        "search",
        "Find a passage.",
        {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    ),
)


def test_a_dialogue_is_certified(chat):
    certificate = certify(chat, "hermes", TOOLS, speaks=True)
    assert SPEAKS in certificate.checks and not certificate.differences
    assert certificate.num_turns > certify(chat, "hermes", TOOLS).num_turns


@pytest.mark.parametrize("name", FORMATS.names())
def test_every_format_carries_a_dialogue(name):
    chat = stand_in(name, ONE_TOOL)
    assert SPEAKS in certify(chat, name, ONE_TOOL, speaks=True).checks


def test_a_template_that_changes_what_the_user_says_later_fails(make_chat):
    before, after = (
        "message.role + '\\n' + message.content",
        "message.role + '\\n' + (message.content if loop.first else message.content | upper)",
    )
    assert before in TEMPLATE
    with pytest.raises(RlfError):
        certify(make_chat(TEMPLATE.replace(before, after)), "hermes", TOOLS, speaks=True)
