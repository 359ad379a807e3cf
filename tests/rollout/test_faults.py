"""Disturbances: what the model sees and meets is changed, and what is carried out and recorded is not."""

import asyncio
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlf.chat import FORMATS
from rlf.chat.repair import stand_in
from rlf.core import RlfError, SpecError
from rlf.core.meter import Meter
from rlf.endpoints.openai import Completion, RequestedCall
from rlf.endpoints.spec import SamplingSpec, Usage
from rlf.rollout import Rollout, RolloutLimits, Setting, play
from rlf.rollout.by_text import TextPlayer
from rlf.rollout.disturbed import FAILURES, Disturbed
from rlf.rollout.rollout import Prefix
from rlf.rollout.scripted import ScriptedPolicy
from rlf.runs.plans import check_spec
from rlf.spec import load_spec
from rlf.tools.agent_text import AUTO, TextCalls
from rlf.tools.kind import Faults
from rlf.training.harness import build_harness
from rlf.types import Message, Outcome, Sampling, StopReason, Task, ToolCall, ToolDescription

from .conftest import TOOLS, Echo

SPEC = Path(__file__).parents[2] / "specs" / "search.yaml"
LIMITS = RolloutLimits(max_turns=6, max_total_tokens=9999)
TASK = Task("t", (Message("user", "Where?"),))
SEARCH = ToolCall("search", {"query": "Vell"})


class Counted(Echo):
    """Counts what is carried out."""

    def __init__(self):
        self.calls = []

    async def invoke(self, call, *, trajectory_id):
        self.calls.append(call)
        return await super().invoke(call, trajectory_id=trajectory_id)


def written_for(call, tools):
    """A declared call as a model writes it that reads the tools it is shown: the first is `search`."""
    tool = tools[0]
    assert call.name == "search"
    schema, whole = tool.input_schema, dict(call.arguments)
    inner = schema["properties"].get("request", schema)
    named = dict(zip(inner["properties"], whole.values(), strict=True))
    nested = {"request": named, "version": "2"} if inner is not schema else named
    return ToolCall(tool.name, nested)


def play_under(faults, *calls, chat, tools=None, prefix=None, task=TASK):
    """Plays calls, as they are written under the disturbances, and an answer."""
    shown = Disturbed(faults, task.id, TOOLS).tools
    reader = chat.with_tools(shown)
    turns = [reader.write_call(call if written else written_for(call, shown)) for call, written in calls]
    script = [*(turn + "<|im_end|>" for turn in turns), "Vell.<|im_end|>"]
    policy = ScriptedPolicy(chat.tokenizer, script)
    sampling = Sampling(stop_token_ids=chat.stop_token_ids)
    setting = Setting(policy, chat, tools or Counted(), LIMITS, sampling, faults=faults)
    return asyncio.run(play(Rollout("r", task, 0, seed=0, prefix=prefix), setting))


@pytest.mark.parametrize("name", [name for name in FORMATS.names() if FORMATS.get(name).names_tools])
@pytest.mark.parametrize("how", ["renamed", "nested", "both"])
def test_a_call_in_changed_names_and_schemas_is_carried_out_and_recorded_as_it_is_declared(name, how):
    faults = Faults(**{each: 1.0 for each in ("renamed", "nested") if how in (each, "both")})
    shown = Disturbed(faults, "t", TOOLS).tools
    chat = type(stand_in(name))(stand_in(name).tokenizer, TOOLS).with_tools(shown)
    written = written_for(SEARCH, shown)
    text = chat.write_call(written)
    (read,) = chat.parse((chat.think[1] if chat.begins_thinking else "") + text, truncated=False).calls
    assert Disturbed(faults, "t", TOOLS).restore(read) == SEARCH


@pytest.mark.parametrize("how", ["renamed", "nested"])
def test_what_a_trajectory_records_under_changed_schemas_has_the_declared_names(chat, how):
    tools = Counted()
    trajectory = play_under(Faults(**{how: 1.0}), (SEARCH, False), chat=chat, tools=tools)
    (record,) = trajectory.calls
    assert record.call == SEARCH and record.result.outcome is Outcome.OK and tools.calls == [SEARCH]
    prompt = chat.decode(trajectory.tokens[: trajectory.turns[0].start])
    assert ('"search"' in prompt) == (how == "nested") and "Find a passage." in prompt


