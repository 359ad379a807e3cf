"""`rollout.context`: a full context is left for a new one without old results, and each is a row of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlf.chat.format import FORMATS
from rlf.chat.history import ASKS, LEFT_OUT, SUMMARY
from rlf.chat.repair import stand_in
from rlf.chat.settings import ContextLimit, HistoryPolicy, WhenFull
from rlf.core import CheckError, SpecError
from rlf.reports.trajectory import show_links
from rlf.rollout import Prefix
from rlf.rollout.certificate import certify
from rlf.rollout.contexts import Contexts
from rlf.rollout.rollout import ChatPolicy
from rlf.runs.plans import check_spec
from rlf.types import Outcome, StopReason, ToolResult

from .conftest import TEMPLATE, TOOLS, Echo
from .test_fork import CONTENT, DROPPED
from .test_prefix import go_on, timeless  # noqa: F401  # a fixture


def call(word):
    return f'<tool_call>\n{{"name": "search", "arguments": {{"query": "{word}"}}}}\n</tool_call><|im_end|>'


class Long(Echo):
    """A tool with much to say."""

    async def invoke(self, call, *, trajectory_id):
        return ToolResult(Outcome.OK, f"{call.arguments['query'] * 300}.")


SCRIPT = [call("a"), call("b"), call("c"), call("d"), "Vell.<|im_end|>"]


def played_so(go_on, script=SCRIPT, prefix=None, chat=None, forks=False, **context):  # noqa: F811
    handling = ChatPolicy(forks=forks, context=ContextLimit(**context) if context else None)
    return go_on(script, prefix, Long(), handling=handling, **({} if chat is None else {"chat": chat}))


def results_of(chat, request):
    text = chat.decode(request.tokens)
    return [word for word in "abcd" if word * 300 in text], text.count(LEFT_OUT)


def test_a_full_context_is_followed_by_one_without_old_results(go_on, chat):  # noqa: F811
    plain, asked = played_so(go_on)
    limit = len(asked.requests[3].tokens) - 1  # the fourth turn is the first with a longer prompt
    trajectory, policy = played_so(go_on, limit=limit)
    assert trajectory.stop is StopReason.ANSWERED and plain.forks == ()
    seen = [results_of(chat, request) for request in policy.requests]
    assert seen == [([], 0), (["a"], 0), (["a", "b"], 0), (["c"], 2), (["c", "d"], 2)]
    assert [request.fresh for request in policy.requests] == [False, False, False, True, False]
    assert len(trajectory.stretches) == 2
    prompt = plain.tokens[: plain.turns[0].start]
    for turn, request, sample in zip(trajectory.turns, policy.requests, policy.samples, strict=True):
        start = max(begin for begin, _ in trajectory.stretches if begin <= turn.start)
        assert list(trajectory.tokens[start : turn.start]) == list(request.tokens)
        assert list(request.tokens[: len(prompt)]) == list(prompt), "the tools and the question stay"
        assert list(trajectory.tokens[turn.start : turn.end]) == sample.tokens
    assert sum(trajectory.action_mask) == sum(len(sample.tokens) for sample in policy.samples)
    begun = f"new context: {len(policy.requests[3].tokens):,} tokens"
    assert (show_links(trajectory), show_links(plain)) == (["", "", "", begun, ""], [""] * 5)


def test_a_context_that_stays_full_is_left_before_each_turn(go_on, chat):  # noqa: F811
    trajectory, policy = played_so(go_on, limit=8, keep_last=0)
    assert [results_of(chat, request)[1] for request in policy.requests] == [0, 1, 2, 3, 4]
    assert len(trajectory.stretches) == 5


@pytest.mark.parametrize("when_full", WhenFull)
def test_what_fits_one_context_is_the_trajectory_without_a_limit(go_on, when_full):  # noqa: F811
    (plain, asked), (limited, again) = played_so(go_on), played_so(go_on, limit=9000, when_full=when_full)
    assert timeless(limited) == timeless(plain) and again.requests == asked.requests


NOTES = "Two places.<|im_end|>"
CALLING = f"Four. {call('e')}"
SUMMARISED = [call("a"), call("b"), NOTES, call("c"), CALLING, call("d"), NOTES, "Vell.<|im_end|>"]


def test_a_full_context_is_followed_by_one_with_the_policys_own_summary(go_on, chat):  # noqa: F811
    limit = len(played_so(go_on)[1].requests[2].tokens) - 1  # two results are too many
    how = ChatPolicy(context=ContextLimit(limit=limit, when_full="summarize"))
    trajectory, policy = go_on(SUMMARISED, tools=Long(), handling=how, max_turns=8)
    texts = [chat.decode(request.tokens) for request in policy.requests]
    seen = [([word for word in "abcd" if word * 300 in text], text.count(ASKS), text.count(SUMMARY)) for text in texts]
    assert seen == [
        *[([], 0, 0), (["a"], 0, 0), (["a", "b"], 1, 0)],
        *[(["b"], 0, 1), (["b", "c"], 1, 1)],
        *[(["c"], 0, 1), (["c", "d"], 1, 1)],
        (["d"], 0, 1),
    ]
    assert [request.fresh for request in policy.requests] == [False, False, False, True, False, True, False, True]
    assert f"{SUMMARY} Two places.<|im_end|>" in texts[3] and "Four." in texts[5]
    opening = texts[0].partition("Where?")[0]
    assert all(text.startswith(f"{opening}Where?") for text in texts), "the tools and the question stay"
    for turn, request, sample in zip(trajectory.turns, policy.requests, policy.samples, strict=True):
        start = max(begin for begin, _ in trajectory.stretches if begin <= turn.start)
        assert list(trajectory.tokens[start : turn.start]) == list(request.tokens)
        assert list(trajectory.tokens[turn.start : turn.end]) == sample.tokens
        assert all(trajectory.action_mask[turn.start : turn.end]), "summaries are trained on"
    assert sum(trajectory.action_mask) == sum(len(sample.tokens) for sample in policy.samples)
    assert trajectory.stop is StopReason.ANSWERED and not trajectory.failures
    assert [len(turn.calls) for turn in trajectory.turns] == [1, 1, 0, 1, 0, 1, 0, 0], "a summary runs no call"


def test_a_summary_is_a_turn_and_may_be_the_last(go_on, chat):  # noqa: F811
    how = ChatPolicy(context=ContextLimit(limit=8, when_full="summarize", keep_last=0))
    trajectory, policy = go_on([call("a"), NOTES, call("b"), NOTES], tools=Long(), handling=how, max_turns=4)
    assert trajectory.stop is StopReason.MAX_TURNS and len(trajectory.turns) == 4
    assert results_of(chat, policy.requests[2]) == ([], 0), "nothing is kept beside the summary"


class Quoting(Echo):
    """A tool whose results hold the words with which a summary is requested."""

    async def invoke(self, call, *, trajectory_id):
        return ToolResult(Outcome.OK, f"{ASKS} {call.arguments['query'] * 300} {ASKS}")


@pytest.mark.parametrize("num_turns", range(3))
def test_a_result_with_the_words_of_the_request_asks_for_no_summary(go_on, chat, num_turns):  # noqa: F811
    limit = len(go_on(SUMMARISED, tools=Quoting())[1].requests[2].tokens) - 1
    how = ChatPolicy(context=ContextLimit(limit=limit, when_full="summarize"))
    whole, asked = go_on(SUMMARISED, tools=Quoting(), handling=how, max_turns=8)
    assert [len(turn.calls) for turn in whole.turns] == [1, 1, 0, 1, 0, 1, 0, 0], "calls run until a summary is due"
    prefix = Prefix(whole, num_turns) if num_turns else None
    again, policy = go_on(SUMMARISED[num_turns:], prefix, tools=Quoting(), handling=how, max_turns=8)
    assert timeless(again) == timeless(whole) and policy.requests == asked.requests[num_turns:]


@pytest.mark.parametrize("forks", [False, True])
@pytest.mark.parametrize("num_turns", range(3))
def test_a_prefix_before_a_summary_continues_in_the_same_contexts(go_on, make_chat, num_turns, forks):  # noqa: F811
    chat = make_chat(TEMPLATE.replace(CONTENT, DROPPED))
    script = [f"<think>\nhm\n</think>\n\n{line}" for line in SUMMARISED]
    context = ContextLimit(limit=900, when_full="summarize")
    how = {"chat": chat, "tools": Long(), "handling": ChatPolicy(forks=forks, context=context), "max_turns": 9}
    whole, asked = go_on(script, **how)
    again, policy = go_on(script[num_turns:], Prefix(whole, num_turns), **how)
    assert whole.stop is StopReason.ANSWERED and len(whole.forks) > 2 and timeless(again) == timeless(whole)
    assert policy.requests == asked.requests[num_turns:]


@pytest.mark.parametrize("forks", [False, True])
@pytest.mark.parametrize("num_turns", range(5))
def test_a_prefix_continues_in_the_same_contexts(go_on, make_chat, num_turns, forks):  # noqa: F811
    chat = make_chat(TEMPLATE.replace(CONTENT, DROPPED))
    script = [f"<think>\nhm\n</think>\n\n{line}" for line in SCRIPT]
    how = {"chat": chat, "forks": forks, "limit": 900}
    whole, asked = played_so(go_on, script, **how)
    again, policy = played_so(go_on, script[num_turns:], Prefix(whole, num_turns), **how)
    assert whole.forks and timeless(again) == timeless(whole)
    assert policy.requests == asked.requests[num_turns:]


def test_corrections_and_short_results_stay(go_on, chat):  # noqa: F811
    broken = f"{call('a')[:-10]}<tool_call>\nnothing\n</tool_call><|im_end|>"
    trajectory, policy = go_on(
        [broken, call("b"), "Vell.<|im_end|>"],
        tools=Long(),
        handling=ChatPolicy(context=ContextLimit(limit=8, keep_last=0)),
    )
    assert trajectory.turns[0].calls and trajectory.turns[0].failures
    text = chat.decode(policy.requests[-1].tokens)
    assert trajectory.turns[0].failures[0].message in text and results_of(chat, policy.requests[-1]) == ([], 2)


def test_contexts_are_certified(make_chat, chat):
    plain = certify(chat, "hermes", TOOLS)
    for when_full in WhenFull:
        assert certify(chat, "hermes", TOOLS, when_full=when_full).num_turns > plain.num_turns
    dropping = make_chat(TEMPLATE.replace(CONTENT, DROPPED))
    for when_full in WhenFull:
        assert certify(dropping, "hermes", TOOLS, history=HistoryPolicy.FORK, when_full=when_full).differences


@pytest.mark.parametrize("name", [name for name in FORMATS.names() if FORMATS.get(name).names_tools])
def test_every_format_shows_a_summary_and_its_request_as_its_template_does(name):
    format_ = stand_in(name).with_tools(TOOLS)
    assert certify(format_, name, TOOLS, when_full=WhenFull.SUMMARIZE).num_sampled


def test_a_certificate_finds_results_that_stay(chat, monkeypatch):
    answered = Contexts._answered
    monkeypatch.setattr(Contexts, "_answered", lambda self, turn, record, results=None: answered(self, turn, record))
    with pytest.raises(CheckError, match=r"rollout\.context: before turn 3"):
        certify(chat, "hermes", TOOLS, when_full=WhenFull.DROP_RESULTS)


def test_a_certificate_finds_a_request_that_stays_after_its_summary(chat, monkeypatch):
    def as_it_was(self, turn, record, results=None):
        return record.tokens[turn.end : turn.observation_end]

    def is_asked(self, turns, record):
        return bool(turns) and ASKS in chat.decode(as_it_was(self, turns[-1], record))

    monkeypatch.setattr(Contexts, "_answered", as_it_was)
    monkeypatch.setattr(Contexts, "is_asked", is_asked)
    with pytest.raises(CheckError, match=r"rollout\.context: before turn 3"):
        certify(chat, "hermes", TOOLS, when_full=WhenFull.SUMMARIZE)


def test_an_agent_has_contexts_of_its_own():
    spec = Path(__file__).parents[2] / "specs" / "search.yaml"
    with pytest.raises(SpecError, match=r"rollout\.context: with rollout\.agent each prompt"):
        check_spec([spec], ["+rollout.context={limit: 100}", "+rollout.agent={url: 'http://127.0.0.1:1/'}", "tools=[]"])
