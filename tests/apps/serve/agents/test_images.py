"""An agent's images are tokens as in rlf's own loop, whichever protocol they come by."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import aiohttp
import pytest

from rlf.apps.serve.agents import AgentServer
from rlf.apps.serve.agents.programs import AgentSession, AgentTask
from rlf.chat.format import open_format
from rlf.chat.vision import Vision, load_processor
from rlf.rollout.loop import Setting
from rlf.rollout.rollout import Rollout, RolloutLimits
from rlf.rollout.scripted import ScriptedPolicy
from rlf.spec.agent import AgentSpec
from rlf.tools.declaration import ToolDeclaration
from rlf.tools.execution.executor import Executor
from rlf.types import Image, Message, Task, ToolOutput, Trajectory
from rlf.types.policy import Sampling
from tests.vision import make_tiny_llava

Json = dict[str, Any]
pytest.importorskip("PIL")
LOOK = '<tool_call>\n{"name": "look", "arguments": {"query": "it"}}\n</tool_call><|im_end|>'
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOL = ToolDeclaration.model_validate(
    {
        "name": "look",
        "description": "Looks.",
        "inputSchema": SCHEMA,
        "target": {"kind": "python", "callable": f"{__name__}:look", "isolation": "inline"},
    }
)


def picture(red: int) -> Image:
    from PIL import Image as Pillow

    file = io.BytesIO()
    Pillow.new("RGB", (20, 30), (red, 0, 0)).save(file, "PNG")
    return Image(file.getvalue(), "image/png")


FIRST, SECOND, THIRD = picture(200), picture(20), picture(90)
TASK = Task("t", (Message("user", "<image> or <image>?", (FIRST.reference, SECOND.reference)),), answer="red")


def look(query: str) -> ToolOutput:
    return ToolOutput("It is here.", images=(THIRD,))


async def ask(session: AgentSession, path: str, body: Json) -> Json:
    head = {"Authorization": f"Bearer {session.key}"}
    async with (
        aiohttp.ClientSession(headers=head) as client,
        client.post(f"{session.url}/{path}", json={"model": "policy", **body}) as response,
    ):
        found: Json = await response.json()
        assert response.status == 200, found
        return found


def url(image: Image) -> Json:
    return {"type": "image_url", "image_url": {"url": image.reference}}


async def by_chat(task: AgentTask, session: AgentSession) -> None:
    tools = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA}}]
    messages: list[Any] = list(task.messages)
    message = (await ask(session, "chat/completions", {"messages": messages, "tools": tools}))["choices"][0]["message"]
    result = [{"type": "text", "text": SHOWN}, url(THIRD)]
    messages += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": result}]
    await ask(session, "chat/completions", {"messages": messages, "tools": tools})


async def by_mcp(task: AgentTask, session: AgentSession) -> None:
    """The tool is the spec's own: what it returns goes back to the model as it came."""
    tools = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA}}]
    messages: list[Any] = list(task.messages)
    message = (await ask(session, "chat/completions", {"messages": messages, "tools": tools}))["choices"][0]["message"]
    called = message["tool_calls"][0]
    params = {"name": "look", "arguments": json.loads(called["function"]["arguments"])}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    text, image = (await ask(session, "../mcp", asked))["result"]["content"]
    shown = {"type": "image_url", "image_url": {"url": f"data:{image['mimeType']};base64,{image['data']}"}}
    messages += [message, {"role": "tool", "tool_call_id": called["id"], "content": [text, shown]}]
    await ask(session, "chat/completions", {"messages": messages, "tools": tools})


async def by_responses(task: AgentTask, session: AgentSession) -> None:
    def part(image: Image) -> Json:
        return {"type": "input_image", "image_url": image.reference}

    tools = [{"type": "function", "name": "look", "description": "Looks.", "parameters": SCHEMA}]
    asked = [part(FIRST), {"type": "input_text", "text": " or "}, part(SECOND), {"type": "input_text", "text": "?"}]
    first = await ask(session, "responses", {"input": [{"role": "user", "content": asked}], "tools": tools})
    output = [{"type": "input_text", "text": SHOWN}, part(THIRD)]
    result = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": output}
    again = {"input": [result], "previous_response_id": first["id"], "tools": tools}
    await ask(session, "responses", again)


