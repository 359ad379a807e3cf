"""A task whose row names its tools: the model sees those alone, and calls of others are answered."""

import asyncio

from transformers import AutoTokenizer

from rlf.builtin.names import builtin_path
from rlf.chat import FORMATS
from rlf.rollout import Rollout, RolloutLimits, Setting, play
from rlf.rollout.scripted import ScriptedPolicy
from rlf.types import Message, Outcome, Sampling, Task, ToolDescription, ToolResult

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


class Tools:
    """Answers every call, and remembers it."""

    descriptions = (ToolDescription("look", "Looks.", SCHEMA), ToolDescription("search", "Searches.", SCHEMA))

    def __init__(self):
        self.called = []

    async def invoke(self, call, *, trajectory_id):
        self.called.append(call.name)
        return ToolResult(Outcome.OK, "found")

    async def end_trajectory(self, trajectory_id):
        """Holds nothing."""


def played(tools):
    tokenizer = AutoTokenizer.from_pretrained(builtin_path("tiny"))
    invoker = Tools()
    chat = FORMATS.get("hermes")(tokenizer, invoker.descriptions)
    calls = [
        f'<tool_call>\n{{"name": "{name}", "arguments": {{"query": "x"}}}}\n</tool_call><|im_end|>'
        for name in ("look", "search")
    ]
    policy = ScriptedPolicy(tokenizer, [*calls, "done<|im_end|>"])
    task = Task("t", (Message("user", "find x"),), tools=tools)
    setting = Setting(
        policy,
        chat,
        invoker,
        RolloutLimits(max_turns=4, max_total_tokens=2000),
        Sampling(stop_token_ids=chat.stop_token_ids),
    )
    trajectory = asyncio.run(play(Rollout("t", task, 0, 0), setting))
    prompt = chat.decode(trajectory.tokens[: trajectory.turns[0].start])
    return prompt, [record.result for turn in trajectory.turns for record in turn.calls], invoker.called


def test_without_names_every_tool_is_shown_and_may_be_called():
    prompt, results, called = played(None)
    assert "Tools: look, search<" in prompt
    assert [result.outcome for result in results] == [Outcome.OK, Outcome.OK] and called == ["look", "search"]


def test_a_tool_that_the_row_leaves_out_is_neither_shown_nor_run():
    prompt, results, called = played(("look",))
    assert "Tools: look<" in prompt
    assert [result.outcome for result in results] == [Outcome.OK, Outcome.UNKNOWN_TOOL] and called == ["look"]
    assert results[1].text == "no tool 'search' (known: look)"


def test_a_row_without_tools_has_none():
    prompt, results, called = played(())
    assert "look" not in prompt and called == []
    assert results[0].text == "no tool 'look' (known: none)"
