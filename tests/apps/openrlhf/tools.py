"""Tools that fail, each in its own way."""

import asyncio
import io
import os
import signal
import time
import zlib

from rlf.types import Image, ToolOutput, Trajectory


async def unreachable(**_arguments):
    raise ConnectionRefusedError("nobody answers")


refusals = 0
"""Calls of `back_soon` that are still refused."""


async def back_soon(**_arguments):
    global refusals
    if refusals > 0:
        refusals -= 1
        raise ConnectionRefusedError("not yet")
    return "Rinten was born in Fentes."


num_calls = 0
"""Calls of `every_other` so far."""


async def every_other(**_arguments):
    global num_calls
    num_calls += 1
    if num_calls % 2 == 0:
        raise ConnectionRefusedError("not this one")
    return "Rinten was born in Fentes."


num_counted = num_now = most_at_once = 0
"""Calls of `counted` so far, those under way, and the most that were."""


async def counted(query: str) -> str:
    """Counts how many of its calls are under way."""
    global num_counted, num_now, most_at_once
    num_counted, num_now = num_counted + 1, num_now + 1
    most_at_once = max(most_at_once, num_now)
    await asyncio.sleep(0.01)
    num_now -= 1
    return query


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


class Listener:
    """A world that notes what is answered, and dies in its scoring for some tasks."""

    def reset(self, seed: int) -> None:
        self.is_mortal, self.heard = seed % 3 == 0, []

    def reply(self, text: str) -> None:
        self.heard.append(text)

    def state(self) -> list[str]:
        return self.heard

    def score(self) -> dict[str, float]:
        if self.is_mortal:
            os._exit(9)
        return {"heard": float(bool(self.heard))}


def spread(trajectory: Trajectory) -> float:
    """A reward that differs wherever the tokens do, so that no group is without an advantage."""
    return zlib.crc32(repr(list(trajectory.tokens)).encode()) / 2**32


def screenshot(query: str) -> ToolOutput:
    """Two pictures, a red and a blue one."""
    return ToolOutput(f"seen {query}", images=(picture((200, 10, 10)), picture((10, 10, 200))))


def picture(colour: tuple[int, int, int]) -> Image:
    """A small PNG of one colour."""
    from PIL import Image as Pillow

    file = io.BytesIO()
    Pillow.new("RGB", (20, 30), colour).save(file, "PNG")
    return Image(file.getvalue(), "image/png")


def speaks_of_wrong_answers(trajectory: Trajectory) -> float | None:
    """A reward term that has a value for wrong answers alone."""
    return None if trajectory.answer == "Fentes" else 1.0
