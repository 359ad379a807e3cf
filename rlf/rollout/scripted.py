"""`ScriptedPolicy` plays written turns through the real rollout loop: for the certificate, and for tests of your own.

    policy = ScriptedPolicy(tokenizer, [chat.write_call(call) + "<|im_end|>", "It is 42.<|im_end|>"])
    trajectory = await play(Rollout("t", task, 0, seed=0), Setting(policy, chat, tools, limits, sampling))

Its `requests` hold what the policy was shown before each turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rlf.chat.encoding import decode, encode_template
from rlf.core import RlfError
from rlf.types.policy import Finish, Sample, SampleRequest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Line = str | Callable[[SampleRequest], str]
"""One turn's text, special tokens as text; or a function of the request, which sees the whole context."""


@dataclass(slots=True)
class _Part:
    """The state of one trajectory's script."""

    num_turns: int = 0
    rest: list[int] = field(default_factory=list)
    """Tokens of the last turn that were not sampled yet, because a stop string or the budget came first."""
    context_size: int = -1
    """Tokens of the context after the last sample."""


class ScriptedPolicy:
    """Samples the same script in every trajectory, with the stops and budgets of a real sampler.

    A turn ends at its first stop token or stop string, which stay in the sample, or at `max_tokens`; a text that holds
    no stop is a turn cut by its length. A request that extends the last one by nothing but what was sampled goes on
    with the same turn.

    Args:
        tokenizer: turns the texts into tokens; markup in them becomes special tokens.
        script: the turns of every trajectory, or of each by its id.
        logprob: of every token.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        script: Sequence[Line] | Mapping[str, Sequence[Line]],
        *,
        logprob: float = -1.0,
    ) -> None:
        self._tokenizer = tokenizer
        self._script = script
        self._logprob = logprob
        self._parts: dict[str, _Part] = {}
        self.requests: list[SampleRequest] = []
        """Every request, with the context as it was."""
        self.samples: list[Sample] = []
        """What was sampled at each request."""

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Begins the script again for each trajectory."""
        self._parts |= {id_: _Part() for id_ in trajectory_ids}

    async def sample(self, request: SampleRequest) -> Sample:
        """The next turn, or the rest of the last one."""
        part = self._parts.setdefault(request.trajectory_id, _Part())
        if not part.rest or len(request.tokens) != part.context_size:
            part.rest = encode_template(self._tokenizer, self._line(request, part.num_turns))
            part.num_turns += 1
        size, finish = end_sample(self._tokenizer, part.rest, request)
        tokens, part.rest = part.rest[:size], part.rest[size:]
        part.context_size = len(request.tokens) + size
        sample = Sample(tokens, [self._logprob] * size, finish)
        self.requests.append(replace(request, tokens=tuple(request.tokens)))
        self.samples.append(sample)
        return sample

    def release(self, trajectory_id: str) -> None:
        """Forgets where the trajectory was in the script."""
        self._parts.pop(trajectory_id, None)

    def _line(self, request: SampleRequest, turn: int) -> str:
        script = self._script
        lines = script[request.trajectory_id] if isinstance(script, Mapping) else script
        if turn >= len(lines):
            raise RlfError(
                f"the script of {request.trajectory_id!r} has {len(lines)} turns and turn {turn + 1} was asked for. "
                "Write that turn, or end the script with an answer."
            )
        line = lines[turn]
        return line if isinstance(line, str) else line(request)


def end_sample(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int], request: SampleRequest) -> tuple[int, Finish]:
    """How many of the tokens one sample takes, and why no more."""
    sampling = request.sampling
    for size in range(1, min(len(tokens), request.max_tokens) + 1):
        if tokens[size - 1] in sampling.stop_token_ids:
            return size, Finish.STOP
        if sampling.stop_strings:
            text = decode(tokenizer, tokens[:size])
            if any(stop in text for stop in sampling.stop_strings):
                return size, Finish.STOP
    return min(len(tokens), request.max_tokens), Finish.LENGTH
