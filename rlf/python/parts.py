"""`rlf.load_tools` and `rlf.try_tools`: declared tools, called through the executor that training uses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from rlf.apps.rewards import scoring
from rlf.apps.tools import trials
from rlf.apps.tools.trials import ToolPrompt, ToolTrial
from rlf.chat.marks import Parsed
from rlf.core.errors import RlfError
from rlf.core.json_values import json_value
from rlf.core.plain_json import Jsonable
from rlf.data.tasks import read_message
from rlf.python.specs import Files, as_command, to_paths
from rlf.rewards.examples import Trial
from rlf.runs import tools as load
from rlf.runs.prompts import Prompt, parse_turn, render_prompt
from rlf.tools import ToolDeclaration
from rlf.types import Message, Scored, ToolDescription, ToolResult, Trajectory


@dataclass(frozen=True, slots=True)
class Tool(Jsonable):
    """A declared tool. What it calls may hold credentials, and is not shown."""

    name: str
    description: str
    input_schema: Mapping[str, Any] = field(metadata={"json": "inputSchema"})
    kind: str
    timeout_s: float
    num_tests: int
    """Examples under its `tests:`."""
    declaration: ToolDeclaration = field(repr=False, metadata={"json": None})

    @classmethod
    def of(cls, tool: ToolDeclaration, *more: Any) -> Self:
        """A declaration without credentials; `more` are the fields of a class that adds some."""
        facts = (tool.name, tool.description, tool.input_schema, tool.target.kind, tool.limits.timeout_s)
        return cls(*facts, len(tool.tests), tool, *more)

    def call(self, arguments: Mapping[str, Any] | None = None, **named: Any) -> ToolResult:
        """One call, as the model would make it: limits hold, and a failure is a result with its outcome.

        Args:
            arguments: the call's arguments; or give them by name.
        """
        with as_command():
            made = {**(arguments or {}), **named}
            return asyncio.run(trials.call_tool([self.declaration], self.name, made)).result

    def for_model(self) -> ToolDescription:
        """The tool's description as the model sees it."""
        return self.declaration.description_for_model


@dataclass(frozen=True, slots=True)
class ListedTool(Tool):
    """A tool with the file that declares it."""

    file: Path


@dataclass(frozen=True, slots=True)
class ShownTool(Tool):
    """A tool as the models of specs read it."""

    prompts: tuple[ToolPrompt, ...]


def load_tools(files: Files = ()) -> list[Tool]:
    """The tools of specs and tool files, each once; of every file in `tool_specs` when none is named.

    Raises:
        SpecError: with every fault of every file.
    """
    with as_command():
        return [Tool.of(tool) for tool in load.load_tools(to_paths(files))]


def try_tools(files: Files = ()) -> list[ToolTrial]:
    """Dry runs: each tool is opened, its examples are run, then a fault drill. What falls short is in the results.

    A Python function without an example is called with arguments made from its schema.
    """
    with as_command():
        return asyncio.run(trials.try_tools(load.load_tools(to_paths(files))))


# `rlf.try_rewards` and `rlf.score`: declared reward terms, outside of a run.


def try_rewards(files: Files = ()) -> list[Trial]:
    """Tries terms on their `tests:` and on gold, empty, malformed and long trajectories.

    Args:
        files: specs and reward files; without any, every file in `reward_specs`.
    """
    with as_command():
        return asyncio.run(scoring.try_rewards(_load_files(files)))


def score(trajectories: Sequence[Trajectory | Scored], rewards: Files, *, step: int = 1) -> list[Scored]:
    """Scores trajectories with the terms of a spec, or of reward files taken together.

    Args:
        trajectories: of a run, as `run.scored()` gives them, or made by hand.
        step: what schedules and seeds of terms go by.
    """
    plain = [each.trajectory if isinstance(each, Scored) else each for each in trajectories]
    with as_command():
        return asyncio.run(scoring.score(_load_files(rewards), plain, step=step))


def _load_files(files: Files) -> list[scoring.RewardFile]:
    return scoring.load_rewards(to_paths(files))


# `rlf.render` and `rlf.parse`: a conversation as a model reads it, and what a sampled turn says.


def render(
    messages: str | Sequence[Message | Mapping[str, Any]],
    format: str = "auto",  # noqa: A002 - the spec's word for it
    *,
    tools: Sequence[Tool] = (),
    model: str | None = None,
) -> Prompt:
    """The prompt of a conversation, up to where the policy begins to sample: its text and its exact tokens.

    Args:
        messages: a question, or messages such as `{"role": "user", "content": "..."}`; a key that a prompt does not
            show is refused.
        format: a chat format, e.g. `hermes`; `auto` takes that of the model's own template.
        tools: what the model may call.
        model: a folder or `builtin:tiny`; None: a stand-in for the format, whose tokens are no model's.
    """
    asked = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    for each in asked:
        if not isinstance(each, Message) and not {"role", "content"} <= each.keys():
            raise RlfError(f"messages: got the keys {', '.join(each)}; expected role and content in each message.")
    try:
        plain = [each if isinstance(each, Message) else read_message(json_value(each)) for each in asked]
    except ValueError as error:
        raise RlfError(f"messages: {error}") from error
    with as_command():
        return render_prompt(plain, format, [tool.for_model() for tool in tools], model)


def parse(text: str, format: str, *, truncated: bool = False, thinking_tag: str = "") -> Parsed:  # noqa: A002
    """Parses one sampled turn by a format's parser: calls, typed failures, thinking, or the answer.

    Args:
        truncated: whether the turn was cut off by its token limit.
        thinking_tag: the tag of thinking; empty for the format's own.
    """
    return parse_turn(text, format, truncated=truncated, thinking_tag=thinking_tag)
