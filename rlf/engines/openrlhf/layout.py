"""How a plan lies on GPUs under OpenRLHF: numbers that follow from the spec, read by checks, options and estimates."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Self

from rlf.engines.openrlhf.settings import Colocate, Gpus, Mode, OpenRlhfSettings, openrlhf_settings
from rlf.spec.models import RunSpec

SHARED_GPU_MEMORY = 0.5
OWN_GPU_MEMORY = 0.9
LAYOUT_KEYS = (
    "engine.colocate",
    "engine.mode",
    "engine.actor",
    "engine.ref",
    "engine.critic",
    "engine.vllm",
    "engine.sleep",
    "engine.ring_attention",
    "train.prompts_per_step",
    "train.mini_batches",
    "train.micro_batch_tokens",
    "train.algorithm",
    "train.kl",
    "rollout.num_generations",
    "rollout.max_total_tokens",
)
"""Keys of a spec that decide its layout."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which model has which GPUs, and how a step's trajectories are cut over them."""

    actor: Gpus
    ref: Gpus | None
    """None where nothing needs a reference."""
    critic: Gpus | None
    """None where the estimator needs no critic."""
    num_engines: int
    tensor_parallel: int
    gpu_memory: float
    """Share of a GPU that vLLM takes."""
    all_share: bool
    """Whether every model and vLLM are on the policy's GPUs."""
    sleep: bool
    num_ranks: int
    """Parts that a batch of the policy is cut into: its GPUs / ring attention."""
    batch: int
    """Trajectories of one optimiser update."""
    micro_batch: int
    """Trajectories of one pass without packing: as many as surely fit `train.micro_batch_tokens`, at least one."""
    micro_batch_tokens: int
    """Tokens of one pass on one GPU with packing; a whole trajectory at least."""

    @classmethod
    def of(cls, spec: RunSpec) -> Self:
        """The layout of a spec whose engine is OpenRLHF."""
        engine, train, rollout = openrlhf_settings(spec), spec.train, spec.rollout
        all_share = engine.colocate is Colocate.ALL and engine.mode is Mode.SYNC
        num_ranks = max(1, engine.actor.total // engine.ring_attention)
        batch = train.prompts_per_step * rollout.num_generations // train.mini_batches
        longest = rollout.max_total_tokens
        memory = engine.vllm.gpu_memory
        fills = max(1, engine.actor.total // engine.vllm.tensor_parallel) if all_share else 1
        return cls(
            actor=engine.actor,
            ref=(engine.ref or engine.actor) if train.kl.coef > 0 else None,
            critic=(engine.critic or engine.actor) if train.algorithm.needs_critic else None,
            num_engines=engine.vllm.engines or fills,
            tensor_parallel=engine.vllm.tensor_parallel,
            gpu_memory=memory if memory is not None else SHARED_GPU_MEMORY if all_share else OWN_GPU_MEMORY,
            all_share=all_share,
            sleep=all_share if engine.sleep is None else engine.sleep,
            num_ranks=num_ranks,
            batch=batch,
            micro_batch=_largest_divisor(max(1, batch // num_ranks), train.micro_batch_tokens // longest),
            micro_batch_tokens=-(-max(train.micro_batch_tokens, longest) // engine.ring_attention),
        )

    @property
    def vllm_gpus(self) -> int:
        """GPUs that sample."""
        return self.num_engines * self.tensor_parallel

    def total_gpus(self, engine: OpenRlhfSettings) -> int:
        """GPUs of the whole job."""
        if self.all_share:
            return self.actor.total
        ref = 0 if self.ref is None or engine.colocate is not Colocate.NONE else self.ref.total
        critic = 0 if self.critic is None or engine.colocate is Colocate.TRAINED else self.critic.total
        return self.actor.total + ref + critic + self.vllm_gpus


def _largest_divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is at most `most`, or 1."""
    return next((n for n in range(min(number, most), 1, -1) if number % n == 0), 1)


# The version of OpenRLHF that rlf is made for, and the Pythons that it can be installed for.

VERSION = "0.11.2"
NEWEST_PYTHON = (3, 12)
"""The last Python that this version has a wheel for; there is nothing to build it from."""


def find_python_complaint() -> str | None:
    """Why OpenRLHF cannot be installed for this interpreter; None where it can."""
    if sys.version_info[:2] <= NEWEST_PYTHON:
        return None
    here, newest = (".".join(map(str, version)) for version in (sys.version_info[:2], NEWEST_PYTHON))
    return f"OpenRLHF {VERSION} cannot be installed for Python {here}: it has wheels up to {newest}"
