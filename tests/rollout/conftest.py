"""The Hermes format over a small tokenizer, and a way to play scripted turns through the real loop."""

import asyncio

import pytest

from rlf.chat import FORMATS
from rlf.chat.repair import read_stand_in
from rlf.rollout import Rollout, RolloutLimits, Setting, play
from rlf.rollout.rollout import ChatPolicy
from rlf.rollout.scripted import ScriptedPolicy
from rlf.types import Message, Outcome, Sampling, Task, ToolDescription, ToolResult

from ..chat.tokenizers import byte_level

TEMPLATE = read_stand_in("hermes").template
MARKUP = [
    *("<|endoftext|>", "<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>"),
    *("<tool_response>", "</tool_response>", "<think>", "</think>"),
]
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOLS = (ToolDescription("search", "Find a passage.", SCHEMA), ToolDescription("now", "The time.", {"type": "object"}))


class Echo:
    """A tool that says what it was asked."""

    descriptions = TOOLS

    async def invoke(self, call, *, trajectory_id):
        return ToolResult(Outcome.OK, f"{call.name}: {dict(call.arguments)}")

    async def end_trajectory(self, trajectory_id):
        """Holds nothing."""


@pytest.fixture(scope="session")
def make_chat():
    return lambda template=TEMPLATE: FORMATS.get("hermes")(byte_level(MARKUP, template), TOOLS)


@pytest.fixture(scope="session")
def chat(make_chat):
    return make_chat()


@pytest.fixture
def played(chat):
    """Plays turns and returns the trajectory with the policy."""

    def run(*script, handling=None, tools=None, **limits):
        handling = handling or ChatPolicy()
        policy = ScriptedPolicy(chat.tokenizer, script)
        ends = chat.call_ends if handling.stop_after_call else ()
        sampling = Sampling(stop_token_ids=chat.stop_token_ids, stop_strings=ends)
        setting = Setting(
            policy,
            chat,
            tools or Echo(),
            RolloutLimits(**{"max_turns": 6, "max_total_tokens": 9999} | limits),
            sampling,
            handling,
        )
        rollout = Rollout("t", Task("t", (Message("user", "Where?"),)), 0, seed=0)
        return asyncio.run(play(rollout, setting)), policy

    return run
