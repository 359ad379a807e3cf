"""A policy that opens with a call of a declared tool: a model that knows nothing would make none, others not all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rlf.chat.encoding import encode_template
from rlf.chat.examples import example_call
from rlf.chat.format import ChatFormat
from rlf.tools.declaration import ToolDeclaration
from rlf.types.policy import Finish, Policy, Sample, SampleRequest
from rlf.types.tool import ToolCall

_LOGPROB = -1.0
"""Of each written token; nobody sampled it."""


class OpeningCalls:
    """Writes the first turn of every other trajectory, a call of each tool in turn; the rest another policy samples."""

    def __init__(self, policy: Policy, chat: ChatFormat, tools: Sequence[ToolDeclaration], number: int) -> None:
        """Opens the trajectory with a number: an even one has a call, of which tool the number says."""
        self._policy = policy
        self._chat = chat
        calls = _in_turn([_prepare_calls(tool) for tool in tools if not tool.hidden])
        self._call = calls[number // 2 % len(calls)] if calls and number % 2 == 0 else None

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Passes it to the policy behind."""
        self._policy.open(trajectory_ids)

    def release(self, trajectory_id: str) -> None:
        """Passes it to the policy behind."""
        self._policy.release(trajectory_id)

    async def sample(self, request: SampleRequest) -> Sample:
        """A written call, or what the policy behind samples."""
        if request.num_sampled or self._call is None:
            return await self._policy.sample(request)
        begin = self._chat.think[1] if self._chat.begins_thinking else ""
        tokens = encode_template(self._chat.tokenizer, begin + self._chat.write_call(self._call))
        tokens = [*tokens, *self._chat.stop_token_ids[:1]]
        finish = Finish.STOP if len(tokens) <= request.max_tokens else Finish.LENGTH
        tokens = tokens[: request.max_tokens]
        return Sample(tokens, [_LOGPROB] * len(tokens), finish)


def _in_turn(calls_by_tool: Sequence[Sequence[ToolCall]]) -> list[ToolCall]:
    """The first call of each tool, then the second of each."""
    return [call for calls in zip_longest(*calls_by_tool) for call in calls if call is not None]


def _prepare_calls(tool: ToolDeclaration) -> list[ToolCall]:
    """The calls of a tool's own tests; without tests, one made from its schema."""
    tests = [ToolCall(tool.name, test.arguments) for test in tool.tests]
    return tests or [example_call(tool.description_for_model)]
