"""vLLM's side of a job, as much as the agent sees of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from rlf.chat.encoding import encode_template


@dataclass
class Params:
    """Sampling parameters by vLLM's names."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int | None = None
    min_tokens: int = 1
    stop: list[str] = field(default_factory=list)
    stop_token_ids: list[int] = field(default_factory=list)
    ignore_eos: bool = False
    skip_special_tokens: bool = False
    include_stop_str_in_output: bool = False
    logprobs: int | None = 1
    seed: int | None = None
    logit_bias: dict[int, float] | None = None


class FakeEngine:
    """Answers each request with the next line of a script, cut to its budget; the last line repeats."""

    def __init__(self, tokenizer: Any, lines: list[str | Exception], pause_s: float = 0.0) -> None:
        self._tokenizer = tokenizer
        self._lines = lines
        self._pause_s = pause_s
        self.requests: list[tuple[list[int], Params]] = []
        self.pictures: list[Any] = []
        """What went along with each request."""

    async def generate(self, prompt_token_ids: list[int], sampling_params: Params, multi_modal_data: Any = None) -> Any:
        self.requests.append((list(prompt_token_ids), sampling_params))
        self.pictures.append(multi_modal_data)
        line = self._lines[min(len(self.requests), len(self._lines)) - 1]
        await asyncio.sleep(self._pause_s)
        if isinstance(line, Exception):
            raise line
        whole = encode_template(self._tokenizer, line)
        tokens = whole[: sampling_params.max_tokens]
        logprobs = None
        if sampling_params.logprobs is not None:
            logprobs = [{token: SimpleNamespace(logprob=-0.5 - place / 100)} for place, token in enumerate(tokens)]
        finish = "stop" if tokens[-1] in sampling_params.stop_token_ids else "length"
        output = SimpleNamespace(token_ids=tuple(tokens), text="", finish_reason=finish, logprobs=logprobs)
        return SimpleNamespace(outputs=[output])
