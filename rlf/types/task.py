"""A task: one row of a dataset, the thing a trajectory tries to solve."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

IMAGE_MARK = "<image>"
"""Marks the place of an image in a message."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt, in the chat sense."""

    role: str
    """`system`, `user` or `assistant`."""
    content: str
    """With as many `IMAGE_MARK`s as there are images; without images the mark is text like any other."""
    images: tuple[str, ...] = ()
    """Its images, in order: the path of a file, or a `data:` URI. `rlf.core.images` reads either."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts around the images: one more than there are images, some of them empty."""
        return tuple(self.content.split(IMAGE_MARK)) if self.images else (self.content,)


@dataclass(frozen=True, slots=True)
class Task:
    """One question for the model, and what the reward terms may know about it."""

    id: str
    """Unique and stable within its dataset: pairs the same question across runs."""
    messages: tuple[Message, ...]
    answer: Any = None
    """The gold answer or answers; None where no term needs one. The policy never sees it."""
    kind: str | None = None
    """Question kind for reports (`two_hop`); None when the data does not say."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Every column of the row, for reward terms."""
    tools: tuple[str, ...] | None = None
    """Names of the tools that its trajectories see and may call; None: every declared one."""
    cluster: str | None = None
    """What it has in common with other questions, such as a document; None: nothing is known of that."""

    @property
    def question(self) -> str:
        """What the user asked last; empty where there is no such message."""
        return next((message.content for message in reversed(self.messages) if message.role == "user"), "")

    @property
    def images(self) -> tuple[str, ...]:
        """The images of all its messages, in order."""
        return tuple([image for message in self.messages for image in message.images])

    def may_use(self, tool: str) -> bool:
        """Whether its trajectories may call a tool of that name."""
        return self.tools is None or tool in self.tools


# Images of prompts and tool results.


@dataclass(frozen=True, slots=True)
class Image:
    """An image of a prompt or in a result."""

    data: bytes = field(metadata={"json": None})
    """The encoded file; JSON has its size."""
    mime_type: str
    JSON_PROPERTIES: ClassVar = ("size_bytes",)

    @property
    def size_bytes(self) -> int:
        """Of the encoded file."""
        return len(self.data)

    @property
    def reference(self) -> str:
        """The whole image as a `data:` URI."""
        return f"data:{self.mime_type};base64,{base64.b64encode(self.data).decode()}"
