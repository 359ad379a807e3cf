"""What a spec declares about turns is what the loop does: repair, replies to failures, stopping after a call."""

import asyncio
import json
from dataclasses import replace

import pytest

from rlf.chat import FORMATS
from rlf.chat.repair import stand_in
from rlf.chat.settings import FailurePolicy, RepairPolicy
from rlf.core import RlfError
from rlf.rollout import Rollout, RolloutLimits, Setting, play, rollout_metrics
from rlf.rollout.rollout import ChatPolicy
from rlf.rollout.scripted import ScriptedPolicy
from rlf.types import FailureClass, Message, Outcome, Sampling, Scored, StopReason, Task, ToolCall, ToolResult

from .conftest import TOOLS, Echo

STOP = "<|im_end|>"
GOOD = '<tool_call>\n{"name": "search", "arguments": {"query": "Vell"}}\n</tool_call>'
ANSWER = f"It is Vell.{STOP}"
SLIPS = {
    "trailing_comma": '{"name": "search", "arguments": {"query": "Vell",},}',
    "single_quotes": "{'name': 'search', 'arguments': {'query': 'Vell'}}",
    "code_fence": '```json\n{"name": "search", "arguments": {"query": "Vell"}}\n```',
    "parameters": '{"name": "search", "parameters": {"query": "Vell"}}',
    "string_arguments": '{"name": "search", "arguments": "{\\"query\\": \\"Vell\\"}"}',
}
AMBIGUOUS = [
    "{'name': 'search', 'arguments': {'query': 'it's'}}",
    '{"name": "search", "arguments": {"query": "a", "query": "b"}}',
    '{"name": "search", "arguments": {"query": }}',
    '{"name": "search", "arguments": "Vell"}',
    '{"name": "search", "arguments": {}, "parameters": {}}',
    '{"name": "search", "arguments": {"query": "Vell"}',
]
SAFE = ChatPolicy(repair=RepairPolicy.SAFE)


def block(body):
    return f"<tool_call>\n{body}\n</tool_call>"


def metrics(trajectory):
    return rollout_metrics([Scored(trajectory, (), 0.0, None)])


@pytest.mark.parametrize("slip", SLIPS)
def test_a_safe_repair_runs_the_call_and_is_counted(played, slip):
    trajectory, _ = played(block(SLIPS[slip]) + STOP, ANSWER, handling=SAFE)
    (record,) = trajectory.calls
    assert (record.call.name, record.call.arguments) == ("search", {"query": "Vell"})
    assert trajectory.stop is StopReason.ANSWERED and not trajectory.failures
    (repair,) = trajectory.turns[0].repairs
    assert repair.kind == slip and trajectory.turns[0].text[repair.position :].startswith(repair.raw)
    assert metrics(trajectory)[f"tools/repaired/{slip}"] == 1.0


def test_the_times_of_turns_and_tools_are_parts_of_the_trajectorys(played):
    trajectory, _ = played(GOOD + STOP, ANSWER)
    calling, answering = trajectory.turns
    assert calling.tools_s > 0.0 == answering.tools_s
    assert sum(turn.sample_s + turn.tools_s for turn in trajectory.turns) <= trajectory.duration_s
    assert trajectory.duration_s < 600


def test_a_raw_newline_is_repaired_to_the_newline_it_is(played):
    trajectory, _ = played(block('{"name": "search", "arguments": {"query": "a\nb"}}') + STOP, ANSWER, handling=SAFE)
    assert trajectory.calls[0].call.arguments == {"query": "a\nb"}
    assert [repair.kind for repair in trajectory.repairs] == ["raw_newline"]


def test_a_call_with_two_slips_has_two_repairs(played):
    trajectory, _ = played(block("{'name': 'search', 'parameters': {'query': 'Vell',}}") + STOP, ANSWER, handling=SAFE)
    assert [repair.kind for repair in trajectory.repairs] == ["parameters", "single_quotes", "trailing_comma"]


