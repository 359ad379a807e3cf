"""A stand-in for vLLM: as much of it as OpenRLHF 0.11.2 and rlf's agent touch, on transformers, in process.

Not fast and not faithful in speed or memory. Faithful in what a rehearsal is to show: tokens in and out, stops and
budgets, seeds, log-probabilities, OpenRLHF's own worker extension with its weight sync, pause and resume between
tokens, so that new weights arrive in the middle of a trajectory as they do under vLLM; images beside tokens.

One module stands under all names of the package: Python takes what a parent has put into `sys.modules` while it was
imported.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

__version__ = "0.29.0"
__all__ = ["AsyncEngineArgs", "AsyncLLMEngine", "SamplingParams"]
for _name in ("inputs", "utils", "distributed", "distributed.utils", "distributed.device_communicators"):
    sys.modules[f"{__name__}.{_name}"] = sys.modules[__name__]
sys.modules[f"{__name__}.distributed.device_communicators.pynccl"] = sys.modules[__name__]

_TIMEOUT_S = 600
_SLICE = 8
"""Tokens of one request that are sampled before the next request has its turn."""


class AsyncEngineArgs:
    """The arguments that OpenRLHF starts an engine with."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"OpenRLHF gave no {name}; the stand-in for vLLM needs it")


@dataclass
class Logprob:
    """A token's log-probability."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass
class _Request:
    """One continuation under way."""

    params: SamplingParams
    pending: list[int]
    """Tokens that the model has not read yet."""
    room: int
    inputs: dict[str, Any] = field(default_factory=dict)
    """What else the model reads with the first tokens: its images."""
    rope_deltas: Any = None
    """How far images shift the positions behind them, which models keep of the last request they saw."""
    cache: Any = None
    tokens: list[int] = field(default_factory=list)
    logprobs: list[Mapping[int, Logprob]] = field(default_factory=list)
    finish_reason: str | None = None


class AsyncLLMEngine:
    """The engine: one model, requests that take turns."""

    def __init__(self, args: AsyncEngineArgs) -> None:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer

        dtype = getattr(torch, args.dtype)
        self._max_model_len = int(args.max_model_len)
        self._tokenizer: Any = AutoTokenizer.from_pretrained(args.model)
        sees = hasattr(AutoConfig.from_pretrained(args.model), "vision_config")
        auto: Any = AutoModelForImageTextToText if sees else AutoModelForCausalLM
        self._model = auto.from_pretrained(args.model, dtype=dtype, attn_implementation="eager").eval()
        self._image_reader = ImageReader(args.model) if "limit_mm_per_prompt" in vars(args) else None
        self._reader = LogitsReader(int(args.seed))
        self._worker = _worker(args, self._model, dtype)
        self._turn = asyncio.Lock()
        """Held by the request that samples, and while generation is paused."""
        self._num_unfinished = 0
        self.output_processor = SimpleNamespace(get_num_unfinished_requests=lambda: self._num_unfinished)

    @classmethod
    def from_engine_args(cls, args: AsyncEngineArgs) -> AsyncLLMEngine:
        """The engine that arguments describe."""
        return cls(args)

    async def generate(self, prompt: Mapping[str, Any], params: SamplingParams, request_id: str) -> AsyncIterator[Any]:
        """Yields the whole continuation, once."""
        tokens, inputs = list(prompt["prompt_token_ids"]), dict[str, Any]()
        if images := (prompt.get("multi_modal_data") or {}).get("image"):
            if self._image_reader is None:
                raise ValueError("At most 0 image(s) may be provided in one prompt.")
            tokens, inputs = self._image_reader.read(tokens, images)
        room = self._max_model_len - len(tokens)
        if room <= 0:
            raise ValueError(f"a prompt of {len(tokens)} tokens; max_model_len is {self._max_model_len}")
        request = _Request(params, tokens, min(params.max_tokens or room, room), inputs)
        self._num_unfinished += 1
        try:
            while request.finish_reason is None:
                async with self._turn:
                    await asyncio.to_thread(self._sample, request)
        finally:
            self._num_unfinished -= 1
        yield SimpleNamespace(
            request_id=request_id,
            prompt_token_ids=tokens,
            finished=True,
            outputs=[
                SimpleNamespace(
                    index=0,
                    token_ids=request.tokens,
                    text=self._tokenizer.decode(request.tokens, skip_special_tokens=params.skip_special_tokens),
                    finish_reason=request.finish_reason,
                    stop_reason=None,
                    logprobs=request.logprobs if params.logprobs is not None else None,
                )
            ],
        )

    def _sample(self, request: _Request) -> None:
        """Samples the next tokens of a request, up to a slice."""
        import torch

        params = request.params
        with torch.no_grad():
            for _ in range(_SLICE):
                output = self._read(request)
                request.cache = output.past_key_values
                token, logprob = self._reader.draw(output.logits[0, -1], params, len(request.tokens))
                request.pending = [token]
                request.tokens.append(token)
                request.logprobs.append({token: Logprob(logprob)})
                request.finish_reason = self._finish(request)
                if request.finish_reason is not None:
                    return

    def _read(self, request: _Request) -> Any:
        """Runs the model on the pending tokens."""
        import torch

        inner = self._model.base_model
        if hasattr(inner, "rope_deltas"):
            inner.rope_deltas = request.rope_deltas
        output = self._model(
            torch.tensor([request.pending]), past_key_values=request.cache, use_cache=True, **request.inputs
        )
        request.inputs, request.rope_deltas = {}, getattr(inner, "rope_deltas", None)
        return output

    def _finish(self, request: _Request) -> str | None:
        params = request.params
        stops = set(params.stop_token_ids or ())
        if not params.ignore_eos:
            stops.add(self._tokenizer.eos_token_id)
        if request.tokens[-1] in stops:
            return "stop"
        if params.stop:
            text = self._tokenizer.decode(request.tokens, skip_special_tokens=params.skip_special_tokens)
            if any(stop in text for stop in params.stop):
                return "stop"
        return "length" if len(request.tokens) >= request.room else None

    async def collective_rpc(self, method: str, args: Sequence[Any] = (), kwargs: Any = None) -> list[Any]:
        """Calls a method of OpenRLHF's worker extension; off the loop, since weight sync waits for its other end."""
        return [await asyncio.to_thread(getattr(self._worker, method), *args, **(kwargs or {}))]

    async def pause_generation(self, mode: str = "keep") -> None:
        """Holds every request where it is, between two tokens."""
        await self._turn.acquire()

    async def resume_generation(self) -> None:
        """Lets requests continue, with the keys and values they had."""
        self._turn.release()

    async def is_sleeping(self) -> bool:
        """Never: there is no memory to give back."""
        return False

    async def sleep(self, level: int = 1) -> None:
        """Does nothing."""

    async def wake_up(self, tags: Sequence[str] | None = None) -> None:
        """Does nothing."""

    async def reset_prefix_cache(self) -> None:
        """Keeps no prefixes."""