@pytest.mark.parametrize("how", ["renamed", "nested"])
def test_a_call_by_the_declared_schema_reaches_no_tool_and_is_answered_in_the_names_that_are_shown(chat, how):
    tools = Counted()
    trajectory = play_under(Faults(**{how: 1.0}), (SEARCH, True), chat=chat, tools=tools)
    (record,) = trajectory.calls
    assert not tools.calls
    expected = Outcome.UNKNOWN_TOOL if how == "renamed" else Outcome.INVALID_ARGUMENTS
    assert record.result.outcome is expected
    if how == "renamed":
        assert re.search(r"known: f_\w{6}, f_\w{6}\)", record.result.text)
    else:
        assert "expected request, version" in record.result.text


def test_a_complaint_about_arguments_does_not_give_declared_names_away():
    class Strict(Echo):
        async def invoke(self, call, *, trajectory_id):
            from rlf.types import ToolResult

            return ToolResult(Outcome.INVALID_ARGUMENTS, "invalid arguments for search: 'query' is required")

    disturbed = Disturbed(Faults(renamed=1.0), "t", TOOLS)
    call = disturbed.restore(ToolCall(disturbed.tools[0].name, {}))
    result = asyncio.run(disturbed.invoke(call, lambda made: Strict().invoke(made, trajectory_id="r")))
    assert "search" not in result.text and "query" not in result.text
    assert disturbed.tools[0].name in result.text


def results_of(faults, calls, task_id="t"):
    disturbed, tools = Disturbed(faults, task_id, TOOLS), Counted()

    async def play_all():
        return [await disturbed.invoke(call, lambda made: tools.invoke(made, trajectory_id="r")) for call in calls]

    return asyncio.run(play_all()), tools.calls


@pytest.mark.parametrize(
    ("key", "share"), [("errors", 0.3), ("timeouts", 0.2), ("truncated", 0.5), ("noisy", 0.5), ("errors", 0.0)]
)
def test_as_many_calls_are_disturbed_as_the_share_says(key, share):
    calls = [ToolCall("search", {"query": f"{number:04}"}) for number in range(2000)]
    results, carried_out = results_of(Faults(**{key: share}), calls)
    whole = f"search: {calls[0].arguments}"
    untouched = [result.outcome is Outcome.OK and len(result.text) == len(whole) for result in results]
    # Five standard deviations of a share of 2,000.
    assert 1 - sum(untouched) / 2000 == pytest.approx(share, abs=5 * (0.25 / 2000) ** 0.5)
    assert len(carried_out) == (sum(untouched) if key in ("errors", "timeouts") else 2000)
    assert not any(result.outcome.is_infrastructure for result in results), "a disturbance is no broken trajectory"


def test_a_call_that_failed_may_succeed_when_it_is_made_again_and_a_group_meets_the_same():
    again = [ToolCall("search", {"query": str(number % 50)}) for number in range(500)]
    one, _ = results_of(Faults(errors=0.5), again)
    other, _ = results_of(Faults(errors=0.5), again)
    assert one == other
    by_call = [{result.outcome for result in one[number::50]} for number in range(50)]
    assert sum(len(outcomes) == 2 for outcomes in by_call) > 45
    elsewhere, _ = results_of(Faults(errors=0.5), again, task_id="u")
    assert one != elsewhere


def test_failed_calls_are_answered_in_many_ways_none_of_which_is_that_of_a_time_out():
    calls = [ToolCall("search", {"query": str(number)}) for number in range(200)]
    results, _ = results_of(Faults(errors=1.0), calls)
    assert {result.text for result in results} == set(FAILURES) and len(FAILURES) > 4
    assert {result.outcome for result in results} == {Outcome.TOOL_ERROR}
    late, _ = results_of(Faults(timeouts=1.0), calls[:1])
    assert not set(late[0].text.split()) & {word for text in FAILURES for word in text.split()}


