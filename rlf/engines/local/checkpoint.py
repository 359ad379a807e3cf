"""Checkpoints, each complete or absent: written aside, hashed, synced, then renamed into place.

A checkpoint holds the trainable weights, the optimisers and the counters. Every random number of a run derives from
its seed and a counter, so there is no generator state to keep.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from rlf.core.files import explaining_refusal, sync_path
from rlf.core.identity import MANIFEST, hash_path
from rlf.engines.local.model import PolicyModel
from rlf.engines.local.update import Updater
from rlf.training.evaluation import is_best

WEIGHTS, SAMPLER = "weights.safetensors", "sampler.safetensors"
REWARDS = "rewards.json"
"""The file of a checkpoint with what reward terms have counted."""


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """How far a run has come."""

    step: int = 0
    """Updates made."""
    cursor: int = 0
    """Tasks drawn from the training set so far, over all its passes."""
    evaluated: int = -1
    """The last step whose evaluation is complete; -1 before the first."""
    best_step: int | None = None
    """The step after the first whose sampled evaluation had the highest success; None before there is one."""
    best_success: float | None = None
    """That success."""
    late: tuple[int, ...] = ()
    """Positions of drawn tasks that no step has taken yet: the next one plays their groups from the beginning."""
    drawn: dict[str, Any] = field(default_factory=dict)
    """What the sampler of tasks has drawn and seen."""


def save_checkpoint(
    folder: Path,
    updater: Updater,
    progress: TrainingProgress,
    rewards: Mapping[str, Any] | None = None,
    sampler: PolicyModel | None = None,
) -> tuple[Path, str]:
    """Writes `folder/step-NNNNNN`; returns it with the hash of its manifest.

    Args:
        rewards: what terms have counted.
        sampler: the copy of the policy that the next step's rollouts are sampled with, where it is an update behind.

    Raises RunError where the disk refuses it; what was there before stays whole.
    """
    target = folder / f"step-{progress.step:06d}"

    def write(place: Path) -> None:
        trained = trainable(updater.model)
        save_file({name: p.detach().contiguous() for name, p in trained.items()}, place / WEIGHTS)
        if sampler is not None:
            behind = dict(sampler.full.named_parameters())
            save_file({name: behind[name].contiguous() for name in trained}, place / SAMPLER)
        state: dict[str, Any] = {"optimizer": updater.optimizer.state_dict(), "num_updates": updater.num_updates}
        if updater.critic is not None and updater.critic_optimizer is not None:
            state["critic"] = updater.critic.state_dict()
            state["critic_optimizer"] = updater.critic_optimizer.state_dict()
        if updater.reference is not None and updater.moves_reference:
            state["reference"] = updater.reference.full.state_dict()
        torch.save(state, place / "trainer.pt")
        (place / "progress.json").write_text(json.dumps(asdict(progress)))
        if rewards:
            (place / REWARDS).write_text(json.dumps(rewards))

    publish_folder(target, write)
    return target, hash_path(target / MANIFEST)


def note_best(progress: TrainingProgress, success: float | None) -> TrainingProgress:
    """The progress after an evaluation: a checkpoint of the best one is kept."""
    if not is_best(progress.step, success, progress.best_success):
        return progress
    return replace(progress, best_step=progress.step, best_success=success)


def kept_steps(folder: Path, keep: int, progress: TrainingProgress) -> tuple[int, ...]:
    """Steps whose checkpoints stay: the newest `keep`, and the one with the best evaluation.

    Those of later steps than the run has made are left over from before it went back.
    """
    found = sorted(int(path.name.removeprefix("step-")) for path in folder.glob("step-*"))
    steps = [step for step in found if step <= progress.step]
    return tuple(step for step in steps if step in steps[-keep:] or step == progress.best_step)


def prune_checkpoints(folder: Path, kept: Collection[int]) -> None:
    """Deletes all checkpoints but the kept ones; called once the lineage has recorded that."""
    for old in folder.glob("step-*"):
        if int(old.name.removeprefix("step-")) not in kept:
            shutil.rmtree(old)


def publish_folder(target: Path, write: Callable[[Path], None]) -> None:
    """Makes a folder appear complete or not at all: temporary folder, manifest, fsync, rename.

    Raises RunError where the disk refuses it.
    """
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    resume = "`rlf resume` the run: it continues from its last complete checkpoint."
    with explaining_refusal(target, resume), _cleared_on_error(temporary):
        temporary.mkdir(parents=True)
        write(temporary)
        files = sorted(p for p in temporary.rglob("*") if p.is_file())
        manifest = {p.relative_to(temporary).as_posix(): hash_path(p) for p in files}
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1))
        for path in [*files, temporary / MANIFEST, temporary]:
            sync_path(path)
        shutil.rmtree(target, ignore_errors=True)
        temporary.rename(target)
        sync_path(target.parent)


def read_progress(checkpoint: Path) -> TrainingProgress:
    """The counters of a checkpoint."""
    values = json.loads((checkpoint / "progress.json").read_text())
    return TrainingProgress(**values | {"late": tuple(values.get("late", ()))})


def read_rewards(checkpoint: Path) -> dict[str, Any]:
    """Counts of reward terms; empty where none counts anything, and in checkpoints of older versions."""
    path = checkpoint / REWARDS
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def trainable(model: PolicyModel) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in model.full.named_parameters() if p.requires_grad}


@contextmanager
def _cleared_on_error(temporary: Path) -> Iterator[None]:
    """Leaves nothing half-written, which would take the room that is missing."""
    try:
        yield
    except Exception:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
