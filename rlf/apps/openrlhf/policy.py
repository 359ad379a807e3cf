"""vLLM behind OpenRLHF's `llm_engine`, as a policy of the rollout loop: tokens in, tokens out."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rlf.apps.openrlhf.shared import Group, round_reward
from rlf.chat.vision import Vision
from rlf.core.identity import derive_seed
from rlf.rewards.function import RewardFunction
from rlf.training.counting import counts
from rlf.types.policy import Finish, Sample, SampleRequest
from rlf.types.score import Scored
from rlf.types.trajectory import StopReason, Trajectory

if TYPE_CHECKING:
    import torch


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
            # A policy that sees samples no tokens behind which vLLM and the trainer look for an image.
            **({} if self.vision is None else {"logit_bias": dict.fromkeys(self.vision.never_sampled, -100.0)}),
        )
        images = await self._load_images(request) if request.images else None
        output = await self._engine.generate(list(request.tokens), params, images)
        if output is None or not output.outputs:
            raise SamplerError(f"the sampler gave no output for trajectory {request.trajectory_id}")
        return self._read(output.outputs[0], request)

    async def _load_images(self, request: SampleRequest) -> dict[str, Any]:
        assert self.vision is not None, f"trajectory {request.trajectory_id} has images and nothing reads them"
        await self.vision.prepare(request.images)
        return {"image": [self.vision.prepare_image(reference).image for reference in request.images]}

    def _read(self, completion: Any, request: SampleRequest) -> Sample:
        tokens = list(map(int, completion.token_ids))
        if completion.finish_reason not in ("stop", "length") or not tokens:
            raise SamplerError(
                f"the sampler ended a turn of trajectory {request.trajectory_id} with {completion.finish_reason!r} "
                f"after {len(tokens)} tokens"
            )
        finish = Finish.STOP if completion.finish_reason == "stop" else Finish.LENGTH
        # NaN where vLLM was not asked, or its numbers are of another temperature than what was sampled.
        logprobs = [math.nan] * len(tokens)
        if self._wants_logprobs and (self._logprobs_processed or request.sampling.temperature == 1.0):
            logprobs = [float(entry[token].logprob) for token, entry in zip(tokens, completion.logprobs, strict=True)]
        return Sample(tokens, logprobs, finish)


# Adapters on their way to vLLM, which is sent every weight by PEFT's name and knows only those of the plain model.
#
# OpenRLHF sends all weights at each update, those of a module one after the other: the frozen weight, A, then B. So a
# module's three are held until they are together, and vLLM gets W + alpha / rank x B A by the plain name (Hu et al.
# 2021, equation 3). Nothing outlives its module's turn: frozen weights are not kept beside those of vLLM.

WORKER = "rlf.apps.openrlhf.worker.MergingWorker"
"""Takes the place of OpenRLHF's extension of vLLM's workers."""
SCALE = "rlf_lora_scale"
"""Key of vLLM's `additional_config`, which every worker has, whatever process or node it is on."""
_PREFIX = "base_model.model."
# PEFT's names: OpenRLHF 0.11.2 sends these and vLLM knows only the module's own name.
_PART = re.compile(r"(?P<module>.+)\.(?P<part>base_layer|lora_A\.default|lora_B\.default)\.weight")
_BESIDE = ".base_layer."
"""In the name of what a module with an adapter has beside its weight, such as a bias: it has no adapter."""


