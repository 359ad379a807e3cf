"""What is stored, brought back: a checkpoint's weights and counters, its model, and models to be used as they are."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors.torch import load_file

from rlf.chat.encoding import decode, load_tokenizer
from rlf.core.errors import RunError
from rlf.core.identity import MANIFEST, hash_path
from rlf.engines.engine import SERVED, HostSettings
from rlf.engines.local.checkpoint import SAMPLER, WEIGHTS, publish_folder, read_progress, trainable
from rlf.engines.local.host import PolicyHost
from rlf.engines.local.model import PolicyModel, load_model, resolve_device, resolve_dtype, save_model
from rlf.engines.local.update import Updater
from rlf.spec.model_files import model_location
from rlf.spec.models import ModelSpec, Schedule

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def load_checkpoint(checkpoint: Path, updater: Updater) -> None:
    """Puts weights, optimisers and counters back in place. Raises RunError when they do not fit the model."""
    load_weights(checkpoint, updater.model)
    state = torch.load(checkpoint / "trainer.pt", map_location=updater.model.device, weights_only=True)
    _load_optimizer(updater.optimizer, state["optimizer"])
    updater.num_updates = state["num_updates"]
    if updater.critic is not None and updater.critic_optimizer is not None and "critic" in state:
        updater.critic.load_state_dict(state["critic"])
        _load_optimizer(updater.critic_optimizer, state["critic_optimizer"])
    if updater.reference is not None and "reference" in state:
        updater.reference.full.load_state_dict(state["reference"])


def _load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Takes what was learnt and keeps the plan's own settings: a fork may have others."""
    own = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, settings in zip(optimizer.param_groups, own, strict=True):
        group.update(settings)


def load_weights(checkpoint: Path, model: PolicyModel) -> None:
    """Puts the trained weights back in place. Raises RunError when they do not fit the model."""
    weights = load_file(checkpoint / WEIGHTS, device=str(model.device))
    parameters = trainable(model)
    mismatched = sorted(weights.keys() ^ parameters.keys())
    mismatched += [n for n in weights.keys() & parameters.keys() if weights[n].shape != parameters[n].shape]
    if mismatched:
        raise RunError(
            f"{checkpoint}: the checkpoint does not fit the model: {len(mismatched)} weights differ, first "
            f"{mismatched[0]}. Resume with the model and LoRA settings that the run began with."
        )
    with torch.no_grad():
        for name, value in weights.items():
            parameters[name].copy_(value)


def load_sampler_weights(checkpoint: Path, sampler: PolicyModel) -> bool:
    """Restores the weights of the sampler, one update behind; returns whether the checkpoint has them."""
    if not (checkpoint / SAMPLER).exists():
        return False
    parameters = dict(sampler.full.named_parameters())
    with torch.no_grad():
        for name, value in load_file(checkpoint / SAMPLER, device=str(sampler.device)).items():
            parameters[name].copy_(value)
    return True


def save_checkpoint_model(values: Any, checkpoint: Path, target: Path) -> None:
    """Writes the model of a checkpoint as the run would have written it at its end.

    Args:
        values: the plan's `model` section as JSON values.

    Raises:
        RlfError, RunError: the model that the run began with does not load, or does not fit the checkpoint.
    """
    spec, device = ModelSpec.model_validate(values), torch.device("cpu")
    path = model_location(spec.path)
    model = load_model(path, dtype=resolve_dtype(spec.dtype, device), device=device, lora=spec.lora)
    load_weights(checkpoint, model)
    target.mkdir(parents=True)
    save_model(model, load_tokenizer(path), target)


def copy_checkpoint(checkpoint: Path, folder: Path) -> tuple[Path, str]:
    """Copies a checkpoint into the checkpoints of another run, which evaluates before its first step.

    Returns it with the hash of its manifest.
    """
    target = folder / checkpoint.name

    def write(place: Path) -> None:
        for file in checkpoint.iterdir():
            if file.name != MANIFEST:
                shutil.copy(file, place / file.name)
        progress = replace(read_progress(checkpoint), evaluated=-1, best_step=None, best_success=None)
        (place / "progress.json").write_text(json.dumps(asdict(progress)))

    publish_folder(target, write)
    return target, hash_path(target / MANIFEST)


def load_host(
    path: str, settings: HostSettings = SERVED, *, device: Literal["auto", "cpu", "cuda"] = "auto"
) -> tuple[PolicyHost, PreTrainedTokenizerBase]:
    """A model to be used as it is, with its tokenizer: on the GPU in bfloat16 if there is one.

    Raises:
        RlfError: it does not load, or is no model that this host can run.
    """
    place = resolve_device(device)
    tokenizer = load_tokenizer(path)
    # Weights are held as in training where the bits matter.
    is_exact = settings.schedule is not Schedule.CLOCK
    model = load_model(path, dtype=resolve_dtype(settings.dtype, place), device=place, frozen=not is_exact)
    host = PolicyHost(
        model,
        partial(decode, tokenizer),
        num_slots=settings.num_slots,
        max_tokens=settings.max_tokens,
        schedule=settings.schedule,
        may_wait=settings.may_wait,
        threads=1 if is_exact else torch.get_num_threads(),
    )
    return host, tokenizer