@pytest.mark.parametrize("slip", SLIPS)
def test_without_repair_a_slip_is_a_failure(played, slip):
    trajectory, _ = played(block(SLIPS[slip]) + STOP, ANSWER)
    assert not trajectory.calls and len(trajectory.failures) == 1


@pytest.mark.parametrize("body", AMBIGUOUS)
def test_what_is_ambiguous_is_not_repaired(played, body):
    trajectory, _ = played(block(body) + STOP, ANSWER, handling=SAFE)
    assert not trajectory.calls and not trajectory.repairs and trajectory.failures


def test_a_repair_leaves_the_other_items_of_the_turn_as_they_are(played):
    text = "\n".join([block("{'name': 'now', 'arguments': {}}"), GOOD, block('{"name": 1}')])
    trajectory, _ = played(text + STOP, ANSWER, handling=SAFE)
    assert [record.call.name for record in trajectory.calls] == ["now", "search"]
    assert [failure.kind for failure in trajectory.failures] == ["missing_name"]


def test_a_rehearsed_call_is_never_repaired(played):
    trajectory, _ = played(f"<think>{block(SLIPS['parameters'])}</think>{ANSWER}", handling=SAFE)
    assert not trajectory.calls and trajectory.stop is StopReason.ANSWERED


def test_a_class_that_ends_the_trajectory_runs_nothing_of_the_turn(played):
    ends = ChatPolicy(failures={FailureClass.BAD_JSON: FailurePolicy.END})
    trajectory, _ = played(GOOD + block("{") + STOP, handling=ends)
    assert trajectory.stop is StopReason.PARSE_FAILURE and trajectory.scorable
    assert [record.result.outcome for record in trajectory.calls] == [Outcome.LIMIT_REACHED]
    other, _ = played(block('{"name": 1}') + STOP, ANSWER, handling=ends)
    assert other.stop is StopReason.ANSWERED


def test_a_penalised_failure_is_answered_and_counted(played):
    handling = ChatPolicy(otherwise=FailurePolicy.PENALISE, failures={FailureClass.EMPTY: FailurePolicy.FEEDBACK})
    trajectory, _ = played(block("{") + STOP, STOP, ANSWER, handling=handling, max_parse_failures=2)
    assert trajectory.stop is StopReason.ANSWERED
    assert [turn.num_penalised for turn in trajectory.turns] == [1, 0, 0]
    assert metrics(trajectory)["tools/penalised"] == 1.0


def test_a_call_rehearsed_beside_an_answer_is_met_with_nothing(played):
    trajectory, _ = played(f"<think>{GOOD}</think>{ANSWER}", handling=ChatPolicy(otherwise=FailurePolicy.END))
    assert trajectory.stop is StopReason.ANSWERED and trajectory.num_penalised == 0


@pytest.mark.parametrize("query", ["Vell", "a </tool_call> b", 'say \\"</tool_call>\\" c', "</tool_call></tool_call>"])
@pytest.mark.parametrize("before", ["", "<think>\nso <tool_call>{}</tool_call>\n</think>\n\n", "Let me look. "])
def test_stopping_after_a_call_samples_the_same_tokens_up_to_there(played, query, before):
    call = before + GOOD.replace("Vell", query)
    whole, _ = played(call + STOP, ANSWER)
    cut, policy = played(call + "\nand then some" + STOP, ANSWER, handling=ChatPolicy(stop_after_call=True))
    assert cut.turns[0].text == call
    assert [record.call for record in cut.calls] == [record.call for record in whole.calls]
    assert list(cut.tokens) == list(whole.tokens), "the end of the turn is fed in its place"
    assert sum(cut.action_mask) == sum(whole.action_mask) - 1
    sampled = [len(sample.tokens) for sample in policy.samples]
    assert [request.num_sampled for request in policy.requests] == [sum(sampled[:i]) for i in range(len(sampled))]


def test_a_broken_call_also_ends_the_turn(played):
    cut, _ = played(block('{"name": 1}') + " more" + STOP, ANSWER, handling=ChatPolicy(stop_after_call=True))
    assert cut.turns[0].text == block('{"name": 1}')


