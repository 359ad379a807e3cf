"""`python openenv_clients.py URL`: several of OpenEnv's own clients at once, then its validator, where OpenEnv is."""

import asyncio
import json
import sys

from openenv.cli.__main__ import main as openenv
from openenv.core.generic_client import GenericEnvClient

CODES = ["AMBER7", "BASALT3", "CORAL9"]


async def play(url, number):
    async with GenericEnvClient(base_url=url) as client:
        began = await client.reset(seed=number)
        seen = await client.step({"tool": "look", "arguments": {"place": "desk"}})
        await asyncio.sleep(0.1)
        await client.step({"tool": "open", "arguments": {"code": CODES[number]}})
        ended = await client.step({"text": "Done."})
        return [
            began.observation["text"],
            seen.observation["text"],
            ended.reward,
            ended.done,
            ended.observation["scores"],
        ]


async def main():
    return await asyncio.gather(*(play(sys.argv[1], number) for number in range(3)))


url = sys.argv[1]
print(json.dumps(asyncio.run(main())), flush=True)
sys.argv = ["openenv", "validate", "--url", url, "--json"]
openenv()
