"""A checkpoint's model as a Hugging Face folder, and a checkpoint as the beginning of another run."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from rlf.chat.encoding import load_tokenizer
from rlf.core.identity import hash_path
from rlf.engines.local.checkpoint import load_weights, publish_folder, read_progress
from rlf.engines.local.manifest import MANIFEST
from rlf.engines.local.model import load_model, resolve_dtype, save_model
from rlf.spec.model_files import model_location
from rlf.spec.models import ModelSpec


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