class AdapterMerge:
    """In place of a model's `load_weights`: takes weights by PEFT's names, and loads them by the model's own."""

    def __init__(self, load: Callable[..., Any], scale: float) -> None:
        """Args:
        load: the model's own `load_weights`.
        scale: alpha / rank.
        """
        self._load = load
        self._scale = scale
        self._parts: dict[str, dict[str, torch.Tensor]] = {}

    def __call__(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Any:
        """Loads what can be loaded now, and holds the rest back. Returns what the model's own returns."""
        plain = [pair for name, weight in weights for pair in self._plain(name, weight)]
        return self._load(weights=plain) if plain else set()

    def check_done(self) -> None:
        """Raises RuntimeError when weights are held back after the last one has come: the update is incomplete."""
        if self._parts:
            module, parts = next(iter(self._parts.items()))
            raise RuntimeError(f"{len(self._parts)} adapters came incomplete: of {module} only {', '.join(parts)}")

    def _plain(self, name: str, weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        plain = name.removeprefix(_PREFIX)
        found = _PART.fullmatch(plain)
        if found is None:
            yield plain.replace(_BESIDE, "."), weight
            return
        module = found["module"]
        parts = self._parts.setdefault(module, {})
        parts[found["part"]] = weight.clone()  # the sender takes its memory back when this call is over
        if len(parts) == 3:
            del self._parts[module]
            merged = merge_adapter(parts["base_layer"], parts["lora_A.default"], parts["lora_B.default"], self._scale)
            yield f"{module}.weight", merged


def merge_adapter(weight_OI: torch.Tensor, a_RI: torch.Tensor, b_OR: torch.Tensor, scale: float) -> torch.Tensor:
    """W + scale x B A [O, I] in W's dtype, computed in float32: O outputs, I inputs, R rank."""
    import torch

    return torch.addmm(weight_OI.float(), b_OR.float(), a_RI.float(), alpha=scale).to(weight_OI.dtype)


def let_vllm_merge(scale: float) -> None:
    """Gives every vLLM engine that this process makes from now on workers that merge adapters.

    OpenRLHF loads the agent first and makes its engine then, by `vllm.AsyncEngineArgs(...)`.
    """
    import vllm

    made = vllm.AsyncEngineArgs

    def with_worker(*args: Any, **kwargs: Any) -> Any:
        return made(*args, **kwargs | {"worker_extension_cls": WORKER, "additional_config": {SCALE: scale}})

    vllm.AsyncEngineArgs = with_worker


# The response of `execute` to OpenRLHF for a trajectory, and how one is left out of the loss there.
#
# OpenRLHF wants one number as reward for every trajectory of a group, and takes no less than the whole group. It
# divides each micro-batch's numbers by its sampled tokens, so that a micro-batch without any ends the job
# (ZeroDivisionError) or makes its loss NaN. A trajectory that is left out, since it has no reward or the policy sampled
# nothing, therefore stands in its batch with one sampled token and, as its reward, the mean reward of the others of its
# group, by which the group's mean, the baseline, is the others' alone.
#
# With `group_norm`, `dr_grpo` and `rloo` the advantage of that token is 0, to the 2^-14 that rewards are rounded to: it
# has no part in the policy loss. Estimators that normalise over the batch (`reinforce`, `reinforce_baseline`, `gae`)
# give it what a trajectory of average reward gets; KL and entropy terms count it like any token. What stays: each such
# trajectory adds 1 to the sampled tokens that the loss is divided by (with `seq-mean-token-mean` and GSPO 1 to its
# trajectories), and OpenRLHF's standard deviation of the group is over all n members, so that with k of them left out
# `group_norm` advantages are sqrt((n - 1) / (n - k - 1)) times what they would be among the others; `rloo` ones n (n -
# k - 1) / ((n - 1) (n - k)) times. OpenRLHF's metrics of rewards and lengths count it. The lineage counts it in
# `unscorable` and nowhere else.


@dataclass(frozen=True, slots=True)
class LeftOutTokens:
    """Tokens with one sampled token, which OpenRLHF gets for a trajectory that is left out."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    """Natural log of the sampler's probability at `position`, aligned with `tokens`."""
    position: int
    """Offset of the sampled token, at least 1."""
    images: tuple[str, ...] = ()
    """The images that `tokens` hold places of."""

    @classmethod
    def of(cls, trajectory: Trajectory) -> LeftOutTokens | None:
        """The trajectory itself with only its first sampled token in the loss; None when nothing was sampled."""
        if not trajectory.num_sampled:
            return None
        first = trajectory.action_ranges[0][0]
        return cls(trajectory.tokens, trajectory.rollout_logprobs, first, trajectory.images)


def training_response(scored: Scored, reward: RewardFunction, params: Any, vision: Vision | None) -> dict[str, Any]:
    """The response for a trajectory that counts; its tokens are those that were sampled, bit for bit."""
    trajectory = scored.trajectory
    assert scored.reward is not None and counts(scored), f"{trajectory.id} does not count"
    tensors = None if vision is None else vision.tensors(trajectory.images)
    return _response(scored, round_reward(scored.reward), reward, params) | {"mm_train_inputs": tensors}


def stand_in_response(
    scored: Scored, stand_in: LeftOutTokens, group: Group, reward: RewardFunction, params: Any, vision: Vision | None
) -> dict[str, Any]:
    """The response for a trajectory that is left out, once its group is over."""
    return _response(scored, group.filler, reward, params) | {
        "observation_tokens": list(stand_in.tokens),
        "action_ranges": [(stand_in.position, stand_in.position + 1)],
        "rollout_log_probs": None if params.logprobs is None else list(stand_in.logprobs),
        "truncated": False,
        "mm_train_inputs": None if vision is None else vision.tensors(stand_in.images),
    }


def evaluation_response(scored: Scored, reward: RewardFunction, params: Any) -> dict[str, Any]:
    """The response for an evaluation; without a reward it counts as 0 in OpenRLHF's metrics, not in the lineage."""
    return _response(scored, scored.reward or 0.0, reward, params)


def _response(scored: Scored, value: float, reward: RewardFunction, params: Any) -> dict[str, Any]:
    trajectory = scored.trajectory
    ranges = trajectory.action_ranges
    num_actions, num_sampled = sum([end - start for start, end in ranges]), trajectory.num_sampled
    assert num_actions == num_sampled, f"{num_actions} in {ranges} of {trajectory.id}"
    values = {score.term: score.value for score in scored.scores}
    return {
        "observation_tokens": list(trajectory.tokens),
        "action_ranges": ranges,
        "rollout_log_probs": None if params.logprobs is None else list(trajectory.rollout_logprobs),
        "reward": value,
        "scores": value,
        "truncated": trajectory.stop is StopReason.LENGTH,
        "extra_logs": {  # for OpenRLHF's own loggers: the same keys for every trajectory, which it insists on
            **{f"reward/{term.name}": float(values.get(term.name) or 0.0) for term in reward.terms},
            "success": float(scored.success or 0.0),
            "unscorable": float(scored.reward is None),
            "turns": float(len(trajectory.turns)),
            "tool_calls": float(len(trajectory.calls)),
            "sampled_tokens": float(num_sampled),
        },
    }
