"""Functions and a class that do what their argument says."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from rlf.types import Image, ToolOutput
from tests.tools.conformance._subject import PNG


def act(text: str) -> Any:
    if text == "hang":
        time.sleep(3)  # a thread cannot be ended, and a test must
    return _answer(text)


async def act_on_loop(text: str) -> Any:
    if text == "hang":
        await asyncio.sleep(60)
    return _answer(text)


class Actor:
    def __init__(self) -> None:
        self.kept = "nothing"

    async def __call__(self, text: str) -> Any:
        if text == "recall":
            return self.kept
        if text.startswith("keep "):
            self.kept = text.removeprefix("keep ")
        return await act_on_loop(text)


def _answer(text: str) -> Any:
    what, _, word = text.partition(" ")
    if what == "fail":
        raise ValueError(word)
    if what == "refused":
        raise ConnectionRefusedError(word)
    return ToolOutput("", (Image(PNG, "image/png"),)) if what == "draw" else word
