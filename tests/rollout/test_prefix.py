"""Trajectories that go on from a prefix of another: kept as it is, trained on or masked, with tools in their state."""

import asyncio
from dataclasses import replace

import pytest

from rlf.rollout import Prefix, Rollout, RolloutLimits, Setting, play
from rlf.rollout.collect import wait_share
from rlf.rollout.rollout import ChatPolicy
from rlf.rollout.scripted import ScriptedPolicy
from rlf.training.counting import find_cause
from rlf.types import Message, Outcome, Sampling, Scored, StopReason, Task, ToolResult
from rlf.types.score import costs_by_name
from rlf.types.trajectory import MissingRewardCause

from .conftest import TEMPLATE, TOOLS, Echo
from .test_fork import CONTENT, DROPPED

STOP = "<|im_end|>"
CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "QUERY"}}\n</tool_call>' + STOP
THOUGHT = "<think>\nhm\n</think>\n\n"
SCRIPT = [CALL.replace("QUERY", "a"), "<tool_call>\n{" + STOP, THOUGHT + CALL.replace("QUERY", "b"), f"Vell.{STOP}"]


class Counter(Echo):
    """A tool with state: it says how many calls a trajectory has made."""

    def __init__(self):
        self.calls = {}

    async def invoke(self, call, *, trajectory_id):
        self.calls.setdefault(trajectory_id, []).append(call)
        text = f"call {len(self.calls[trajectory_id])}"
        return ToolResult(Outcome.OK, text, usage={"cost_usd": 1.0})


@pytest.fixture
def go_on(chat):
    """Plays the rest of a script, from a prefix or from the task."""

    def run(script, prefix=None, tools=None, chat=chat, handling=None, *, is_single_turn=False, **limits):
        policy = ScriptedPolicy(chat.tokenizer, script)
        setting = Setting(
            policy,
            chat,
            tools or Counter(),
            RolloutLimits(**({"max_turns": 6, "max_total_tokens": 9999, "max_parse_failures": 3} | limits)),
            Sampling(stop_token_ids=chat.stop_token_ids),
            handling or ChatPolicy(),
        )
        rollout = Rollout(
            "t", Task("t", (Message("user", "Where?"),)), 0, seed=0, prefix=prefix, is_single_turn=is_single_turn
        )
        return asyncio.run(play(rollout, setting)), policy

    return run


def timeless(trajectory):
    """The trajectory without what measures time, and without its origin."""
    turns = tuple(replace(turn, sample_s=0.0, tools_s=0.0) for turn in trajectory.turns)
    return replace(trajectory, turns=turns, duration_s=0.0, num_prefix_turns=0, prefix_of="")


@pytest.mark.parametrize("num_turns", range(4))
@pytest.mark.parametrize("replays_calls", [True, False])
def test_what_goes_on_as_before_is_the_trajectory_itself(go_on, num_turns, replays_calls):
    whole, asked = go_on(SCRIPT)
    tools = Counter()
    if not replays_calls:
        tools.calls["t"] = [record.call for turn in whole.turns[:num_turns] for record in turn.calls]
    prefix = Prefix(whole, num_turns, replays_calls=replays_calls)
    again, policy = go_on(SCRIPT[num_turns:], prefix, tools)
    assert timeless(again) == timeless(whole)
    assert again.num_prefix_turns == num_turns
    assert again.turns[:num_turns] == whole.turns[:num_turns], "kept with their times"
    assert [replace(r, tokens=()) for r in policy.requests] == [
        replace(r, tokens=()) for r in asked.requests[num_turns:]
    ], "the n-th sampled token keeps its number"


@pytest.mark.parametrize("num_turns", range(4))
def test_forks_of_a_prefix_are_kept(go_on, make_chat, num_turns):
    chat = make_chat(TEMPLATE.replace(CONTENT, DROPPED))
    script = [THOUGHT + line for line in SCRIPT]
    forks = ChatPolicy(forks=True)
    whole, asked = go_on(script, chat=chat, handling=forks)
    again, policy = go_on(script[num_turns:], Prefix(whole, num_turns), chat=chat, handling=forks)
    assert len(whole.forks) == 3 and timeless(again) == timeless(whole)
    assert policy.requests == asked.requests[num_turns:]


