"""Tools that work on the images of their trajectory: the policy names none, and the tool gets them."""

import asyncio
import base64
from types import SimpleNamespace

import pytest

from rlf.core.meter import Meter
from rlf.endpoints.openai import Completion, RequestedCall
from rlf.endpoints.spec import SamplingSpec, Usage
from rlf.rollout import Rollout, RolloutLimits, Setting, play
from rlf.rollout.by_text import TextPlayer
from rlf.rollout.scripted import ScriptedPolicy
from rlf.tools import Executor, ToolDeclaration
from rlf.tools.agent_text import AUTO, TextCalls
from rlf.types import Image, Message, Outcome, Sampling, Task, ToolOutput

from ..chat.tokenizers import byte_level
from .conftest import MARKUP, TEMPLATE

STOP = "<|im_end|>"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
FIRST = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
TURNED = PNG + b"turned"


def turn(degree: int, image: str) -> ToolOutput:
    """Turn the image.

    Args:
        degree: by how much, clockwise.
    """
    data = base64.b64decode(image)
    return ToolOutput(f"turned {len(data)} bytes by {degree}", images=(Image(data + b"turned", "image/png"),))


def count(images: list[str]) -> str:
    """Count the images."""
    return ", ".join(str(len(base64.b64decode(one))) for one in images) or "none"


def double() -> ToolOutput:
    """Show two images."""
    return ToolOutput("two", images=(Image(PNG, "image/png"), Image(TURNED, "image/png")))


def declare(function, **keys):
    where = f"{__name__}:{function.__name__}"
    return ToolDeclaration.model_validate(
        {"name": function.__name__, "target": {"kind": "python", "callable": where}} | keys
    )


TOOLS = [declare(turn, images="image"), declare(count, images="images"), declare(double)]
CALLS = [("turn", '{"degree": 90}'), ("count", "{}"), ("turn", '{"degree": 1, "image": "QQ=="}'), ("count", "{}")]
TASK = Task("t", (Message("user", "<image> Upright?", (FIRST,)),))


def by_turn(calls):
    """Calls by turns: a list has those of one, any other is alone in its turn."""
    return [one if isinstance(one, list) else [one] for one in calls]


def texts_of(trajectory):
    return [record.result.text.partition("\n")[0] for record in trajectory.calls]


async def play_tokens(chat_class, task, max_images=4, calls=CALLS):
    async with Executor(TOOLS) as executor:

        class Seeing(chat_class):
            shows_results = True

            def prompt(self, messages, tools):
                return super().prompt([Message(one.role, "Upright?") for one in messages], tools)

            def observation(self, texts, *, closed, turn, images=()):
                return super().observation(texts, closed=closed, turn=turn)

        tokenizer = byte_level(MARKUP, TEMPLATE)
        chat = Seeing(tokenizer, executor.descriptions)
        script = [
            "\n".join(
                f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
                for name, arguments in of_turn
            )
            + STOP
            for of_turn in by_turn(calls)
        ]
        limits = RolloutLimits(max_turns=9, max_total_tokens=99999, max_images=max_images)
        policy = ScriptedPolicy(tokenizer, [*script, f"Yes.{STOP}"])
        sampling = Sampling(stop_token_ids=chat.stop_token_ids)
        return await play(Rollout("r", task, 0, seed=0), Setting(policy, chat, executor, limits, sampling))


async def play_text(task, max_images=4, calls=CALLS):
    requests = [
        tuple(RequestedCall(f"c{turn}.{place}", *call) for place, call in enumerate(of_turn))
        for turn, of_turn in enumerate(by_turn(calls))
    ]
    left = [Completion("", of_turn, "tool_calls", (), Usage()) for of_turn in requests]
    left.append(Completion("Yes.", (), "stop", (), Usage()))

    async def chat(*_, **__):
        return left.pop(0)

    async with Executor(TOOLS) as executor:
        player = TextPlayer(
            SimpleNamespace(chat=chat),
            executor,
            RolloutLimits(max_turns=9, max_total_tokens=999, max_images=max_images),
            SamplingSpec(),
            timeout_s=20.0,
            room=asyncio.Semaphore(1),
            meter=Meter(),
            text_calls=TextCalls(AUTO, ()),
            usage={},
        )
        return await player.play(Rollout("r", task, 0, seed=0))


@pytest.fixture(params=["tokens", "text"])
def played(request, chat):
    if request.param == "text":
        return lambda *given: asyncio.run(play_text(*given))
    return lambda *given: asyncio.run(play_tokens(type(chat), *given))


def test_a_tool_gets_the_last_image_or_all_of_them_in_place_of_what_the_model_wrote(played):
    trajectory = played(TASK)
    size, turned = len(PNG), len(TURNED)
    assert texts_of(trajectory)[:2] == [f"turned {size} bytes by 90", f"{size}, {turned}"]
    assert texts_of(trajectory)[2:] == [f"turned {turned} bytes by 1", f"{size}, {turned}, {turned + 6}"]
    assert [dict(record.call.arguments) for record in trajectory.calls] == [
        {"degree": 90},
        {},
        {"degree": 1, "image": "QQ=="},
        {},
    ], "what the model wrote is what is recorded"


def test_an_image_that_the_policy_is_not_shown_is_not_given_to_a_tool_either(played):
    assert texts_of(played(TASK, 2))[2:] == [f"turned {len(TURNED)} bytes by 1", f"{len(PNG)}, {len(TURNED)}"]


def test_the_calls_of_a_turn_show_together_as_many_images_as_are_left(played):
    both = [("double", "{}"), ("double", "{}")]
    sizes = [str(len(each)) for each in (PNG, PNG, TURNED, PNG)]
    assert texts_of(played(TASK, 4, [both, ("count", "{}")])) == ["two", "two", ", ".join(sizes)]


def test_without_an_image_the_model_reads_that_there_is_none(played):
    trajectory = played(Task("t", (Message("user", "Upright?"),)), 4, CALLS[:2])
    assert texts_of(trajectory) == ["error: turn works on an image, and there is none yet", "none"]
    assert trajectory.calls[0].result.outcome is Outcome.TOOL_ERROR and trajectory.scorable


def test_the_model_does_not_see_the_argument_of_images():
    shown = [tool.description_for_model.as_openai()["function"]["parameters"] for tool in TOOLS]
    assert [(list(one["properties"]), one["required"]) for one in shown[:2]] == [(["degree"], ["degree"]), ([], [])]


def test_an_argument_of_images_that_there_is_not_is_a_fault_with_its_place():
    with pytest.raises(ValueError, match=r"inputSchema has no argument 'picture' \(it has: degree, image\)") as fault:
        declare(turn, images="picture")
    assert fault.value.errors()[0]["loc"] == ("images",)