async def by_messages(task: AgentTask, session: AgentSession) -> None:
    def block(image: Image) -> Json:
        data = image.reference.partition(",")[2]
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}

    shared = {"max_tokens": 50, "tools": [{"name": "look", "description": "Looks.", "input_schema": SCHEMA}]}
    asked = [block(FIRST), {"type": "text", "text": " or "}, block(SECOND), {"type": "text", "text": "?"}]
    messages: list[Any] = [{"role": "user", "content": asked}]
    first = (await ask(session, "messages", {"messages": messages, **shared}))["content"]
    result = {"type": "tool_result", "tool_use_id": first[0]["id"]}
    result |= {"content": [{"type": "text", "text": SHOWN}, block(THIRD)]}
    messages += [{"role": "assistant", "content": first}, {"role": "user", "content": [result]}]
    await ask(session, "messages", {"messages": messages, **shared})


async def refused(task: AgentTask, session: AgentSession) -> str:
    errors = []
    for content in (
        [{"type": "image_url", "image_url": {"url": "/etc/passwd"}}],
        [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}],
        [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}],
        [url(FIRST), {"type": "text", "text": "<image>"}],
        [url(FIRST)] * 4,
    ):
        with pytest.raises(AssertionError) as error:
            await ask(session, "chat/completions", {"messages": [{"role": "user", "content": content}]})
        errors.append(str(error.value))
    first: list[Any] = [{"role": "user", "content": [url(FIRST)]}]
    said = (await ask(session, "chat/completions", {"messages": first}))["choices"][0]["message"]
    later = [*first, said, {"role": "user", "content": [url(SECOND)]}]
    with pytest.raises(AssertionError) as error:
        await ask(session, "chat/completions", {"messages": later})
    errors.append(str(error.value))
    await ask(session, "chat/completions", {"messages": [{"role": "user", "content": [url(SECOND)]}]})
    return json.dumps(errors)


SHOWN = ""
"""The text of the tool's result, as the loop shows it."""


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load_processor(str(make_tiny_llava(tmp_path_factory.mktemp("model"))))


class Seeing(ScriptedPolicy):
    """Notes which images it is shown."""

    def __init__(self, *script: Any) -> None:
        super().__init__(*script)
        self.images: list[tuple[str, ...]] = []

    async def sample(self, request: Any) -> Any:
        self.images.append(request.images)
        return await super().sample(request)


def play(processor: Any, agent: str | None, script: list[str]) -> tuple[Trajectory, list[tuple[str, ...]]]:
    async def main() -> tuple[Trajectory, list[tuple[str, ...]]]:
        policy = Seeing(processor.tokenizer, script)
        chat = open_format("auto", processor.tokenizer, [TOOL.description_for_model])
        chat.see(Vision(processor))
        limits = RolloutLimits(max_turns=4, max_total_tokens=600, max_images=3)
        async with Executor((TOOL,)) as executor:
            sampling = Sampling(stop_token_ids=chat.stop_token_ids)
            setting = Setting(policy, chat, executor, limits, sampling)
            if agent is None:
                return await setting.play(Rollout("r", TASK, 0, seed=3)), policy.images
            spec = AgentSpec(callable=f"{__name__}:{agent}")
            async with AgentServer(spec, processor.tokenizer) as server:
                player = server.player(setting, overrides=True)
                return await player.play(Rollout("r", TASK, 0, seed=3)), policy.images

    return asyncio.run(main())


@pytest.mark.parametrize("agent", ["by_chat", "by_mcp", "by_responses", "by_messages"])
def test_images_of_prompt_and_result_are_those_of_the_loop(
    processor: Any, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [LOOK, "red<|im_end|>"]
    wanted, shown = play(processor, None, script)
    monkeypatch.setitem(globals(), "SHOWN", wanted.turns[0].calls[0].result.text)
    found, seen = play(processor, agent, script)
    assert len(wanted.images) == 3 and wanted.tokens.count(processor.image_token_id) == 48
    assert found.error is None and [turn.link for turn in found.turns] == ["first", ""]
    for name in ("tokens", "action_mask", "rollout_logprobs", "images", "answer"):
        assert getattr(found, name) == getattr(wanted, name), name
    assert seen == shown


def test_an_image_that_cannot_be_shown_is_refused_and_another_one_is_another_prompt(processor: Any) -> None:
    found, _ = play(processor, "refused", ["red<|im_end|>", "blue<|im_end|>"])
    assert found.error is None and found.answer is not None
    words = ("no data: URI", "no data: URI", "no PNG", "marks no place", "rollout.max_images: got 4 images; at most 3")
    later = "images stand in the first prompt, and in results of calls that continue it, alone"
    errors = json.loads(found.answer)
    assert all(word in error for word, error in zip((*words, later), errors, strict=True)), found.answer
    assert [turn.link for turn in found.turns] == ["first", "other first message"]
    assert found.images == (FIRST.reference, SECOND.reference)