def _worker(args: AsyncEngineArgs, model: Any, dtype: Any) -> Any:
    """OpenRLHF's worker extension on a minimal worker, mixed in as vLLM does it."""
    import torch
    from torch.distributed import HashStore  # type: ignore[attr-defined]  # torch does not list it

    if not torch.distributed.is_initialized():
        store = HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    state = model.state_dict()

    def load_weights(weights: Sequence[tuple[str, Any]]) -> None:
        for name, value in weights:
            state[name].copy_(value)

    module, _, name = args.worker_extension_cls.rpartition(".")
    worker = type("Worker", (getattr(importlib.import_module(module), name),), {})()
    worker.device = torch.device("cpu")
    worker.model_config = SimpleNamespace(dtype=dtype)
    worker.vllm_config = SimpleNamespace(additional_config=vars(args).get("additional_config", {}))
    worker.model_runner = SimpleNamespace(model=SimpleNamespace(load_weights=load_weights))
    return worker


@dataclass
class SamplingParams:
    """How one request is sampled; only what OpenRLHF and rlf set."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logprobs: int | None = None
    seed: int | None = None
    logit_bias: Mapping[int, float] | None = None


class LogitsReader:
    """Draws tokens; requests without a seed share a generator."""

    def __init__(self, seed: int) -> None:
        import torch

        self._shared = torch.Generator().manual_seed(seed)

    def draw(self, logits_V: Any, params: SamplingParams, position: int) -> tuple[int, float]:
        """A token and its log-probability at the temperature, before top-p, top-k and min-p."""
        import torch

        from rlf.training.draw import keep_likely

        if params.logit_bias:
            logits_V = logits_V.float().clone()
            logits_V[list(params.logit_bias)] += torch.tensor(list(params.logit_bias.values()))
        greedy = params.temperature == 0
        logprobs_V = (logits_V.float() / (1.0 if greedy else params.temperature)).log_softmax(-1)
        if greedy:
            token = int(logprobs_V.argmax())
        else:
            generator = self._shared
            if params.seed is not None:
                generator = torch.Generator().manual_seed(params.seed + position)
            kept_1V = keep_likely(logprobs_V.exp()[None], top_p=params.top_p, top_k=params.top_k, min_p=params.min_p)
            token = int(torch.multinomial(kept_1V[0], 1, generator=generator))
        return token, float(logprobs_V[token])


class ImageReader:
    """The processor of one model."""

    def __init__(self, model: str) -> None:
        from transformers import AutoProcessor

        auto: Any = AutoProcessor
        self._processor = auto.from_pretrained(model)
        self._token_id = int(self._processor.image_token_id)
        self._mark = getattr(self._processor, "boi_token", None) or self._processor.image_token

    def read(self, tokens: Sequence[int], images: Sequence[Any]) -> tuple[list[int], dict[str, Any]]:
        """The tokens that the model sees, and its other inputs.

        Args:
            tokens: with one placeholder for each image, as OpenRLHF hands them over.

        Raises:
            ValueError: there are more or fewer placeholders than images.
        """
        import torch

        if (marks := tokens.count(self._token_id)) != len(images):
            raise ValueError(f"a prompt with {marks} placeholders of images has {len(images)} images")
        read = [self._processor(text=[self._mark], images=[image], return_tensors="pt") for image in images]
        lengths = iter([int((inputs["input_ids"] == self._token_id).sum()) for inputs in read])
        seen = [copy for token in tokens for copy in [token] * (next(lengths) if token == self._token_id else 1)]
        types = (torch.tensor([seen]) == self._token_id).to(torch.int32)
        names = set(read[0]) - {"input_ids", "attention_mask"} if read else set()
        return seen, {
            name: types if name.endswith("token_type_ids") else torch.cat([inputs[name] for inputs in read])
            for name in names
        }


class TokensPrompt(dict[str, Any]):
    """A prompt as token ids, under `prompt_token_ids`."""


def random_uuid() -> str:
    """A name that no other request has."""
    return uuid.uuid4().hex


class PyNcclCommunicator:
    """The communicator of the weight sync: the shim puts one over gloo in its place."""


@dataclass
class StatelessProcessGroup:
    """A rank among others that meet in a store, beside torch's one global group."""

    rank: int
    world_size: int
    store: Any

    @staticmethod
    def create(host: str, port: int, rank: int, world_size: int) -> StatelessProcessGroup:
        """Meets the others at an address; rank 0 opens it."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch does not list it

        store = TCPStore(host, port, world_size, is_master=rank == 0, timeout=timedelta(seconds=_TIMEOUT_S))
        return StatelessProcessGroup(rank, world_size, store)
