"""What an agent asks becomes tokens exactly as they were sampled, whatever the agent does."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import date
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from rich.console import Console

from rlf.apps.demos.origins import candidate_of
from rlf.apps.judges.prompts import transcript
from rlf.apps.look.trace import all_text
from rlf.apps.serve import dialogue
from rlf.apps.serve.agents import AgentServer, calls, programs
from rlf.apps.serve.agents.programs import AgentSession
from rlf.apps.serve.openai import Chat
from rlf.apps.serve.requests import Refusal, ToolFunction
from rlf.builtin.names import builtin_path
from rlf.chat.encoding import load_tokenizer
from rlf.chat.format import open_format
from rlf.core import RlfError
from rlf.core.errors import CheckError
from rlf.reports.pages.render import render_page, side
from rlf.reports.trajectory import opening, show_links, trajectory_view
from rlf.rollout.loop import Setting
from rlf.rollout.rollout import Rollout, RolloutLimits
from rlf.rollout.scripted import ScriptedPolicy
from rlf.spec.agent import AgentSpec
from rlf.tools.execution.executor import Executor
from rlf.types import Message, StopReason, Task, ToolDescription, Trajectory
from rlf.types.events import Notice
from rlf.types.policy import Sampling
from rlf.types.score import Scored
from rlf.types.written import read, write

from . import adversaries

TOKENIZER = load_tokenizer(str(builtin_path("tiny")))
CHAT = open_format("auto", TOKENIZER, ())
CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "capital"}}\n</tool_call><|im_end|>'
TWO_CALLS = f"{CALL.removesuffix('<|im_end|>')}\n{CALL.replace('capital', 'river')}"
ANSWER = "Paris<|im_end|>"
TASK = Task(
    "t", (Message("user", "Which town?"),), answer="Paris", columns={"question": "Which town?", "answer": "Paris"}
)


def play(
    name: str, script: Sequence[str] = (CALL, ANSWER), *, overrides: bool = True, **agent: Any
) -> tuple[Trajectory, ScriptedPolicy]:
    """Plays a trajectory by one of the adversaries."""
    (trajectory,), policy = play_many(name, script, 1, overrides=overrides, **agent)
    return trajectory, policy


def play_many(
    name: str, script: Sequence[str], number: int, *, overrides: bool = True, **agent: Any
) -> tuple[list[Trajectory], ScriptedPolicy]:
    """Plays trajectories side by side."""
    adversaries.seen.clear()
    policy = ScriptedPolicy(TOKENIZER, [*script], logprob=-0.5)
    declared = AgentSpec(callable=f"{adversaries.__name__}:{name}", **{"timeout_s": 60.0, **agent})
    setting = make_setting(policy)

    async def main() -> list[Trajectory]:
        async with AgentServer(declared, TOKENIZER, gold=frozenset({"answer"})) as server:
            player = server.player(setting, overrides=overrides)
            rollouts = [Rollout(f"r{at}", TASK, at, seed=3) for at in range(number)]
            player.open([rollout.id for rollout in rollouts])
            trajectories = await asyncio.gather(*(player.play(rollout) for rollout in rollouts))
            await asyncio.gather(*adversaries.late, return_exceptions=True)
            adversaries.late.clear()
            return trajectories

    return asyncio.run(main()), policy


def make_setting(policy: ScriptedPolicy) -> Setting:
    limits = RolloutLimits(max_turns=4, max_total_tokens=600)
    return Setting(policy, CHAT, Executor(()), limits, Sampling(stop_token_ids=CHAT.stop_token_ids))


def check_exact(trajectory: Trajectory, policy: ScriptedPolicy) -> None:
    """Each sample is trained once, after exactly the tokens that it was sampled after."""
    rows = dict(trajectory.stretches)
    found = []
    for turn in trajectory.turns:
        start = max(begin for begin in rows if begin <= turn.start)
        assert turn.end <= rows[start]
        context, sampled = trajectory.tokens[start : turn.start], trajectory.tokens[turn.start : turn.end]
        found.append((tuple(context), tuple(sampled)))
    wanted = [(r.tokens, tuple(s.tokens)) for r, s in zip(policy.requests, policy.samples, strict=True)]
    assert sorted(found) == sorted(wanted)
    trained = sum(len(sample.tokens) for sample in policy.samples)
    assert trajectory.num_sampled == trained
    assert sum(value != 0 for value in trajectory.rollout_logprobs) == trained


def links(trajectory: Trajectory) -> list[str]:
    return [turn.link for turn in trajectory.turns]


def test_a_jump_of_the_clock_ends_no_trajectory(monkeypatch: pytest.MonkeyPatch) -> None:
    real_s, jumps = time.time, []

    async def jumps_and_asks(task: Any, session: Any) -> str:
        messages: list[Any] = [*task.messages]
        for jump_s in (86_400.0, -86_400.0):
            jumps.append(jump_s)
            monkeypatch.setattr(time, "time", lambda: real_s() + sum(jumps))
            message = adversaries.message_of(await adversaries.ask(session, messages))
            messages += [message, *adversaries.results(message)]
        return str(message["content"])

    monkeypatch.setattr(adversaries, "plain", jumps_and_asks)
    trajectory, policy = play("plain", timeout_s=20.0)
    check_exact(trajectory, policy)
    assert (links(trajectory), trajectory.stop) == (["first", ""], StopReason.ANSWERED), trajectory.error
    assert trajectory.duration_s < 20


@pytest.mark.parametrize(
    ("name", "script", "wanted"),
    [
        ("plain", [CALL, CALL, ANSWER], ["first", "", ""]),
        ("serializes_again", [CALL, ANSWER], ["first", ""]),
        ("renames_calls", [CALL, CALL, ANSWER], ["first", "", ""]),
        ("names_all_calls_alike", [TWO_CALLS, CALL, ANSWER], ["first", "", ""]),
        ("sends_half_of_a_call", [CALL, ANSWER], ["first", calls.EDITED]),
        ("sends_half_of_a_character", [CALL, ANSWER], ["first", calls.EDITED]),
        ("retries_with_another_body", [ANSWER, ANSWER], ["first", calls.SAME_PROMPT]),
        ("names_tools_in_its_script", [CALL.replace("search", "検索"), ANSWER], ["first", ""]),
        ("retries", [CALL, ANSWER], ["first", ""]),
        ("loses_its_stream", [ANSWER], ["first"]),
        ("leaves_two_streams", [ANSWER, ANSWER], [calls.FIRST, calls.SAME_PROMPT]),
        ("takes_an_older_answer_again", [CALL, CALL, ANSWER], ["first", "", ""]),
        ("answers_a_call_twice", [CALL, ANSWER], ["first", ""]),
        ("speaks_in_parts", [ANSWER, ANSWER], ["first", ""]),
        ("moves_its_system_message", [CALL, ANSWER], ["first", calls.EDITED]),
        ("asks_in_no_json", [CALL, ANSWER], ["first", ""]),
        ("samples_twice", [CALL, CALL, ANSWER], [calls.FIRST, "", calls.SAME_PROMPT]),
        ("samples_four", [CALL, CALL, CALL, CALL, ANSWER], [calls.FIRST, *[calls.SAME_PROMPT] * 3, ""]),
        ("compacts", [CALL, CALL, ANSWER], ["first", "", calls.SHORTENED]),
        ("edits_history", [CALL, ANSWER], ["first", calls.EDITED]),
        ("has_a_sub_agent", [CALL, ANSWER, ANSWER], ["first", "", calls.OTHER_SYSTEM]),
        ("is_two_agents", [CALL, CALL, ANSWER, ANSWER], ["first", "", calls.OTHER_SYSTEM, ""]),
        ("edits_its_tools", [CALL, ANSWER], ["first", calls.OTHER_TOOLS]),
        ("branches", [CALL, ANSWER, ANSWER], ["first", "", calls.BRANCH]),
        ("fans_out", [ANSWER] * 8, ["first", *[calls.OTHER_TASK] * 7]),
        ("talks_long", [ANSWER], ["first"]),
        ("has_a_wrong_key", [ANSWER], ["first"]),
        ("reports", [ANSWER], ["first"]),
        ("speaks_anthropic", [CALL, CALL, ANSWER], ["first", "", ""]),
        ("speaks_responses", [CALL, CALL, ANSWER], ["first", "", ""]),
        ("drops_thinking", [f"<think>\nParis?\n</think>\n\n{CALL}", ANSWER], ["first", ""]),
        ("forges_a_turn", [CALL, ANSWER], ["first", ""]),
        ("changes_its_protocol", [CALL, ANSWER], ["first", ""]),
        ("answers_one_of_two_calls", [TWO_CALLS, ANSWER], ["first", calls.EDITED]),
        ("answers_calls_backwards", [TWO_CALLS, ANSWER], ["first", ""]),
        ("retries_before_the_answer", [CALL, ANSWER], ["first", ""]),
        ("continues_a_cut_answer", [ANSWER, ANSWER], ["first", calls.EDITED]),
        ("speaks_no_http", [CALL, ANSWER], ["first", ""]),
        ("leaves_a_body_open", [CALL, ANSWER], ["first", ""]),
        ("repeats_itself_a_hundred_times", [CALL, ANSWER], ["first", ""]),
        ("sends_what_no_request_holds", [CALL, ANSWER], ["first", ""]),
    ],
)
def test_a_call_is_linked_to_the_one_that_it_continues(
    name: str, script: list[str], wanted: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    trajectory, policy = play(name, script)
    check_exact(trajectory, policy)
    assert not caplog.records, "what an agent does is no defect of rlf"
    assert sorted(links(trajectory)) == sorted(wanted)
    assert trajectory.stop is StopReason.ANSWERED, trajectory.error
    assert len(policy.requests) == len(script)


@pytest.mark.parametrize(
    ("name", "script", "overrides"),
    [
        ("plain", [CALL, CALL, ANSWER], True),
        ("serializes_again", [CALL, ANSWER], True),
        ("renames_calls", [CALL, CALL, ANSWER], True),
        ("names_all_calls_alike", [TWO_CALLS, CALL, ANSWER], True),
        ("sends_half_of_a_call", [CALL, ANSWER], True),
        ("sends_half_of_a_character", [CALL, ANSWER], True),
        ("names_tools_in_its_script", [CALL.replace("search", "検索"), ANSWER], True),
        ("answers_a_call_twice", [CALL, ANSWER], True),
        ("speaks_in_parts", [ANSWER, ANSWER], True),
        ("moves_its_system_message", [CALL, ANSWER], True),
        ("samples_twice", [CALL, CALL, ANSWER], True),
        ("samples_four", [CALL, CALL, CALL, CALL, ANSWER], True),
        ("branches", [CALL, ANSWER, ANSWER], True),
        ("compacts", [CALL, CALL, ANSWER], True),
        ("edits_history", [CALL, ANSWER], True),
        ("has_a_sub_agent", [CALL, ANSWER, ANSWER], True),
        ("is_two_agents", [CALL, CALL, ANSWER, ANSWER], True),
        ("edits_its_tools", [CALL, ANSWER], True),
        ("fans_out", [ANSWER] * 8, True),
        ("cancels_a_fan_out", [ANSWER] * 8, True),
        ("wants_no_chance", [ANSWER], True),
        ("wants_no_chance", [ANSWER], False),
        ("asks_in_its_own_words", [CALL, ANSWER, ANSWER], True),
        ("drops_thinking", [f"<think>\nParis?\n</think>\n\n{CALL}", ANSWER], True),
        ("forges_a_turn", [CALL, ANSWER], True),
        ("answers_one_of_two_calls", [TWO_CALLS, ANSWER], True),
        ("answers_calls_backwards", [TWO_CALLS, ANSWER], True),
        ("continues_a_cut_answer", [ANSWER, ANSWER], True),
        ("calls_after_its_end", [ANSWER, ANSWER], True),
        ("dies", [ANSWER], True),
        ("hangs", [ANSWER], True),
    ],
)
def test_a_call_without_http_is_the_call_that_it_is_over_http(
    name: str, script: list[str], overrides: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: dict[str, Any] = {"timeout_s": 1.0 if name == "hangs" else 60.0, "max_calls": 8}
    monkeypatch.setattr(adversaries, "gate", SimpleNamespace(set=int))
    over_http, _ = play(name, script, overrides=overrides, **limits)
    answered = [(status, _as_known(found)) for status, found in adversaries.seen]
    monkeypatch.setattr(adversaries, "ask", adversaries.ask_without_http)
    trajectory, policy = play(name, script, overrides=overrides, **limits)
    check_exact(trajectory, policy)
    assert _untimed(trajectory) == _untimed(over_http)
    assert [(status, _as_known(found)) for status, found in adversaries.seen] == answered


def _untimed(trajectory: Trajectory) -> Trajectory:
    turns = tuple(replace(turn, sample_s=0.0) for turn in trajectory.turns)
    return replace(trajectory, turns=turns, duration_s=0.0)


def _as_known(answer: Any) -> Any:
    """An answer without what is drawn for it: its id, and when it was made."""
    return {key: value for key, value in answer.items() if key not in ("id", "created")}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"messages": [{"role": "user", "content": "half \ud83d"}]}, "cannot be written as JSON"),
        ({"messages": [object()]}, "cannot be written as JSON"),
        ({"messages": [], "tools": []}, "messages: Tuple should have at least 1 item"),
        ({"messages": [{"role": "user", "content": "x" * (33 << 20)}]}, "larger than this server takes"),
        ({"messages": [{"role": "user", "content": "Which town?"}], "stream": True}, "an answer is whole"),
        ({"messages": [{"role": "user", "content": "Which town?"}], "model": "gpt"}, "does not exist"),
    ],
)
def test_what_is_asked_wrongly_without_http_is_refused_and_costs_nothing(
    body: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asks(task: Any, session: AgentSession) -> str:
        with pytest.raises(Refusal, match=words):
            await session.chat(**body)
        return str(adversaries.message_of(await session.chat(messages=task.messages))["content"])

    monkeypatch.setattr(adversaries, "plain", asks)
    trajectory, policy = play("plain", [ANSWER])
    check_exact(trajectory, policy)
    assert (trajectory.answer, len(policy.requests)) == ("Paris", 1), trajectory.error


def test_what_an_agent_changes_after_it_asked_without_http_changes_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def changes(task: Any, session: AgentSession) -> str:
        tools, messages = [adversaries.tool("search")], [*task.messages]
        message = adversaries.message_of(await session.chat(messages=messages, tools=tools))
        kept = json.loads(json.dumps(message))
        message["tool_calls"][0]["function"]["arguments"] = "{}"
        messages[0]["content"] = "Which river?"
        tools[0]["function"]["parameters"]["properties"].clear()
        asked = [{"role": "user", "content": "Which town?"}, kept, *adversaries.results(kept)]
        answer = await session.chat(messages=asked, tools=adversaries.TOOLS)
        return str(adversaries.message_of(answer)["content"])

    monkeypatch.setattr(adversaries, "plain", changes)
    trajectory, policy = play("plain")
    check_exact(trajectory, policy)
    assert (links(trajectory), trajectory.answer) == (["first", ""], "Paris"), trajectory.error


def test_an_agent_that_asks_without_http_for_ever_ends_with_its_trajectory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def asks(task: Any, session: AgentSession) -> str:
        while True:
            await adversaries.ask_without_http(session, [*task.messages])

    async def asks_wrongly(task: Any, session: AgentSession) -> str:
        await adversaries.ask_without_http(session, [*task.messages])
        while True:
            await adversaries.ask_without_http(session, [])

    monkeypatch.setattr(adversaries, "plain", asks)
    trajectory, policy = play("plain", [ANSWER] * 9, max_calls=5)
    check_exact(trajectory, policy)
    assert (trajectory.stop, len(trajectory.turns)) == (StopReason.MAX_TURNS, 5)
    monkeypatch.setattr(adversaries, "plain", asks_wrongly)
    trajectory, policy = play("plain", [ANSWER], timeout_s=1.0)
    check_exact(trajectory, policy)
    assert (trajectory.error or "").startswith("agent: timeout: ")


def test_a_message_is_read_once_however_often_it_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    read_, read_ones, hashed = dialogue.checked_message, list[str](), list[Any]()

    def reads(message: Any, *place: Any, **how: Any) -> Any:
        read_ones.append(message["role"])
        return read_(message, *place, **how)

    def hashes(value: Any) -> str:
        hashed.append(value)
        return json.dumps(value, sort_keys=True)

    monkeypatch.setattr(dialogue, "checked_message", reads)
    monkeypatch.setattr(dialogue, "_dump_sorted", hashes)
    trajectory, policy = play("plain", [CALL] * 9 + [ANSWER])
    check_exact(trajectory, policy)
    assert links(trajectory) == ["first", *[""] * 9]
    assert sorted(read_ones) == [*["assistant"] * 10, *["tool"] * 9, "user"]
    assert len(hashed) == len(read_ones)


def test_a_number_that_comes_back_as_a_truth_value_is_another_message(monkeypatch: pytest.MonkeyPatch) -> None:
    async def asks(task: Any, session: AgentSession) -> str:
        for value in (1, True, 1.0, 1):
            made = {"id": "a", "type": "function", "function": {"name": "search", "arguments": {"query": value}}}
            said = {"role": "assistant", "content": None, "tool_calls": [made]}
            await adversaries.ask(session, [*task.messages, said, *adversaries.results(said)])
        return "Paris"

    monkeypatch.setattr(adversaries, "plain", asks)
    trajectory, policy = play("plain", [ANSWER] * 4)
    check_exact(trajectory, policy)
    written = [
        TOKENIZER.decode(request.tokens).partition('"query": ')[2].partition("}")[0] for request in policy.requests
    ]
    assert written == ["1", "true", "1.0", "1"]
    assert links(trajectory) == [calls.FIRST, calls.EDITED, calls.EDITED, calls.SAME_PROMPT]


def test_tools_are_read_once_however_often_they_come_and_again_where_they_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_ones = list[str]()

    def reads(function: Any) -> ToolDescription:
        read_ones.append(function.name)
        return ToolDescription(function.name, function.description or "", function.parameters or {})

    async def asks(task: Any, session: AgentSession) -> str:
        for value in (1, True, 1):
            schema = {"type": "object", "properties": {"count": {"default": value}}}
            tools = [{"type": "function", "function": {"name": "counts", "description": "C.", "parameters": schema}}]
            messages: list[Any] = [*task.messages]
            for _ in range(3):
                message = adversaries.message_of(await adversaries.ask(session, messages, tools=tools))
                messages += [message, *adversaries.results(message)]
        return "Paris"

    monkeypatch.setattr(ToolFunction, "described", property(reads))
    monkeypatch.setattr(adversaries, "plain", asks)
    trajectory, policy = play("plain", [CALL.replace("search", "counts")] * 9, max_calls=9)
    check_exact(trajectory, policy)
    assert read_ones == ["counts", "counts"]
    assert len(trajectory.turns) == 9


def test_another_event_loop_is_sent_to_the_sessions_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def leaves(task: Any, session: AgentSession) -> str:
        with pytest.raises(Refusal, match=r"another event loop .*; ask `session\.url` from there"):
            await asyncio.to_thread(lambda: asyncio.run(session.chat(messages=task.messages)))
        return str(adversaries.message_of(await session.chat(messages=task.messages))["content"])

    monkeypatch.setattr(adversaries, "plain", leaves)
    trajectory, policy = play("plain", [ANSWER])
    check_exact(trajectory, policy)
    assert trajectory.answer == "Paris", trajectory.error


def test_a_defect_met_without_http_is_logged_and_named_as_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Chat, "whole", breaks)
    monkeypatch.setattr(adversaries, "ask", lambda session, messages: session.chat(messages=messages))
    trajectory, policy = play("plain", [ANSWER])
    check_exact(trajectory, policy)
    assert trajectory.error is not None
    assert trajectory.error.startswith(
        "agent: exit: Refusal: the server failed; its log has the cause (adversaries.py:"
    )
    assert [record.message for record in caplog.records] == ["a defect of rlf, met by a call of trajectory r0"]


@pytest.mark.parametrize(
    ("name", "script", "wanted"),
    [
        ("plain", [CALL, CALL, ANSWER], ["", "", ""]),
        ("samples_four", [CALL] * 4 + [ANSWER], [*["new context: same prompt"] * 3, "the first call", ""]),
        ("branches", [CALL, ANSWER, ANSWER], ["", "", "continues turn 1"]),
        ("compacts", [CALL, CALL, ANSWER], ["", "", "new context: history shortened"]),
        ("is_two_agents", [CALL, CALL, ANSWER, ANSWER], ["", "", "new context: other system message", ""]),
        ("has_a_sub_agent", [CALL, ANSWER, ANSWER], ["new context: other system message", "the first call", ""]),
    ],
)
def test_a_trace_and_a_page_show_what_each_call_continues(name: str, script: list[str], wanted: list[str]) -> None:
    trajectory, _ = play(name, script)
    assert show_links(trajectory) == wanted
    shown = Console(width=200, record=True, file=StringIO())
    scored = Scored(trajectory, (), 0.0, None)
    shown.print(trajectory_view(scored))
    stored: Any = SimpleNamespace(scored=scored, summary=SimpleNamespace(reward=0.0))
    page = render_page("turns.html", title="t", side=side("", stored, ""))
    for text in (shown.export_text(), page):
        assert all(text.count(words) == wanted.count(words) for words in wanted if words)


def test_what_is_shown_was_asked_by_the_agent_and_not_by_the_task() -> None:
    trajectory, _ = play("asks_in_its_own_words", [CALL, ANSWER, ANSWER])
    begin = Message("system", "Be brief."), Message("user", "11 letters?")
    other = begin[1], Message("user", "Check: Paris")
    assert [turn.asked for turn in trajectory.turns] == [begin, (Message("user", "Surely?"),), other]
    assert opening(trajectory, CHAT.decode).endswith("<|im_start|>user")
    scored = Scored(trajectory, (), 0.0, None)
    assert read(Scored, write(scored)) == scored
    stored: Any = SimpleNamespace(scored=scored, summary=SimpleNamespace(reward=0.0))
    lines = map(json.loads, transcript(trajectory).splitlines())
    turns = [line.get("content", "") + line.get("result", "") for line in lines]
    page = render_page("turns.html", title="t", side=side("", stored, ""))
    shown = Console(width=200, record=True, file=StringIO())
    shown.print(trajectory_view(scored))
    said = "Be brief.", "11 letters?", "Paris is here.", "Surely?", "Paris", "11 letters?", "Check: Paris", "Paris"
    for text in (shown.export_text(), page, "\n".join(turns)):
        assert "Which town?" not in text
        place = 0
        for words in said:
            place = text.index(words, place)
    assert "Which town?" in all_text(stored) and "Surely?" in all_text(stored)
    assert "sent more than a question" in candidate_of(scored, {}, CHAT, 0).fault
    plain, _ = play("plain", [CALL, ANSWER])
    assert [turn.asked for turn in plain.turns] == [(), ()], "the task itself, and what stands with the call"


def test_a_prompt_that_is_text_is_shown_as_what_the_agent_sent() -> None:
    trajectory, policy = play("writes_its_prompts_as_text", [ANSWER] * 3)
    check_exact(trajectory, policy)
    assert links(trajectory) == [calls.FIRST, "", calls.OTHER_TASK]
    asked = [[(one.role, one.content) for one in turn.asked] for turn in trajectory.turns]
    assert asked == [[("user", text)] for text in ("Q: 11 letters?", "Q: 11 letters?", "Check: Paris")]


def test_results_stand_with_the_calls_that_they_answer_whatever_their_ids() -> None:
    renamed, _ = play("renames_calls", [CALL, CALL, ANSWER])
    assert [record.result.text for record in renamed.calls] == ["Paris is here."] * 2
    assert renamed.world is not None and "results of unknown calls" not in (renamed.world.final_state or {})
    alike, _ = play("names_all_calls_alike", [TWO_CALLS, CALL, ANSWER])
    assert [record.result.text for record in alike.calls] == ["result 0", "result 1", "result 2"]
    text = CHAT.decode(alike.tokens)
    assert text.index("result 0") < text.index("result 1") < text.index("result 2"), "what the agent sent is shown"
    trajectory, _ = play("plain", [CALL, ANSWER])
    (record,) = trajectory.calls
    assert (record.call.name, record.result.text) == ("search", "Paris is here.")
    first, last = trajectory.turns
    assert first.observation_end == last.start
    assert "Paris is here." in CHAT.decode(trajectory.tokens[first.end : first.observation_end])


def test_training_sets_what_is_explored_and_says_so() -> None:
    trajectory, policy = play("wants_no_chance", [ANSWER])
    (request,) = policy.requests
    assert (request.sampling.temperature, request.sampling.top_p, request.seed) == (1.0, 1.0, 3)
    state = trajectory.world.final_state if trajectory.world else {}
    assert {key for key in state if key.startswith("overridden")} == {
        f"overridden: {key}" for key in ("temperature", "top_p", "seed", "max_tokens")
    }


@pytest.mark.parametrize(
    ("names", "overrides", "forced"),
    [(("search", "look"), True, False), (("search",), True, True), (("search", "look"), False, True)],
)
def test_which_of_several_tools_is_called_is_the_policys_to_learn(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], overrides: bool, forced: bool
) -> None:
    async def demands(task: Any, session: Any) -> str:
        tools = [adversaries.tool(name) for name in names]
        await adversaries.ask(session, [*task.messages], tools=tools, tool_choice="required")
        return "Paris"

    monkeypatch.setattr(adversaries, "plain", demands)
    trajectory, policy = play("plain", [CALL[CALL.index(' "arguments"') :] if forced else CALL], overrides=overrides)
    prompt = CHAT.decode(policy.requests[-1].tokens)
    state = trajectory.world.final_state if trajectory.world else {}
    assert ("<tool_call>" in prompt, "overridden: tool_choice" in state) == (forced, not forced)


def test_in_an_evaluation_the_agents_own_settings_hold() -> None:
    _, policy = play("wants_no_chance", [ANSWER], overrides=False)
    (request,) = policy.requests
    assert (request.sampling.temperature, request.sampling.top_p, request.max_tokens) == (0.0, 0.5, 1)


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("dies", "exit"),
        ("exits", "exit"),
        ("cancels_itself", "exit"),
        ("answers_unreadably", "exit"),
        ("hangs", "timeout"),
        ("never_calls", "no_call"),
        ("compacts", "break"),
    ],
)
def test_a_failure_is_named_and_left_out_of_the_loss_unless_it_is_the_policys(name: str, failure: str) -> None:
    limits: dict[str, Any] = {"timeout_s": 1.0 if name == "hangs" else 60.0}
    if failure == "break":
        limits["on_break"] = "fail"
    trajectory, policy = play(name, [CALL, CALL, ANSWER], **limits)
    check_exact(trajectory, policy)
    assert trajectory.stop is StopReason.INFRA_FAILURE
    assert (trajectory.error or "").startswith(f"agent: {failure}: ")
    scored, _ = play(name, [CALL, CALL, ANSWER], scored=[failure], **limits)
    assert scored.scorable
    assert scored.error is None


def test_a_body_may_take_as_long_as_its_trajectory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlf.core.servers.BODY_S", 0.1)
    trajectory, policy = play("sends_its_body_late", [ANSWER])
    check_exact(trajectory, policy)
    assert trajectory.answer == "Paris", trajectory.error


def test_calls_over_the_limit_end_the_trajectory() -> None:
    trajectory, policy = play("calls_for_ever", [ANSWER] * 9, max_calls=5)
    check_exact(trajectory, policy)
    assert trajectory.stop is StopReason.MAX_TURNS
    assert len(trajectory.turns) == 5


def test_a_prompt_over_the_context_is_refused_and_the_trajectory_ran_out_of_tokens() -> None:
    trajectory, policy = play("asks_too_much", [ANSWER])
    check_exact(trajectory, policy)
    assert trajectory.stop is StopReason.LENGTH
    assert adversaries.seen[-1][1]["error"]["code"] == "context_length_exceeded"


def test_a_call_after_the_end_is_refused() -> None:
    trajectory, policy = play("calls_after_its_end", [ANSWER, ANSWER])
    check_exact(trajectory, policy)
    assert adversaries.seen[-1][0] == 403
    assert adversaries.seen[-1][1]["error"]["code"] == "over"


def test_a_call_under_way_at_the_end_is_refused_as_one_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = ScriptedPolicy.sample

    async def hangs(policy: ScriptedPolicy, request: Any) -> Any:
        if not policy.requests:
            return await sample(policy, request)
        return await asyncio.sleep(60)

    async def leaves_a_call(task: Any, session: Any) -> str:
        answer = await adversaries.ask(session, [*task.messages])
        adversaries.late.append(asyncio.ensure_future(adversaries.ask(session, [*task.messages])))
        await asyncio.sleep(0.5)
        return str(adversaries.message_of(answer)["content"])

    monkeypatch.setattr(ScriptedPolicy, "sample", hangs)
    monkeypatch.setattr(adversaries, "plain", leaves_a_call)
    trajectory, policy = play("plain", [ANSWER, ANSWER])
    check_exact(trajectory, policy)
    assert (adversaries.seen[-1][0], trajectory.stop) == (403, StopReason.ANSWERED)
    assert adversaries.seen[-1][1]["error"]["code"] == "over"


def test_a_body_that_ends_after_its_trajectory_is_refused_as_a_call_after_the_end() -> None:
    play("leaves_a_body_open", [ANSWER])
    assert adversaries.seen[-1][0] == 403


def test_what_repeats_a_request_is_counted_and_no_call() -> None:
    trajectory, _ = play("repeats_itself_a_hundred_times", [CALL, ANSWER])
    assert trajectory.world is not None and (trajectory.world.final_state or {})["repeated"] == 99


def test_a_wrong_key_is_refused_and_costs_nothing() -> None:
    play("has_a_wrong_key", [ANSWER])
    assert adversaries.seen[0][0] == 401


def test_the_key_of_another_session_is_refused() -> None:
    adversaries.keys.clear()
    trajectories, policy = play_many("steals", [ANSWER], 2)
    assert sorted(status for status, _ in adversaries.seen) == [200, 200, 401, 401]
    assert [len(each.turns) for each in trajectories] == [1, 1]
    assert len(policy.requests) == 2


def test_the_calls_of_a_cancelled_fan_out_are_trained_once_and_answered_when_they_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sample, gate = ScriptedPolicy.sample, asyncio.Event()

    async def waits(policy: ScriptedPolicy, request: Any) -> Any:
        if policy.requests:
            await gate.wait()
        return await sample(policy, request)

    monkeypatch.setattr(ScriptedPolicy, "sample", waits)
    monkeypatch.setattr(adversaries, "gate", gate)
    trajectory, policy = play("cancels_a_fan_out", [ANSWER] * 8)
    check_exact(trajectory, policy)
    assert (len(policy.requests), trajectory.stop) == (8, StopReason.ANSWERED), trajectory.error
    assert trajectory.world is not None and (trajectory.world.final_state or {})["repeated"] == 7


def test_a_key_opens_nothing_in_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[AgentSession] = []
    both = asyncio.Barrier(2)

    async def visits(task: Any, session: AgentSession) -> str:
        met.append(session)
        await both.wait()
        other = next(one for one in met if one is not session)
        for url in (other.url, other.url.rsplit("/", 2)[0] + f"/{session.url.rsplit('/', 2)[1]}/v1"):
            await adversaries.ask(replace(session, url=url), [*task.messages])
        return str(adversaries.message_of(await adversaries.ask(session, [*task.messages]))["content"])

    async def main() -> list[Trajectory]:
        declared = AgentSpec(callable=f"{adversaries.__name__}:plain", timeout_s=60.0)
        async with AgentServer(declared, TOKENIZER) as one, AgentServer(declared, TOKENIZER) as other:
            policies = [ScriptedPolicy(TOKENIZER, [ANSWER], logprob=-0.5) for _ in range(2)]
            settings = map(make_setting, policies)
            players = [each.player(next(settings), overrides=True) for each in (one, other)]
            return await asyncio.gather(*(each.play(Rollout("r", TASK, 0, seed=3)) for each in players))

    adversaries.seen.clear()
    monkeypatch.setattr(adversaries, "plain", visits)
    assert [len(each.turns) for each in asyncio.run(main())] == [1, 1]
    assert sorted(status for status, _ in adversaries.seen) == [200, 200, 401, 401, 404, 404]


def test_many_sessions_at_once_keep_their_own_words_and_tokens() -> None:
    trajectories, policy = play_many("plain", [CALL, CALL, ANSWER], 64)
    assert all(links(each) == ["first", "", ""] for each in trajectories)
    assert len({tuple(each.tokens) for each in trajectories}) == 1, "templates that write no ids give equal tokens"
    assert len(policy.requests) == 3 * 64


def test_scores_that_the_agent_reports_are_the_worlds() -> None:
    trajectory, _ = play("reports", [ANSWER])
    assert trajectory.world is not None
    assert trajectory.world.scores == {"found": 0.5}
    assert [status for status, _ in adversaries.seen[:2]] == [200, 400]


def test_a_score_that_is_no_number_is_refused_as_the_agents_fault() -> None:
    trajectory, _ = play("reports_what_is_no_number", [ANSWER])
    assert [status for status, _ in adversaries.seen[:4]] == [400] * 4
    assert trajectory.world is not None and trajectory.world.scores == {}


def test_an_answer_is_text_that_can_be_kept() -> None:
    assert play("answers_half_a_character", [ANSWER])[0].answer == "Paris\ufffd"


def test_an_agent_without_an_answer_of_its_own_has_that_of_its_last_call() -> None:
    assert play("says_nothing", [CALL, ANSWER])[0].answer == "Paris"
    assert play("talks_long", [ANSWER])[0].answer == "Paris " * 180_000


def test_an_agent_is_not_given_the_gold_answer() -> None:
    from rlf.apps.serve.agents.programs import AgentTask

    task = AgentTask.of(TASK, frozenset({"answer"}))
    assert task.row == {"question": "Which town?"}


def test_an_engine_without_other_log_probabilities_refuses_them_and_goes_on() -> None:
    trajectory, _ = play("wants_logprobs")
    assert adversaries.seen[0][0] == 400 and "log-probability alone" in str(adversaries.seen[0][1])
    assert trajectory.stop is StopReason.INFRA_FAILURE


def test_a_function_that_would_block_the_loop_is_refused() -> None:
    with pytest.raises(RlfError, match="async def"):
        play("blocks")


def test_an_agent_that_swallows_its_cancellation_is_left_behind() -> None:
    trajectory, _ = play("keeps_going", timeout_s=0.2)
    assert trajectory.error is not None and trajectory.error.startswith("agent: timeout")


def certify(name: str, script: Sequence[str], **agent: Any) -> Notice:
    """What a run keeps of an adversary before its first step."""
    declared = AgentSpec(callable=f"{adversaries.__name__}:{name}", **agent)

    async def main() -> Notice:
        async with AgentServer(declared, TOKENIZER) as server:
            player = lambda policy, sampling: server.player(make_setting(policy), overrides=True)  # noqa: E731
            harness: Any = SimpleNamespace(player=player, training=None)
            return await server.certify(harness, ScriptedPolicy(TOKENIZER, [*script], logprob=-0.5), [TASK, TASK], 0)

    return asyncio.run(main())


def test_a_runs_certificate_says_what_continues_and_warns_of_what_does_not() -> None:
    sound = certify("plain", [CALL, ANSWER])
    assert (sound.level, sound.data["agent"]["continued_share"], sound.data["agent"]["num_wrong"]) == ("info", 1.0, 0)
    assert "none is seen to continue" in certify("plain", [ANSWER]).text
    broken = certify("edits_history", [CALL, ANSWER])
    assert (broken.level, broken.data["agent"]["new_contexts"]) == ("warning", {calls.EDITED: 2})
    assert "never rewrite" in broken.text


def test_a_run_ends_below_the_share_that_its_spec_asks_for_and_not_for_an_agent_that_is_down() -> None:
    with pytest.raises(CheckError, match=r"least_continued: got 0\.5"):
        certify("edits_history", [CALL, ANSWER], least_continued=0.5)
    assert certify("edits_history", [CALL, ANSWER], least_continued=0.0).level == "info"
    assert certify("dies", [ANSWER], least_continued=1.0).level == "warning"


Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]


def play_service(answer: Serve, task: Task = TASK, redact: Callable[[str], str] = str) -> Trajectory:
    """Plays a trajectory by a service."""

    async def main() -> Trajectory:
        app = web.Application()
        app.router.add_post("/run", answer)
        async with TestServer(app) as service:
            declared = AgentSpec(url=str(service.make_url("/run")), timeout_s=60.0)
            setting = make_setting(ScriptedPolicy(TOKENIZER, [ANSWER], logprob=-0.5))
            async with AgentServer(declared, TOKENIZER, redact=redact) as server:
                return await server.player(setting, overrides=True).play(Rollout("r", task, 0, seed=3))

    return asyncio.run(main())


def play_command(command: Sequence[str] | str, task: Task = TASK, **agent: Any) -> Trajectory:
    """Plays a trajectory by a program."""

    async def main() -> Trajectory:
        setting = make_setting(ScriptedPolicy(TOKENIZER, [ANSWER], logprob=-0.5))
        async with AgentServer(AgentSpec.model_validate({"command": command, **agent}), TOKENIZER) as server:
            return await server.player(setting, overrides=True).play(Rollout("r", task, 0, seed=3))

    return asyncio.run(main())


@pytest.mark.parametrize(("size", "error"), [(1 << 20, None), (5 << 20, "agent: flood")])
def test_a_services_answer_is_read_whole_up_to_its_limit(size: int, error: str | None) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        session: Any = SimpleNamespace(**(await request.json())["session"])
        await adversaries.ask(session, [{"role": "user", "content": "Which town?"}])
        response = web.StreamResponse()
        await response.prepare(request)
        body = json.dumps({"answer": "a" * size}).encode()
        for start in range(0, len(body), 1 << 16):
            await response.write(body[start : start + (1 << 16)])
        await response.write_eof()
        return response

    trajectory = play_service(answer)
    if error is None:
        assert trajectory.answer == "a" * size
    else:
        assert (trajectory.error or "").startswith(error)


@pytest.mark.parametrize("body", ["", "[" * 100_000, '{"answer": "\\ud83d"}', "no JSON"])
def test_what_a_service_answers_that_is_no_json_is_its_failure(body: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=body)

    assert "answered no JSON" in (play_service(answer).error or "")


def test_a_service_cannot_send_the_key_on_to_another_address() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect("http://127.0.0.1:1/run")

    assert "answered 307" in (play_service(answer).error or "")


def test_secrets_that_a_service_says_are_struck_out() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=500, text=f"sesame {(await request.json())['session']['key']}")

    error = play_service(answer, redact=lambda text: text.replace("sesame", "***")).error or ""
    assert error.endswith("answered 500: *** ***")


def test_every_row_reaches_a_service_and_a_command() -> None:
    columns = {"day": date(2020, 1, 1), "blob": b"\xff", "nothing": float("nan"), "some": {1}, "half": "a\ud83d"}
    rows = []

    async def answer(request: web.Request) -> web.StreamResponse:
        rows.append((await request.json())["task"]["row"])
        return web.json_response({})

    play_service(answer, replace(TASK, columns=columns))
    (row,) = rows
    assert (row["day"], row["nothing"], row["some"], row["half"]) == ("2020-01-01", None, [1], "a\ufffd")
    trajectory = play_command("cat task.json", replace(TASK, columns=columns))
    assert trajectory.world is not None
    assert json.loads(trajectory.world.final_state["output"])["row"] == row


@pytest.mark.parametrize(
    "code",
    [
        "print('[' * 100_000)",
        "import os\nfor _ in range(1200): os.mkdir('d'); os.chdir('d')",
        "import os, shutil; shutil.rmtree(os.getcwd())",
        "import os; os.symlink('/etc', 'l'); os.chmod('.', 0)",
    ],
    ids=["deep_json", "deep_folders", "no_folder", "closed_folder"],
)
def test_whatever_a_program_leaves_behind_the_trajectory_ends_and_its_folder_is_removed(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    trajectory = play_command([sys.executable, "-c", code])
    assert (trajectory.error or "").startswith("agent: no_call")
    assert not list(tmp_path.glob(".rlf-agents*/*"))


def test_a_program_that_kills_its_supervisor_is_ended_all_the_same(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    code = f"import os, time; open({str(noted)!r}, 'w').write(str(os.getpid())); os.kill(os.getppid(), 9)"
    # It closes its output, by which its end would be waited for.
    trajectory = play_command([sys.executable, "-c", f"{code}; os.close(1); os.close(2); time.sleep(600)"])
    assert "SIGKILL" in (trajectory.error or "")
    for _ in range(600):
        if not Path("/proc", noted.read_text()).exists() or "Z (zombie)" in _status_of(noted.read_text()):
            return
        time.sleep(0.05)
    pytest.fail("it goes on")


def _status_of(pid: str) -> str:
    try:
        return Path("/proc", pid, "status").read_text()
    except OSError:
        return "Z (zombie)"


def test_a_program_that_is_not_there_is_refused_before_anything_is_played() -> None:
    with pytest.raises(RlfError, match="there is no program 'no-such-program'"):
        play_command("no-such-program --now")


def test_a_prompt_that_no_command_line_holds_is_a_failure_of_the_agent() -> None:
    trajectory = play_command("true {{ prompt }}", replace(TASK, messages=(Message("user", "long " * 40_000),)))
    assert (trajectory.error or "").startswith("agent: exit: it could not be started")


def test_a_zero_byte_of_a_prompt_reaches_a_command_as_another_character() -> None:
    trajectory = play_command("echo {{ prompt }}", replace(TASK, messages=(Message("user", "a\0b \ud83d"),)))
    assert trajectory.world is not None
    assert trajectory.world.final_state["output"].startswith("a\ufffdb \ufffd")


PRISONER = """
import json, os, socket, sys, urllib.request

