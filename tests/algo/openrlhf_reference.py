"""OpenRLHF's own mathematics, called with torch alone, as the reference of `rlf.algo`.

OpenRLHF's packages import ray, vllm, deepspeed and flash-attn at the door. Here those names are stand-ins for as
long as the modules that hold formulas are imported, and `sys.modules` is as before afterwards.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from rlf.algo.estimator import AdvantageInput

STANDINS = ("deepspeed", "peft", "ray", "vllm", "openrlhf")


def openrlhf() -> SimpleNamespace:
    """The functions and classes of the installed OpenRLHF; skips the test, loudly, where there is none."""
    if importlib.util.find_spec("openrlhf") is None:
        pytest.skip("OpenRLHF is not installed: parity with it is NOT checked (pip install --no-deps openrlhf==0.11.2)")
    return _load()


@cache
def _load() -> SimpleNamespace:
    with _standins(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from openrlhf.models import loss, utils
        from openrlhf.trainer.ppo_utils import experience, experience_maker, samples_generator

        return SimpleNamespace(
            PolicyLoss=loss.PolicyLoss,
            ValueLoss=loss.ValueLoss,
            aggregate_loss=loss.aggregate_loss,
            compute_approx_kl=utils.compute_approx_kl,
            compute_entropy=utils.compute_entropy,
            log_probs_from_logits=utils.log_probs_from_logits,
            Experience=experience.Experience,
            ExperienceMaker=experience_maker.RemoteExperienceMaker,
            SamplesGenerator=samples_generator.SamplesGenerator,
        )


@cache
def openrlhf_trainer() -> SimpleNamespace:
    """The model that OpenRLHF trains, its trainer's step and what it makes the batch with; skips as `openrlhf` does."""
    library = openrlhf()
    importlib.import_module("transformers.integrations.deepspeed")  # before there is a stand-in for what it looks for
    with _standins():
        _stand_in("peft", LoraConfig=None, TaskType=None, get_peft_model=None)
        _stand_in("peft.tuners.lora", LoraLayer=None)
        _stand_in("openrlhf.models.ring_attn_utils", gather_and_pad_tensor=None, unpad_and_slice_tensor=None)
        del sys.modules["openrlhf.utils.utils"]
        from openrlhf.models import actor, loss
        from openrlhf.utils import utils

        sys.modules["openrlhf.models"].__dict__.update(
            Actor=actor.Actor, PolicyLoss=loss.PolicyLoss, aggregate_loss=loss.aggregate_loss
        )
        sys.modules["openrlhf.utils"].get_tokenizer = None
        sys.modules["openrlhf.trainer.ppo_utils"].NaiveReplayBuffer = lambda *_: None
        _stand_in("openrlhf.utils.deepspeed", DeepspeedStrategy=None)
        states = {"offload_deepspeed_states": None, "reload_deepspeed_states": None}
        _stand_in("openrlhf.utils.deepspeed.deepspeed_utils", **states)
        groups = {"stateless_init_process_group": None, "torch_dist_barrier_and_cuda_sync": lambda: None}
        _stand_in("openrlhf.utils.distributed_util", **groups)
        _stand_in("openrlhf.trainer.ray.launcher", BaseModelActor=object)
        sys.modules["ray"].remote = lambda *_, **__: lambda found: found
        from openrlhf.trainer.ray import ppo_actor

    return SimpleNamespace(
        **vars(library), Actor=actor.Actor, Trainer=ppo_actor.ActorPPOTrainer, pad=utils.zero_pad_sequences
    )


@cache
def openrlhf_sft_dataset() -> Any:
    """OpenRLHF's dataset of supervised training; skips as `openrlhf` does."""
    openrlhf()
    with _standins():
        del sys.modules["openrlhf.utils.utils"]
        _stand_in("openrlhf.datasets", path=f"{_root()}/datasets")
        from openrlhf.datasets import sft_dataset

        return sft_dataset.SFTDataset


@cache
def openrlhf_decay_groups() -> Callable[..., list[dict[str, Any]]]:
    """What OpenRLHF's AdamW decays and what not; skips as `openrlhf` does."""
    openrlhf()
    with _standins():
        _stand_in("openrlhf.utils.deepspeed", path=f"{_root()}/utils/deepspeed")
        for name in ("deepspeed.runtime", "deepspeed.runtime.zero"):
            _stand_in(name)
        _stand_in("deepspeed.runtime.zero.partition_parameters", ZeroParamStatus=None)
        from openrlhf.utils.deepspeed import deepspeed_utils

        return deepspeed_utils.get_optimizer_grouped_parameters


