# ruff: noqa: ASYNC210, ASYNC221, ASYNC251  # what is looked for
"""What blocks is found in a coroutine function's own calls, under whatever name it goes there."""

import asyncio
import os
import subprocess
import time
import urllib.request
from time import sleep as rest

from rlf.core.mistakes import blocking_calls


async def blocks(query):
    rest(1)
    subprocess.run([query], check=True)
    if os.system(query):
        return urllib.request.urlopen(query).read()
    return time.sleep(2)


async def yields(query):
    def work():
        time.sleep(1)

    await asyncio.sleep(1)
    process = await asyncio.create_subprocess_exec(query)
    await asyncio.to_thread(work)
    return await asyncio.to_thread(time.sleep, 1), process


def test_blocking_calls_are_named_in_their_order():
    assert blocking_calls(blocks) == ["rest", "subprocess.run", "os.system", "urllib.request.urlopen", "time.sleep"]


def test_what_awaits_or_leaves_it_to_a_thread_does_not_block():
    assert blocking_calls(yields) == []


def test_an_object_that_is_called_is_read_by_its_call_and_one_without_source_is_let_be():
    class Tool:
        async def __call__(self, query):
            return time.sleep(1)

    assert blocking_calls(Tool()) == ["time.sleep"]
    assert blocking_calls(eval("lambda: 1")) == []