def test_a_trajectory_that_is_cancelled_leaves_something_only_after_a_turn_of_its_own(go_on, chat):
    whole, _ = go_on(SCRIPT)

    class Hanging(ScriptedPolicy):
        async def sample(self, request):
            if self.is_done():
                await asyncio.Event().wait()
            return await super().sample(request)

        def is_done(self):
            return len(self.requests) == num_turns

    async def left(prefix):
        found, policy = [], Hanging(chat.tokenizer, SCRIPT[:1])
        sampling = Sampling(stop_token_ids=chat.stop_token_ids)
        setting = Setting(policy, chat, Counter(), RolloutLimits(max_turns=6, max_total_tokens=9999), sampling)
        playing = asyncio.ensure_future(
            play(Rollout("t", whole.task, 0, seed=0, prefix=prefix), setting, cut_off=found.append)
        )
        await asyncio.wait([playing], timeout=0.1)
        playing.cancel()
        await asyncio.wait([playing])
        return [(one.stop, len(one.turns)) for one in found]

    for prefix, before in ((None, 0), (Prefix(whole, 2), 2)):
        num_turns = 0
        assert asyncio.run(left(prefix)) == []
        num_turns = 1
        assert asyncio.run(left(prefix)) == [(StopReason.CANCELLED, before + 1)]


class Unreachable(Echo):
    """A tool whose host is gone."""

    async def invoke(self, call, *, trajectory_id):
        return ToolResult(Outcome.UNREACHABLE, "no route")


def test_a_tool_that_breaks_ends_the_trajectory_and_is_named(go_on):
    trajectory, _ = go_on(SCRIPT[:1], tools=Unreachable())
    assert trajectory.stop is StopReason.INFRA_FAILURE and not trajectory.scorable
    assert trajectory.error == "tool 'search': unreachable: no route"


def test_another_continuation_shares_the_tokens_of_the_prefix_alone(go_on):
    whole, _ = go_on(SCRIPT)
    other, _ = go_on([f"Bell.{STOP}"], Prefix(whole, 3))
    end = whole.turns[2].observation_end
    assert other.tokens[:end] == whole.tokens[:end] and other.action_mask[:end] == whole.action_mask[:end]
    assert other.rollout_logprobs[:end] == whole.rollout_logprobs[:end]
    assert (other.answer, whole.answer) == ("Bell.", "Vell.")
    assert other.action_ranges == [*whole.action_ranges[:3], (end, len(other.tokens))]


def test_a_masked_prefix_is_context_in_which_nothing_is_an_action(go_on):
    whole, _ = go_on(SCRIPT)
    masked, _ = go_on(SCRIPT[2:], Prefix(whole, 2, is_trained=False))
    end = whole.turns[1].observation_end
    assert masked.tokens == whole.tokens and masked.turns[:2] == whole.turns[:2]
    assert not any(masked.action_mask[:end]) and not any(masked.rollout_logprobs[:end])
    assert masked.action_mask[end:] == whole.action_mask[end:]
    assert masked.rollout_logprobs[end:] == whole.rollout_logprobs[end:]
    assert masked.action_ranges == whole.action_ranges[2:]
    assert masked.num_sampled == sum(stop - start for start, stop in masked.action_ranges)


def test_a_single_turn_from_a_prefix_makes_its_calls_and_ends(go_on):
    whole, _ = go_on(SCRIPT)
    assert Prefix.choices(whole) == range(4)
    row, _ = go_on(SCRIPT[2:], Prefix(whole, 2, is_trained=False), is_single_turn=True)
    assert (row.stop, len(row.turns), row.calls[-1].result.text) == (StopReason.MAX_TURNS, 3, "call 2")
    assert row.num_sampled == row.turns[2].end - row.turns[2].start