def test_calls_over_the_limit_are_recorded_and_answered_so(played):
    other = GOOD.replace("Vell", "Orm")
    trajectory, _ = played(GOOD + other + STOP, other + STOP, ANSWER, max_tool_calls=1)
    assert [record.call.arguments["query"] for record in trajectory.calls] == ["Vell", "Orm", "Orm"]
    outcomes = [record.result.outcome for record in trajectory.calls]
    assert outcomes == [Outcome.OK, Outcome.LIMIT_REACHED, Outcome.LIMIT_REACHED]
    assert trajectory.stop is StopReason.ANSWERED


def test_a_script_that_ends_too_early_says_so(played):
    with pytest.raises(RlfError, match="has 1 turns and turn 2"):
        played(GOOD + STOP)


def test_an_observation_that_leaves_no_room_for_a_turn_is_left_out(played):
    whole, _ = played(GOOD + STOP, ANSWER)
    end = whole.turns[0].observation_end
    within, _ = played(GOOD + STOP, ANSWER, max_total_tokens=end + 1)
    assert within.turns[0].observation_end == end and len(within.tokens) == end + 1
    over, _ = played(GOOD + STOP, ANSWER, max_total_tokens=end)
    assert (over.stop, len(over.tokens)) == (StopReason.LENGTH, whole.turns[0].end)


def test_a_scripted_policy_keeps_to_the_budget(played):
    trajectory, _ = played("a b c d e f g" + STOP, max_new_tokens=3)
    assert trajectory.stop is StopReason.LENGTH and trajectory.num_sampled == 3
    assert trajectory.answer is None


ENDS_WITH_ITS_CALL = {"gpt_oss", "kimi_k3", "react", "search_r1"}
"""Formats whose turns end with a call by themselves."""
NO_MARK_OF_ITS_OWN = {"code_fence"}
"""A block is closed by what may open the next one."""
VALUES_AS_THEY_ARE = {"deepseek_v32", "minimax_m2"}
"""Formats without a way to write the end of a section inside a value."""


@pytest.mark.parametrize("name", [n for n in FORMATS.names() if n not in ENDS_WITH_ITS_CALL | NO_MARK_OF_ITS_OWN])
def test_stopping_after_a_call_gives_the_same_tokens_in_every_format(name):
    chat = stand_in(name, TOOLS[:1])
    end = chat.decode(chat.stop_token_ids[:1])
    held = "Vell" if name in VALUES_AS_THEY_ARE else f"a {chat.call_ends[0]} b"
    calls = [ToolCall("search", {"query": text}) for text in ("Vell", held, "[f(a={})]")]
    script = [*(chat.write_call(call) + end for call in calls), chat.write_answer("It is Vell.") + end]
    seen = [_played_in(chat, script, stop_after_call=stop) for stop in (False, True)]
    (whole, cut) = seen
    assert [record.call for record in cut.calls] == calls and cut.answer == "It is Vell."
    assert cut.tokens == whole.tokens
    assert cut.num_sampled == whole.num_sampled - len(calls), "the ends of the three turns are fed, not sampled"


@pytest.mark.parametrize("name", sorted(ENDS_WITH_ITS_CALL | NO_MARK_OF_ITS_OWN))
def test_formats_that_cannot_stop_after_a_call_say_so(name):
    assert stand_in(name, TOOLS[:1]).call_ends == ()


def _played_in(chat, script, *, stop_after_call):
    policy = ScriptedPolicy(chat.tokenizer, script)
    ends = chat.call_ends if stop_after_call else ()
    sampling = Sampling(stop_token_ids=chat.stop_token_ids, stop_strings=(*chat.stop_strings, *ends))
    limits = RolloutLimits(max_turns=len(script), max_total_tokens=99_999)
    setting = Setting(policy, chat, Echo(), limits, sampling, ChatPolicy(stop_after_call=stop_after_call))
    return asyncio.run(play(Rollout("t", Task("t", (Message("user", "Where?"),)), 0, seed=0), setting))