def test_names_differ_from_task_to_task_and_the_share_is_of_tasks():
    names = {Disturbed(Faults(renamed=0.5), str(number), TOOLS).tools[0].name for number in range(400)}
    assert 140 < len(names - {"search"}) < 260


def test_a_prefix_under_disturbances_is_played_again_to_the_same_results(chat):
    faults = Faults(errors=0.5, truncated=0.5, renamed=1.0)
    calls = [(ToolCall("search", {"query": str(number)}), False) for number in range(4)]
    whole = play_under(faults, *calls, chat=chat)
    continued = play_under(faults, *calls[3:], chat=chat, prefix=Prefix(whole, 3))
    assert continued.stop is StopReason.ANSWERED, continued.error
    assert continued.tokens == whole.tokens


def test_a_model_behind_a_server_meets_the_same():
    seen, tools = [], Counted()

    async def chat(messages, caller, *, sampling, tools):
        seen.append(tools)
        if len(seen) > 1:
            return Completion("Vell.", (), "stop", (), Usage())
        function = tools[0]["function"]
        (name,) = function["parameters"]["properties"]
        call = RequestedCall("a", function["name"], json.dumps({name: "Vell"}))
        return Completion("", (call,), "tool_calls", (), Usage())

    player = TextPlayer(
        SimpleNamespace(chat=chat),
        tools,
        LIMITS,
        SamplingSpec(),
        timeout_s=20.0,
        room=asyncio.Semaphore(1),
        meter=Meter(),
        text_calls=TextCalls(AUTO, TOOLS),
        usage={},
        faults=Faults(renamed=1.0, noisy=1.0),
    )
    trajectory = asyncio.run(player.play(Rollout("r", TASK, 0, seed=0)))
    (record,) = trajectory.calls
    assert record.call == SEARCH and tools.calls == [SEARCH] and trajectory.answer == "Vell."
    assert seen[0][0]["function"]["name"].startswith("f_") and "[warn]" in record.result.text


def test_a_schema_without_properties_is_shown_and_called_too():
    tools = (ToolDescription("now", "The time.", {"type": "object"}),)
    disturbed = Disturbed(Faults(renamed=1.0, nested=1.0), "t", tools)
    (shown,) = disturbed.tools
    assert disturbed.restore(ToolCall(shown.name, {"request": {}, "version": "2"})) == ToolCall("now", {})


def harness_of(*overrides, format_name=None):
    spec = load_spec([SPEC], list(overrides)).spec
    if format_name is not None:
        only = spec.tools[:1]
        spec = spec.model_copy(update={"chat": spec.chat.model_copy(update={"format": format_name}), "tools": only})
    return build_harness(spec, stand_in(format_name or "hermes").tokenizer, lambda level, text: None)


def test_training_has_the_rollouts_disturbances_and_evaluations_their_own():
    harness = harness_of("rollout.faults={errors: 0.3}")
    found = {harness.setting(None, how).faults for how in (harness.evaluation, harness.greedy)}
    assert harness.setting(None, harness.training).faults == Faults(errors=0.3) and found == {None}
    harness = harness_of("eval.faults={noisy: 1}")
    assert harness.setting(None, harness.training).faults is None
    assert harness.setting(None, harness.greedy).faults == Faults(noisy=1.0)


@pytest.mark.parametrize("place", ["rollout", "eval"])
def test_names_that_a_format_does_not_show_cannot_be_changed(place):
    with pytest.raises(RlfError, match=rf"{place}\.faults: search_r1 writes calls without the name of a tool"):
        harness_of(f"{place}.faults={{renamed: 1}}", format_name="search_r1")
    harness_of(f"{place}.faults={{errors: 1}}", format_name="search_r1")


@pytest.mark.parametrize("place", ["rollout", "eval"])
def test_an_agents_own_tools_cannot_be_disturbed(place):
    with pytest.raises(SpecError, match=rf"{place}\.faults: are given with rollout\.agent"):
        check_spec([SPEC], ["~tools", "rollout.agent={command: [cat]}", f"{place}.faults={{errors: 1}}"])
