"""The opening of a prompt, before the question: system text and tool declarations as the chat template renders them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlf.types.trajectory import Trajectory

ReadOpening = Callable[[Trajectory], str]
"""The opening of a trajectory's prompt as text; empty where there is none."""


def no_opening(_: Trajectory) -> str:
    """For views of trajectories without a named tokenizer."""
    return ""


def opening(trajectory: Trajectory, decode: Callable[[Sequence[int]], str]) -> str:
    """The prompt's tokens decoded, up to the first message that is shown by itself.

    That is the system message with what the template adds to it and, in formats that declare tools in the user's
    message, these declarations. Where the template changed the message so that it is not found, the whole prompt.
    """
    end = trajectory.turns[0].start if trajectory.turns else len(trajectory.tokens)
    text = decode(trajectory.tokens[:end])
    question = next((m.content.strip() for m in trajectory.task.messages if m.role != "system"), "")
    found = text.rfind(question) if question else -1
    return (text if found < 0 else text[:found]).strip()