def tries(attempt, *arguments):
    try:
        attempt(*arguments)
    except (OSError, ValueError):
        return False
    return True

body = {"model": "policy", "messages": [{"role": "user", "content": "Which town?"}]}
head = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
asked = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(), head)
with urllib.request.urlopen(asked) as answer:
    json.load(answer)
open("own", "w").close()
print(json.dumps({
    "answer": [
        name for name, found in {
            "a file beside the spec": tries(open, sys.argv[1] + "/secret"),
            "the name of one": os.listdir(sys.argv[1]) != ["agent.py"],
            "a change of its own code": tries(open, __file__, "a"),
            "a change of the system": tries(open, "/usr/own", "w"),
            "another server": tries(socket.create_connection, ("127.0.0.1", int(sys.argv[2])), 5),
            "passwords": tries(open, "/etc/shadow"),
            "rights of root": "CapEff:\\t0000000000000000" not in open("/proc/self/status").read(),
            "processes of others": len([name for name in os.listdir("/proc") if name.isdigit()]) > 3,
        }.items() if found
    ]
}))
"""


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_a_command_in_a_sandbox_reaches_its_session_and_its_folder_alone(tmp_path: Path) -> None:
    program = tmp_path / "agent.py"
    program.write_text(PRISONER, encoding="utf-8")
    (tmp_path / "secret").write_text("sesame", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as other:
        command = [sys.executable, str(program), str(tmp_path), str(other.getsockname()[1])]
        assert play_command(command).answer != "[]"
        trajectory = play_command(command, isolation="sandbox")
    assert (trajectory.answer, trajectory.error, len(trajectory.turns)) == ("[]", None, 1)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("no-bubblewrap", r"bubblewrap is not installed\. Run `apt-get"),
        ("false", "bubblewrap contains nothing here: exit code 1"),
    ],
)
def test_a_sandbox_that_is_not_there_is_refused_before_anything_is_played(
    program: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "BUBBLEWRAP", program)
    with pytest.raises(RlfError, match=rf"rollout\.agent\.isolation: {words}"):
        play_command("true", isolation="sandbox")
    with pytest.raises(ValueError, match="got sandbox with `url`, which rlf does not start"):
        AgentSpec(url="http://127.0.0.1:9", isolation="sandbox")