def test_a_prefix_counts_against_every_limit(go_on):
    whole, _ = go_on(SCRIPT)
    turns, _ = go_on(SCRIPT[2:], Prefix(whole, 2), max_turns=3)
    calls, _ = go_on(SCRIPT[2:], Prefix(whole, 2), max_tool_calls=1)
    failures, _ = go_on([SCRIPT[1]], Prefix(whole, 2), max_parse_failures=1)
    tokens, _ = go_on([SCRIPT[0]], Prefix(whole, 2), max_total_tokens=whole.turns[1].observation_end + 5)
    assert turns.stop is StopReason.MAX_TURNS and failures.stop is StopReason.PARSE_FAILURE_LIMIT
    assert calls.calls[-1].result.outcome is Outcome.LIMIT_REACHED
    assert tokens.stop is StopReason.LENGTH and len(tokens.tokens) == whole.turns[1].observation_end + 5


def test_calls_made_again_bring_tools_to_their_state_and_are_paid_for_once(go_on):
    whole, _ = go_on(SCRIPT)
    tools = Counter()
    again, _ = go_on(SCRIPT[2:], Prefix(whole, 2), tools)
    assert [record.result.text for record in again.calls] == ["call 1", "call 2"]
    assert [call.arguments["query"] for call in tools.calls["t"]] == ["a", "b"]
    assert [record.result.text for record in again.played_calls] == ["call 2"]
    assert costs_by_name([Scored(again, (), None, None)]) == {"search": 1.0}


def test_a_tool_that_is_down_for_a_prefix_is_named_as_such(go_on):
    whole, _ = go_on(SCRIPT)
    broken, policy = go_on(SCRIPT[2:], Prefix(whole, 2), Unreachable())
    assert broken.stop is StopReason.INFRA_FAILURE and not policy.requests
    assert broken.error == "tool 'search': unreachable: no route" and broken.prefix_of == whole.id
    cause = find_cause(Scored(broken, (), None, None))
    assert (cause.name, cause.may_pass) == ("tool 'search'", True)


def test_time_that_the_prefix_waited_is_not_waited_again(go_on):
    whole, _ = go_on(SCRIPT)
    slow = replace(whole, turns=(replace(whole.turns[0], tools_s=99.0), *whole.turns[1:]))
    again, _ = go_on(SCRIPT[1:], Prefix(slow, 1))
    assert wait_share([Scored(again, (), None, None)]) < 1


def test_a_tool_that_gives_something_else_makes_the_trajectory_unscorable(go_on):
    whole, _ = go_on(SCRIPT)
    tools = Counter()
    tools.calls["t"] = [None]
    broken, policy = go_on(SCRIPT[3:], Prefix(whole, 3), tools)
    assert broken.stop is StopReason.INFRA_FAILURE and not broken.scorable and not policy.requests
    words = "tool 'search': called again for the trajectory's prefix: ok 'call 2'; before: ok 'call 1'"
    cause = find_cause(Scored(broken, (), None, None))
    assert cause == MissingRewardCause("tool 'search'", words, may_pass=False), "it is up, and not waited for"


@pytest.mark.parametrize("num_turns", [4, 5])
def test_the_turn_that_ended_a_trajectory_is_part_of_no_prefix(go_on, num_turns):
    whole, _ = go_on(SCRIPT)
    with pytest.raises(ValueError, match="can be kept"):
        Prefix(whole, num_turns)


def test_pictures_of_a_prefix_are_those_that_it_showed(go_on, chat):
    from rlf.types import Image

    class Painter(Counter):
        async def invoke(self, call, *, trajectory_id):
            result = await super().invoke(call, trajectory_id=trajectory_id)
            return replace(result, images=(Image(result.text.encode(), "image/png"),) * 2)

    class Seeing(type(chat)):
        shows_results = True

        def observation(self, texts, *, closed, turn, images=()):
            return super().observation(texts, closed=closed, turn=turn)

    seeing = Seeing(chat.tokenizer, TOOLS)
    whole, asked = go_on(SCRIPT, tools=Painter(), chat=seeing, max_images=3)
    again, policy = go_on(SCRIPT[2:], Prefix(whole, 2), Painter(), seeing, max_images=3)
    assert len(whole.images) == 3 and again.images == whole.images
    assert [len(request.images) for request in asked.requests] == [0, 2, 2, 3]
    assert policy.requests == asked.requests[2:]
