"""`python with_openai.py URL`: what users of the openai package do, run in an environment that has it."""

import asyncio
import json
import sys

from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI
from question import FACT, QUESTION, TOWN

URL, MODEL = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "tiny"
MESSAGES = [{"role": "user", "content": QUESTION}]
PARAMETERS = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
SEARCH = {"type": "function", "function": {"name": "search", "description": "S.", "parameters": PARAMETERS}}
ASKED = {"model": MODEL, "messages": MESSAGES, "temperature": 0, "max_tokens": 40}


def check_chat(client: OpenAI) -> None:
    answer = client.chat.completions.create(**ASKED, logprobs=True, top_logprobs=2, n=2, seed=1)
    assert len(answer.choices) == 2 and answer.choices[0].message.content
    token = answer.choices[0].logprobs.content[0]
    assert bytes(token.bytes).decode() == token.token and len(token.top_logprobs) == 2
    parts = client.chat.completions.create(**ASKED, stream=True, stream_options={"include_usage": True})
    chunks = list(parts)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == answer.choices[0].message.content
    assert chunks[-1].usage.completion_tokens > 0


def check_tools(client: OpenAI) -> None:
    first = client.chat.completions.create(**ASKED, tools=[SEARCH]).choices[0].message
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": FACT}
    second = client.chat.completions.create(**{**ASKED, "messages": [*MESSAGES, first, result]}, tools=[SEARCH])
    assert second.choices[0].message.content == TOWN, second
    with client.chat.completions.stream(**ASKED, tools=[SEARCH]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds
    assert json.loads(final.choices[0].message.tool_calls[0].function.arguments)["query"]
    forced = client.chat.completions.create(**ASKED, tools=[SEARCH], tool_choice="required", parallel_tool_calls=False)
    assert forced.choices[0].message.tool_calls[0].function.name == "search"


def check_responses(client: OpenAI) -> None:
    asked = {"model": MODEL, "input": QUESTION, "temperature": 0, "max_output_tokens": 40}
    answer = client.responses.create(**asked)
    assert answer.status == "completed" and answer.output_text
    tool = {"type": "function", "name": "search", "description": "S.", "parameters": PARAMETERS}
    with client.responses.stream(**asked, tools=[tool]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    call = final.output[0]
    assert call.type == "function_call" and json.loads(call.arguments)["query"]
    told = {"type": "function_call_output", "call_id": call.call_id, "output": FACT}
    items = [*MESSAGES, call.model_dump(exclude_none=True), told]
    assert client.responses.create(**{**asked, "input": items}, tools=[tool]).output_text == TOWN


def check_rest(client: OpenAI) -> None:
    assert client.models.list().data[0].id == MODEL == client.models.retrieve(MODEL).id
    assert client.completions.create(model=MODEL, prompt="Tukkes is", max_tokens=4).choices[0].text
    for kind, keys in (
        (BadRequestError, {"response_format": {"type": "xml"}}),
        (NotFoundError, {"model": "x"}),
    ):
        try:
            client.chat.completions.create(**{**ASKED, **keys})
        except kind as error:
            assert error.body["message"]
        else:
            raise AssertionError(keys)


async def check_async() -> None:
    async with AsyncOpenAI(base_url=URL, api_key="none") as client:
        answers = await asyncio.gather(*(client.chat.completions.create(**ASKED) for _ in range(8)))
        assert len({answer.choices[0].message.content for answer in answers}) == 1
        stream = await client.chat.completions.create(**ASKED, tools=[SEARCH], stream=True)
        names = [call.function.name async for c in stream for call in c.choices[0].delta.tool_calls or ()]
        assert names[0] == "search"


if __name__ == "__main__":
    with OpenAI(base_url=URL, api_key="none") as client:
        for check in (check_chat, check_tools, check_responses, check_rest):
            check(client)
    asyncio.run(check_async())
