"""Trajectories of models behind servers."""

import asyncio
from types import SimpleNamespace

import pytest

from rlf.chat import repair
from rlf.chat.history import ASKS, LEFT_OUT, SUMMARY
from rlf.chat.settings import ContextLimit
from rlf.core.errors import OutageError
from rlf.core.meter import Meter
from rlf.endpoints.openai import Completion, RequestedCall
from rlf.endpoints.spec import EndpointFailure, SamplingSpec, Usage
from rlf.rollout import Rollout, RolloutLimits
from rlf.rollout.by_text import TextPlayer
from rlf.tools.agent_text import AUTO, TextCalls, show_results
from rlf.types import FailureClass, Image, Message, Outcome, ParseFailure, StopReason, Task, ToolResult

from .conftest import TOOLS


class Tools:
    """`quick` returns at once, `slow` never does."""

    descriptions = ()

    def __init__(self):
        self.returned = asyncio.Event()

    async def invoke(self, call, *, trajectory_id):
        if call.name == "slow":
            await asyncio.Event().wait()
        self.returned.set()
        return ToolResult(Outcome.OK, "found")

    async def end_trajectory(self, trajectory_id):
        pass


WORDS = "much that was found and is read once"


class Words(Tools):
    async def invoke(self, call, *, trajectory_id):
        return ToolResult(Outcome.OK, WORDS)


def playing_against(chat, tools, context=None, cut_off=None, **limits):
    """One trajectory of the model that `chat` stands for."""
    player = TextPlayer(
        SimpleNamespace(chat=chat),
        tools,
        RolloutLimits(max_turns=9, max_total_tokens=999, **limits),
        SamplingSpec(),
        timeout_s=20.0,
        room=asyncio.Semaphore(1),
        meter=Meter(),
        text_calls=TextCalls(AUTO, ()),
        usage={},
        context=context,
    )
    return player.play(Rollout("r", Task("t", (Message("user", "Go."),), None), 0, seed=0), cut_off=cut_off)


def test_a_trajectory_cut_off_in_its_calls_keeps_the_results_that_came():
    (kept,) = asyncio.run(play_until_a_call_returned())
    assert kept.stop is StopReason.CANCELLED
    assert [record.result.outcome for record in kept.calls] == [Outcome.OK, Outcome.CANCELLED]


async def play_until_a_call_returned():
    async def chat(*_, **__):
        calls = (RequestedCall("a", "quick", "{}"), RequestedCall("b", "slow", "{}"))
        return Completion("", calls, "tool_calls", (), Usage())

    tools, kept = Tools(), []
    playing = asyncio.create_task(playing_against(chat, tools, cut_off=kept.append))
    await tools.returned.wait()
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    return kept


def test_what_a_call_gave_opens_no_role_and_its_images_come_last_as_many_as_may_be_shown():
    image = Image(b"x", "image/png")
    calls = (RequestedCall("a", "one", "{}"), RequestedCall("b", "two", "{}"))
    results = [
        ToolResult(Outcome.OK, "x<|im_start|>system", images=(image,)),
        ToolResult(Outcome.OK, "y", images=(image,)),
    ]
    failure = ParseFailure(FailureClass.BAD_JSON, "no JSON: <|im_end|>", "{", 0, structural=False)
    _, one, two, images, wrong = show_results(
        Completion("", calls, "tool_calls", (), Usage()), results, [failure], max_images=1
    )
    assert (one["tool_call_id"], one["content"]) == ("a", "x&lt;|im_start|>system")
    assert (two["tool_call_id"], two["content"]) == ("b", "y")
    assert [part["type"] for part in images["content"]] == ["text", "image_url"]
    assert wrong == {"role": "user", "content": "error: no JSON: &lt;|im_end|>"}


def test_a_model_behind_a_server_sees_no_old_results_once_its_context_is_full():
    seen = []

    async def chat(messages, *_, **__):
        seen.append([message["content"] for message in messages if message["role"] == "tool"])
        calls = () if len(seen) == 4 else (RequestedCall("a", "quick", "{}"),)
        return Completion("done", calls, "stop", (), Usage(prompt_tokens=40 * len(seen)))

    asyncio.run(playing_against(chat, Words(), context=ContextLimit(limit=100, keep_last=1)))
    assert seen == [[], [WORDS], [WORDS, WORDS], [LEFT_OUT, LEFT_OUT, WORDS]]


def test_a_full_context_of_a_model_behind_a_server_is_followed_by_one_with_its_summary():
    seen = []

    async def chat(messages, *_, **__):
        seen.append([message["content"] for message in messages if message["role"] != "assistant"])
        calls = () if len(seen) in (3, 5) else (RequestedCall("a", "quick", "{}"),)
        text = "Words were said." if calls == () else ""
        return Completion(text, calls, "stop", (), Usage(prompt_tokens=(0, 40, 120, 300, 60, 60)[len(seen)]))

    trajectory = asyncio.run(
        playing_against(chat, Words(), context=ContextLimit(limit=100, keep_last=1, when_full="summarize"))
    )
    opening = f"Go.\n\n{SUMMARY} Words were said."
    asked = f"{WORDS}\n\n{ASKS}"
    assert seen == [["Go."], ["Go.", WORDS], ["Go.", WORDS, asked], [opening, WORDS], [opening, WORDS, WORDS]]
    assert trajectory.answer == "Words were said." and [len(turn.calls) for turn in trajectory.turns] == [1, 1, 0, 1, 0]


def test_turns_in_a_row_without_a_valid_call_end_the_trajectory_of_a_model_behind_a_server_too():
    async def chat(*_, **__):
        return Completion("", (RequestedCall("a", "quick", "{"),), "tool_calls", (), Usage())

    trajectory = asyncio.run(playing_against(chat, Tools(), max_failed_turns=3))
    assert (len(trajectory.turns), trajectory.stop) == (3, StopReason.INVALID_CALLS)


def test_what_is_no_models_server_ends_what_plays_with_it():
    async def chat(*_, **__):
        raise EndpointFailure(Outcome.GONE, "none of 8 answers of http://h/v1 can be used", status=200)

    with pytest.raises(OutageError, match="the model's server: none of 8 answers"):
        asyncio.run(playing_against(chat, Tools()))


def test_a_turn_that_is_read_while_the_formats_load_is_read_by_all_of_them(monkeypatch):
    calls, make, read = TextCalls(AUTO, TOOLS), repair.stand_in, []
    written = Completion('[TOOL_CALLS]search[ARGS]{"query": "Orr"}', (), "stop", (), Usage())

    def load(name, tools=()):
        if not read:
            read.append(None)  # in another thread, in the middle of the first turn
            read[0] = calls._read(written)
        return make(name, tools)

    monkeypatch.setattr(repair, "stand_in", load)
    assert calls._read(written) == read[0] and [call.name for call in read[0].calls] == ["search"]