@contextmanager
def _standins() -> Iterator[None]:
    """Stand-ins for what OpenRLHF's formulas do not use; takes them and all of OpenRLHF out again."""

    def ours(name: str) -> bool:
        return name.split(".")[0] in STANDINS

    before = {name: module for name, module in sys.modules.items() if ours(name)}
    root = _root()
    for name in before:
        del sys.modules[name]
    try:
        _stand_in("deepspeed")
        _stand_in("ray", wait=lambda refs, **_: (refs[:1], refs[1:]), get=lambda ref: ref)
        _stand_in("vllm", SamplingParams=None)
        for package in ("models", "utils", "trainer/ray", "trainer/ppo_utils"):
            _stand_in("openrlhf." + package.replace("/", "."), path=f"{root}/{package}")
        _stand_in("openrlhf.utils.utils", zero_pad_sequences=None)
        _stand_in("openrlhf.trainer.ray.launcher", RayActorGroup=None)
        _stand_in("openrlhf.trainer.ray.vllm_engine", batch_vllm_engine_call=None)
        yield
    finally:
        for name in [name for name in sys.modules if ours(name)]:
            del sys.modules[name]
        sys.modules.update(before)


def _root() -> str:
    return importlib.util.find_spec("openrlhf").submodule_search_locations[0]


def _stand_in(name: str, path: str | None = None, **attributes: object) -> None:
    module = types.ModuleType(name)
    module.__dict__.update(attributes)
    if path:
        module.__path__ = [path]
    sys.modules[name] = module


@contextmanager
def float64_kept() -> Iterator[None]:
    """OpenRLHF whitens and estimates KL in float32 whatever came in; here its `.float()` leaves float64 alone."""

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if tensor.dtype == torch.float64 else tensor.to(torch.float32)

    with mock.patch.object(torch.Tensor, "float", keep):
        yield


def reference_advantages(
    batch: AdvantageInput,
    estimator: str,
    *,
    num_generations: int,
    gamma: float = 1.0,
    lam: float = 1.0,
    std_norm: bool = True,
) -> SimpleNamespace:
    """OpenRLHF's advantages_BT, returns_BT and rewards_B (its `return` metric) for contiguous equal groups.

    The batch goes in as two experiences whose rows are interleaved, the way its balanced micro-batches do.
    """
    args = SimpleNamespace(
        rollout=SimpleNamespace(n_samples_per_prompt=num_generations, max_new_tokens=8),
        data=SimpleNamespace(max_len=16),
        reward=SimpleNamespace(clip_range=batch.reward_clip, overlong_buffer_len=None, stop_properly_penalty_coef=None),
        algo=SimpleNamespace(
            advantage=SimpleNamespace(estimator=estimator, gamma=gamma, lambd=lam, no_std_norm=not std_norm)
        ),
    )
    maker = experience_maker(args, batch.kl_coef)
    rows = len(batch.rewards_B)
    indices = [list(range(0, rows, 2)), list(range(1, rows, 2))]
    experiences = maker.compute_advantages_and_returns([_experience(batch, rows_) for rows_ in indices])
    back = torch.tensor(indices[0] + indices[1]).argsort()
    return SimpleNamespace(
        advantages_BT=torch.cat([item.advantages for item in experiences])[back],
        returns_BT=torch.cat([item.returns for item in experiences])[back],
        rewards_B=torch.cat([item.info["return"] for item in experiences])[back],
    )


def experience_maker(args: SimpleNamespace, kl_coef: float) -> Any:
    """What makes advantages of experiences, without the models that it otherwise asks."""
    controller = SimpleNamespace(value=kl_coef)
    return openrlhf().ExperienceMaker(None, None, None, None, controller, SimpleNamespace(args=args), None)


def _experience(batch: AdvantageInput, rows: list[int]) -> object:
    mask = batch.action_mask_BT[rows].long()
    kl = torch.zeros(mask.shape, dtype=batch.rewards_B.dtype) if batch.kl_BT is None else batch.kl_BT[rows] * mask
    values = None if batch.values_BT is None else batch.values_BT[rows]
    return openrlhf().Experience(
        index=rows, rewards=batch.rewards_B[rows].clone(), action_mask=mask, kl=kl, values=values, info={}
    )


def reference_filter(scores_PG: list[list[float]], low: float, high: float) -> list[bool]:
    """Which prompts OpenRLHF's sampler keeps, given the scores of their rollouts; no prompt is there to replace one."""
    library = openrlhf()
    kept: list[bool] = []
    for scores in scores_PG:
        experiences = [SimpleNamespace(scores=torch.tensor([score], dtype=torch.float64)) for score in scores]
        generator = SimpleNamespace(
            args=SimpleNamespace(algo=SimpleNamespace(dynamic_filtering_range=(low, high))),
            _dispatch_prompts_to_vllm=lambda *_, experiences=experiences, **__: [experiences],
            _process_response_into_experience=lambda response, **_: response,
        )
        prompts = iter([(None, ["prompt"], ["label"], [None])])
        with mock.patch.dict(library.SamplesGenerator._generate_vllm.__globals__, tqdm=mock.MagicMock()):
            accepted, _, _ = library.SamplesGenerator._generate_vllm(generator, prompts, 1, True)
        kept.append(len(accepted) > 0)
    return kept
