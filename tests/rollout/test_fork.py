"""`chat.history: fork`: contexts are what the template shows, without a token that was not there before."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from rlf.chat.settings import HistoryPolicy
from rlf.core import CheckError
from rlf.rollout import Rollout, RolloutLimits, Setting, play
from rlf.rollout.certificate import certify
from rlf.rollout.contexts import without_thinking
from rlf.rollout.rollout import ChatPolicy
from rlf.rollout.scripted import ScriptedPolicy
from rlf.types import Message, Sampling, StopReason, Task

from .conftest import TEMPLATE, TOOLS, Echo

CONTENT = "message.role + '\\n' + message.content"
DROPPED = (
    "message.role + '\\n' + (message.content.split('</think>')[-1].lstrip('\\n')"
    " if message.role == 'assistant' and not loop.last else message.content)"
)
CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "x"}}\n</tool_call>'


@pytest.fixture(scope="module")
def dropping(make_chat):
    """A format whose template drops the thinking of every turn but the last."""
    assert CONTENT in TEMPLATE
    return make_chat(TEMPLATE.replace(CONTENT, DROPPED))


def played(chat, *script, **limits):
    policy = ScriptedPolicy(chat.tokenizer, [f"{line}<|im_end|>" for line in script])
    setting = Setting(
        policy,
        chat,
        Echo(),
        RolloutLimits(**({"max_turns": 6, "max_total_tokens": 9999} | limits)),
        Sampling(stop_token_ids=chat.stop_token_ids),
        ChatPolicy(forks=True),
    )
    rollout = Rollout("t", Task("t", (Message("user", "Where?"),)), 0, seed=0)
    return asyncio.run(play(rollout, setting)), policy


def test_a_template_that_drops_thinking_is_certified_with_forks(dropping):
    kept = certify(dropping, "hermes", TOOLS, history=HistoryPolicy.KEEP)
    forked = certify(dropping, "hermes", TOOLS, history=HistoryPolicy.FORK)
    assert forked.differences == kept.differences
    assert forked.num_turns > kept.num_turns, "the conversation was played with forks too"


def test_a_template_that_rewrites_more_than_thinking_cannot_be_followed(make_chat):
    spoken = "(message.content.split('<tool_call>')[0] if message.role == 'assistant' else message.content)"
    chat = make_chat(
        TEMPLATE.replace(CONTENT, f"message.role + '\\n' + {spoken}").replace("message.tool_calls or []", "[]")
    )
    with pytest.raises(CheckError, match="only dropped thinking can be followed"):
        certify(chat, "hermes", TOOLS, history=HistoryPolicy.FORK)


def test_each_turn_after_thinking_begins_a_stretch_without_it(dropping):
    thought = "<think>\nhm, río\n</think>\n\n"
    trajectory, policy = played(dropping, thought + CALL, thought + CALL, "Vell.")
    assert trajectory.stop is StopReason.ANSWERED and trajectory.answer == "Vell."
    assert len(trajectory.forks) == 2
    assert [request.fresh for request in policy.requests] == [False, True, True]
    contexts = [dropping.decode(request.tokens) for request in policy.requests]
    assert ["hm, río" in context for context in contexts] == [False, False, False]
    assert [context.count(CALL) for context in contexts] == [0, 1, 2]


def test_every_stretch_is_its_context_and_what_was_sampled_there(dropping):
    thought = "<think>\nhm\n</think>\n\n"
    trajectory, policy = played(dropping, thought + CALL, CALL, thought + CALL, "Vell.")
    # The second turn thinks not, so that the third goes on in its stretch; so three stretches for four turns.
    assert len(trajectory.stretches) == 3
    assert [end - start for start, end in trajectory.stretches] == [
        end - start for start, end in pairwise((0, *trajectory.forks, len(trajectory.tokens)))
    ]
    for turn, request, sample in zip(trajectory.turns, policy.requests, policy.samples, strict=True):
        start = max(begin for begin, _ in trajectory.stretches if begin <= turn.start)
        assert list(trajectory.tokens[start : turn.start]) == list(request.tokens)
        assert list(trajectory.tokens[turn.start : turn.end]) == sample.tokens
    assert sum(trajectory.action_mask) == sum(len(sample.tokens) for sample in policy.samples)
    assert all(
        trajectory.action_mask[at] == any(turn.start <= at < turn.end for turn in trajectory.turns)
        for at in range(len(trajectory.tokens))
    )


def test_no_token_of_a_context_is_new(dropping):
    thought = "<think>\nhm\n</think>\n\n"
    _, policy = played(dropping, thought + CALL, thought + "Vell.")
    first, second = policy.requests
    before = iter([*first.tokens, *policy.samples[0].tokens])
    shared = [token for token in second.tokens[: len(first.tokens) + 5] if token in before]
    assert shared == list(second.tokens[: len(first.tokens) + 5])


def test_without_thinking_nothing_forks(dropping):
    trajectory, policy = played(dropping, CALL, "Vell.")
    assert trajectory.forks == () and len(trajectory.stretches) == 1
    assert list(policy.requests[1].tokens) == list(trajectory.tokens[: trajectory.turns[1].start])


def test_thinking_that_never_ends_stays(dropping):
    encode = dropping.tokenizer.encode
    prompt, turn, observation = encode("p"), encode("<think>\nhm"), encode("o")
    assert without_thinking(dropping, prompt, [(turn, observation)]) == prompt + turn + observation


def test_the_budget_is_that_of_a_stretch(dropping):
    thought = "<think>\n" + "hm " * 40 + "\n</think>\n\n"
    whole, _ = played(dropping, thought + CALL, thought + CALL, "Vell.")
    longest = max(end - start for start, end in whole.stretches)
    assert longest < len(whole.tokens)
    again, _ = played(dropping, thought + CALL, thought + CALL, "Vell.", max_total_tokens=longest + 1)
    assert again.stop is StopReason.ANSWERED
