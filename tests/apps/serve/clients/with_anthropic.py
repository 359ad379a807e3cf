"""`python with_anthropic.py URL`: what users of the anthropic package do, run in an environment that has it."""

import sys

from anthropic import Anthropic, BadRequestError, beta_tool
from question import FACT, QUESTION, TOWN

BASE, MODEL = sys.argv[1].removesuffix("/v1"), sys.argv[2] if len(sys.argv) > 2 else "tiny"
PARAMETERS = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
SEARCH = {"name": "search", "description": "S.", "input_schema": PARAMETERS}
MESSAGES = [{"role": "user", "content": QUESTION}]
ASKED = {"model": MODEL, "max_tokens": 40, "messages": MESSAGES, "extra_body": {"temperature": 0}}


def check_text(client: Anthropic) -> None:
    answer = client.messages.create(**ASKED, system="Be short.")
    assert answer.content[0].type == "text" and answer.stop_reason in ("end_turn", "max_tokens")
    with client.messages.stream(**ASKED, system="Be short.") as stream:
        assert "".join(stream.text_stream) == answer.content[0].text
        assert stream.get_final_message().usage.output_tokens == answer.usage.output_tokens


def check_tools(client: Anthropic) -> None:
    first = client.messages.create(**ASKED, tools=[SEARCH])
    (call,) = [block for block in first.content if block.type == "tool_use"]
    assert first.stop_reason == "tool_use" and call.input["query"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": FACT}
    messages = [*MESSAGES, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = client.messages.create(**{**ASKED, "messages": messages}, tools=[SEARCH])
    assert second.content[0].text == TOWN
    with client.messages.stream(**ASKED, tools=[SEARCH]) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_message()
    assert "input_json" in kinds and final.content[0].input["query"]
    forced = client.messages.create(**ASKED, tools=[SEARCH], tool_choice={"type": "tool", "name": "search"})
    assert forced.content[0].name == "search"


def check_tool_runner(client: Anthropic) -> None:
    @beta_tool
    def search(query: str) -> str:
        """S."""
        return FACT

    for stream in (False, True):
        runner = client.beta.messages.tool_runner(**ASKED, tools=[search], stream=stream)
        last = [each.get_final_message() if stream else each for each in runner][-1]
        assert last.content[0].text == TOWN, last


def check_the_rest(client: Anthropic) -> None:
    asked = {key: value for key, value in ASKED.items() if key != "max_tokens"}
    num_tokens = client.messages.count_tokens(**asked, system="Be short.").input_tokens
    assert num_tokens == client.messages.create(**ASKED, system="Be short.").usage.input_tokens
    client.messages.create(**ASKED, thinking={"type": "enabled", "budget_tokens": 1024})
    try:
        client.messages.create(**ASKED, output_config={"format": {"type": "xml", "schema": PARAMETERS}})
    except BadRequestError as error:
        assert "output_config" in str(error)
    else:
        raise AssertionError("an answer of this form cannot be had")


if __name__ == "__main__":
    with Anthropic(base_url=BASE, api_key="none") as client:
        for check in (check_text, check_tools, check_tool_runner, check_the_rest):
            check(client)
