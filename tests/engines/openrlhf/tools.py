"""Tools that fail, each in its own way."""

import asyncio
import os
import signal
import time


async def unreachable(**_arguments):
    raise ConnectionRefusedError("nobody answers")


def waits(query: str) -> str:
    """Blocks, which no thread with an event loop may."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        time.sleep(0.2)
        return query
    raise AssertionError("called on the event loop")


def raises(query: str) -> str:
    """Raises."""
    raise RuntimeError("the index is on fire")


def hangs(query: str) -> str:
    """Never returns."""
    time.sleep(3600)
    return query


def dies(query: str) -> str:
    """Takes its process along."""
    os._exit(9)


def killed(query: str) -> str:
    """Is killed as if by the kernel, out of memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    return query
