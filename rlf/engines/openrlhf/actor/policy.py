"""vLLM behind OpenRLHF's `llm_engine`, as a policy of the rollout loop: tokens in, tokens out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from rlf.chat.encoding import Vision
from rlf.core.identity import derive_seed
from rlf.types.policy import Finish, Sample, SampleRequest


class SamplerError(Exception):
    """The sampler gave nothing usable for one turn."""


class SamplesTokens(Protocol):
    """The part of OpenRLHF's rollout actor that the agent calls."""

    async def generate(self, prompt_token_ids: list[int], sampling_params: Any, multi_modal_data: Any = None) -> Any:
        """Returns vLLM's RequestOutput."""


class EnginePolicy:
    """Samples each turn by one request with parameters of its own.

    The `SamplingParams` that OpenRLHF passes is one object for all samples of a prompt: its class is used, and whether
    it asks for log-probabilities; nothing in it is changed or believed. A turn ends exactly at the stop tokens and
    strings of the chat format, as it does on the local engine, whatever the model's generation_config.json says.
    """

    def __init__(
        self, engine: SamplesTokens, template: Any, *, seeded: bool = False, record_logprobs: bool = False
    ) -> None:
        """Samples on `engine` with parameters of the class of `template`.

        Args:
            seeded: gives each request a seed of its own.
            record_logprobs: asks for the log-probabilities of sampled tokens where `template` does not.
        """
        self._engine = engine
        self._params = type(template)
        self.vision: Vision | None = None
        """The processor of images, for a vision-language model."""
        self._logprobs_processed = template.logprobs is not None
        """Whether vLLM was started to report probabilities as sampled; else it reports those at temperature 1."""
        self._wants_logprobs = self._logprobs_processed or record_logprobs
        self._seeded = seeded

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Does nothing: vLLM caches prefixes by their content."""

    def release(self, trajectory_id: str) -> None:
        """Does nothing: the engine holds nothing for a trajectory."""

    async def sample(self, request: SampleRequest) -> Sample:
        """Samples one turn. Raises SamplerError when the engine gives no usable output."""
        sampling = request.sampling
        params = self._params(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            max_tokens=request.max_tokens,
            min_tokens=0,
            stop=list(sampling.stop_strings),
            stop_token_ids=list(sampling.stop_token_ids),
            ignore_eos=True,
            skip_special_tokens=False,
            include_stop_str_in_output=True,
            logprobs=0 if self._wants_logprobs else None,  # 0: the sampled token's own, without alternatives
            seed=derive_seed(request.seed, request.num_sampled) if self._seeded else None,
            **self._without_marks(),
        )
        output = await self._engine.generate(list(request.tokens), params, await self._load_images(request))
        if output is None or not output.outputs:
            raise SamplerError(f"the sampler gave no output for trajectory {request.trajectory_id}")
        return self._read(output.outputs[0], request)

    def _without_marks(self) -> dict[str, Any]:
        """Keeps a policy that sees from sampling tokens behind which vLLM and the trainer look for an image."""
        return {} if self.vision is None else {"logit_bias": dict.fromkeys(self.vision.never_sampled, -100.0)}

    async def _load_images(self, request: SampleRequest) -> dict[str, Any] | None:
        if not request.images:
            return None
        assert self.vision is not None, f"trajectory {request.trajectory_id} has images and nothing reads them"
        await self.vision.prepare(request.images)
        return {"image": [self.vision.prepare_image(reference).image for reference in request.images]}

    def _read(self, completion: Any, request: SampleRequest) -> Sample:
        tokens = [int(token) for token in completion.token_ids]
        if completion.finish_reason not in ("stop", "length") or not tokens:
            raise SamplerError(
                f"the sampler ended a turn of trajectory {request.trajectory_id} with {completion.finish_reason!r} "
                f"after {len(tokens)} tokens"
            )
        finish = Finish.STOP if completion.finish_reason == "stop" else Finish.LENGTH
        return Sample(tokens, self._logprobs(completion, tokens, request.sampling.temperature), finish)

    def _logprobs(self, completion: Any, tokens: list[int], temperature: float) -> list[float]:
        """Per token; NaN where vLLM was not asked or its number is of another temperature than what was sampled."""
        if not self._wants_logprobs or (not self._logprobs_processed and temperature != 1.0):
            return [math.nan] * len(tokens)
        return [float(entry[token].logprob) for token, entry in zip(tokens, completion.logprobs, strict=True)]
