"""What the policy saw before the question, decoded from the prompt's own tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from rlf.reports.trajectory import FED_MARK, opening, trajectory_view
from rlf.types import Message

from .rendering import rendered
from .synthetic import scored, trajectory

PROMPT = "<|im_start|>system\nTools: search, calculator<|im_end|>\n<|im_start|>user\n"


def decode(tokens: Sequence[int]) -> str:
    assert list(tokens) == list(range(10))  # the ten tokens before the first turn
    return f"{PROMPT}What is the employer of Bitbal?<|im_end|>\n<|im_start|>assistant\n"


def test_the_opening_is_the_decoded_prompt_up_to_the_question() -> None:
    assert opening(trajectory(0, succeeds=True), decode) == PROMPT.strip()


def test_a_question_that_the_template_changed_leaves_the_whole_prompt() -> None:
    made = trajectory(0, succeeds=True)
    changed = replace(made, task=replace(made.task, messages=(Message("user", "something else"),)))
    assert opening(changed, decode).endswith("<|im_start|>assistant")


def test_a_turn_view_shows_the_opening_once_and_with_the_mark_of_what_was_not_sampled() -> None:
    made = scored(0, succeeds=True)
    messages = (Message("system", "Be brief."), *made.trajectory.task.messages)
    whole = replace(made, trajectory=replace(made.trajectory, task=replace(made.trajectory.task, messages=messages)))
    text = rendered(trajectory_view(whole, opening="Be brief.\nTools: search"))
    system = re.compile(rf"system +{FED_MARK}Be brief\.")
    assert system.search(text) and f"{FED_MARK}Tools: search" in text
    assert text.count("Be brief.") == 1
    assert system.search(rendered(trajectory_view(whole)))
