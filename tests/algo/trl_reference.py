"""TRL's own loss, called with log-probabilities in place of a model, as the reference of `rlf.algo.losses`."""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch


def trl_trainer() -> Any:
    """TRL's `GRPOTrainer`; skips the test, loudly, where there is none."""
    if importlib.util.find_spec("trl") is None:
        pytest.skip("TRL is not installed: parity with it is NOT checked (pip install --no-deps trl==1.16.0)")
    from trl.trainer.grpo_trainer import GRPOTrainer

    return GRPOTrainer


def trl_loss(
    logprobs: torch.Tensor,
    old: torch.Tensor,
    rollout: torch.Tensor | None,
    advantages_B: torch.Tensor,
    mask: torch.Tensor,
    entropy: torch.Tensor | None = None,
    **settings: Any,
) -> torch.Tensor:
    """The loss of `GRPOTrainer` for rows whose tokens are all completion. `settings` are fields of its config."""
    trainer = trl_trainer()
    entropy = torch.zeros_like(old) if entropy is None else entropy
    accelerator = SimpleNamespace(
        num_processes=1,
        gather=lambda tensor: tensor,
        pad_across_processes=lambda tensor, **_: tensor,
        reduce=lambda tensor, **_: tensor,
    )
    args = SimpleNamespace(
        delta=None,
        use_bias_correction_kl=False,
        sapo_temperature_pos=settings.pop("sapo_temperature_pos", 1.0),
        sapo_temperature_neg=settings.pop("sapo_temperature_neg", 1.05),
    )
    fields = {
        "loss_type": "dapo",
        "importance_sampling_level": "token",
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "max_completion_length": None,
    } | settings
    stub = SimpleNamespace(
        **fields,
        args=args,
        accelerator=accelerator,
        model=SimpleNamespace(training=False),
        beta=0.0,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        aux_loss_enabled=False,
        _entropy_bonus_enabled=False,
        _metrics=defaultdict(lambda: defaultdict(list)),
        _get_per_token_logps_and_entropies=lambda *_, **__: (logprobs, entropy, None),
    )
    stub.get_high_entropy_mask = lambda *given: trainer.get_high_entropy_mask(stub, *given)
    stub.get_off_policy_mask = trainer.get_off_policy_mask
    ones = torch.ones(logprobs.shape, dtype=torch.int64)
    inputs = {
        "prompt_ids": ones[:, :0],
        "prompt_mask": ones[:, :0],
        "completion_ids": ones,
        "completion_mask": mask.long(),
        "advantages": advantages_B,
        "old_per_token_logps": old,
        "num_items_in_batch": mask.sum(),
    }
    if rollout is not None:
        inputs["sampling_per_token_logps"] = rollout
    loss: torch.Tensor = trainer._compute_loss(stub, None, inputs)
    return loss
