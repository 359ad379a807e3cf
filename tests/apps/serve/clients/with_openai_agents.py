"""`python with_openai_agents.py URL`: an agent with a tool, whole and streamed, over both of OpenAI's protocols."""

import asyncio
import sys

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from question import FACT, QUESTION, TOWN

URL, MODEL = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "tiny"
KINDS = ["ToolCallItem", "ToolCallOutputItem", "MessageOutputItem"]


@function_tool
def search(query: str) -> str:
    """S."""
    return FACT


async def main() -> None:
    set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=URL, api_key="none", max_retries=0) as client:
        for protocol in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
            model = protocol(model=MODEL, openai_client=client)
            agent = Agent(name="a", tools=[search], model=model, model_settings=ModelSettings(temperature=0))
            done = await Runner.run(agent, QUESTION)
            streamed = Runner.run_streamed(agent, QUESTION)
            kinds = {event.type async for event in streamed.stream_events()}
            assert kinds >= {"raw_response_event", "run_item_stream_event"}, kinds
            for ended in (done, streamed):
                assert ended.final_output == TOWN, ended.final_output
                assert [type(item).__name__ for item in ended.new_items] == KINDS


if __name__ == "__main__":
    asyncio.run(main())