def test_each_turn_names_the_updates_that_its_tokens_were_sampled_after(chat):
    class Updated(ScriptedPolicy):
        """Is updated once, after the third token of its second turn."""

        async def sample(self, request):
            sample, turn = await super().sample(request), len(self.requests)
            return replace(
                sample, versions=[4 + (turn > 2 or (turn == 2 and at >= 3)) for at in range(len(sample.tokens))]
            )

    def turns_of(kind):
        policy = kind(chat.tokenizer, [RIGHT, RIGHT, ANSWER])
        limits = RolloutLimits(max_turns=3, max_total_tokens=9999)
        setting = Setting(policy, chat, Echo(), limits, Sampling(stop_token_ids=chat.stop_token_ids))
        return asyncio.run(play(Rollout("t", Task("t", (Message("user", "Where?"),)), 0, seed=0), setting)).turns

    first, second, third = turns_of(Updated)
    assert first.versions == ((first.start, 4),) and third.versions == ((third.start, 5),)
    assert second.versions == ((second.start, 4), (second.start + 3, 5))
    assert all(turn.versions == () for turn in turns_of(ScriptedPolicy))


def call_of(name, arguments):
    return block(json.dumps({"name": name, "arguments": arguments})) + STOP


BAD_NAME, BAD_ARGUMENTS, BAD_JSON = call_of("serch", {}), call_of("search", {"q": 1}), block("{") + STOP
RIGHT = call_of("search", {"query": "Vell"})


class Strict(Echo):
    """Refuses what the declared tools do not take, as the executor does."""

    async def invoke(self, call, *, trajectory_id):
        if call.name not in {tool.name for tool in TOOLS}:
            return ToolResult(Outcome.UNKNOWN_TOOL, f"no tool {call.name}")
        if call.name == "search" and "query" not in call.arguments:
            return ToolResult(Outcome.INVALID_ARGUMENTS, "no query")
        return await super().invoke(call, trajectory_id=trajectory_id)


@pytest.mark.parametrize(
    ("script", "num_turns", "stop"),
    [
        ([BAD_NAME, BAD_ARGUMENTS, RIGHT, ANSWER], 2, StopReason.INVALID_CALLS),
        ([BAD_NAME, BAD_JSON, RIGHT, ANSWER], 2, StopReason.INVALID_CALLS),
        ([BAD_NAME, RIGHT, BAD_NAME, ANSWER], 4, StopReason.ANSWERED),
        ([RIGHT, BAD_NAME, BAD_NAME, ANSWER], 3, StopReason.INVALID_CALLS),
        ([BAD_NAME + RIGHT, BAD_NAME + RIGHT, ANSWER], 3, StopReason.ANSWERED),
        ([BAD_NAME, ANSWER], 2, StopReason.ANSWERED),
    ],
)
def test_turns_in_a_row_without_a_valid_call_end_the_trajectory_and_a_valid_one_begins_the_count_again(
    played, script, num_turns, stop
):
    script = [turn.replace(STOP + "<", "<") for turn in script]
    trajectory, _ = played(*script, tools=Strict(), max_failed_turns=2, max_parse_failures=9)
    assert (len(trajectory.turns), trajectory.stop) == (num_turns, stop)
    assert trajectory.scorable and metrics(trajectory)[f"stop/{stop}"] == 1.0
    assert sum(trajectory.action_mask) == sum(turn.end - turn.start for turn in trajectory.turns)


def test_without_a_limit_turns_without_a_valid_call_use_up_the_turns(played):
    trajectory, _ = played(*[BAD_NAME] * 6, tools=Strict())
    assert (len(trajectory.turns), trajectory.stop) == (6, StopReason.MAX_TURNS)


def test_calls_of_a_last_turn_are_not_run_so_that_none_of_them_is_known_to_fail(played):
    trajectory, _ = played(*[BAD_NAME] * 3, tools=Strict(), max_failed_turns=2, max_turns=2)
    assert trajectory.stop is StopReason.MAX_TURNS
