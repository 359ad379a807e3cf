"""DeepSpeed's checkpoints of a job: `ckpt/_actor/global_stepN`, the critic's beside, and the one that `latest` names.

DeepSpeed writes a model's `latest` when all of that model is written, and continues from the one that it names. Policy
and critic are written side by side, so a checkpoint is whole when both have come as far.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from rlf.core.identity import hash_json
from rlf.engines.openrlhf.job.folder import Job

_PREFIX = "global_step"
_METRIC = "metric.json"
"""OpenRLHF's file of a checkpoint with the result that it is worth keeping for (0.11.2)."""


def latest_checkpoint(job: Job) -> Path | None:
    """The policy's folder of the newest checkpoint that every trained model has whole; None where there is none."""
    whole = whole_checkpoints(job)
    return whole[-1] if whole else None


def whole_checkpoints(job: Job) -> list[Path]:
    """The policy's folders of the checkpoints that every trained model has whole and still there, oldest first."""
    policy, *others = _trained(job)
    last = min(_last_written(folder) for folder in (policy, *others))
    names = (path.name for path in policy.glob(f"{_PREFIX}*") if step_of(path) <= last)
    there = (policy / name for name in names if all((folder / name).is_dir() for folder in others))
    return sorted(there, key=step_of)


def point_to(job: Job, checkpoint: Path | None) -> None:
    """Makes DeepSpeed continue from a checkpoint, since it may otherwise look for one that was removed.

    What is newer is removed: a stop left it half-written, or the run goes back behind it. OpenRLHF counts its folder as
    a checkpoint, and would remove an older one for it: the one that the run continues from.

    Args:
        checkpoint: the policy's folder; None: from the start.
    """
    for folder in job.checkpoints.glob("_*"):
        if checkpoint is None:
            shutil.rmtree(folder)
            continue
        (folder / "latest").write_text(checkpoint.name)
        for newer in folder.glob(f"{_PREFIX}*"):
            if step_of(newer) > step_of(checkpoint):
                shutil.rmtree(newer)


def kept_checkpoints(job: Job, keep: int) -> list[Path]:
    """The policy's folders that a run keeps, oldest first: the newest, and the one with the best evaluation."""
    whole, best = whole_checkpoints(job), best_checkpoint(job)
    return [path for path in whole if path in whole[-keep:] or (best is not None and path == best[0])]


def best_checkpoint(job: Job) -> tuple[Path, float] | None:
    """The policy's folder of the checkpoint with the best evaluation, and its success; None where none is marked."""
    marked = [(path, success) for path in whole_checkpoints(job) if (success := _read_metric(path)) is not None]
    return max(marked, key=lambda found: found[1], default=None)


def mark_best(job: Job, step: int, success: float) -> None:
    """Keeps the whole checkpoint of a step, if there is one, in place of the one that was the best before.

    OpenRLHF removes checkpoints without a metric before those with one, and writes none by itself, so that the one with
    a metric stays. Among the others it takes the folder that changed first, so the time of a folder is put back.
    """
    whole = whole_checkpoints(job)
    if step not in map(step_of, whole):
        return
    for folder in _trained(job):
        for path in whole:
            there, is_new = folder / path.name, step_of(path) == step
            if is_new or _read_metric(there) is not None:
                changed = there.stat()
                whole_file = there / f".{_METRIC}.tmp"  # OpenRLHF may read it at any moment
                whole_file.write_text(json.dumps({"metric_value": success if is_new else None}))
                whole_file.replace(there / _METRIC)
                os.utime(there, ns=(changed.st_atime_ns, changed.st_mtime_ns))


def _read_metric(checkpoint: Path) -> float | None:
    try:
        found = json.loads((checkpoint / _METRIC).read_text())
    except (OSError, ValueError):  # there is none, or OpenRLHF is writing it
        return None
    value = found.get("metric_value") if isinstance(found, dict) else None
    return value if isinstance(value, float) else None


def drop_surplus(job: Job, keep: int) -> None:
    """Removes the checkpoints of a job that is over which the run does not keep.

    While it runs, more are there: OpenRLHF makes room before it writes, and counts the best one too.
    """
    kept = kept_checkpoints(job, keep)
    for path in whole_checkpoints(job):
        for folder in _trained(job) if path not in kept else ():
            shutil.rmtree(folder / path.name)


def saved_models(job: Job, last_step: int) -> dict[int, Path]:
    """The Hugging Face folders of a job by step, in order: those of its checkpoints, and the final model."""
    folders = job.checkpoints.glob(f"{_PREFIX}*_hf")
    found = {int(path.name.removeprefix(_PREFIX).removesuffix("_hf")): path for path in folders}
    last = {last_step: job.model} if (job.model / "config.json").is_file() else {}
    return dict(sorted(found.items())) | last


def step_of(checkpoint: Path) -> int:
    """The number of updates before a checkpoint."""
    return int(checkpoint.name.removeprefix(_PREFIX))


def checkpoint_hash(folder: Path) -> str:
    """Hash of the names and sizes of a checkpoint's shards; their contents can be terabytes."""
    return _hash_of(_shards(folder), folder)


def _hash_of(shards: Sequence[Path], folder: Path) -> str:
    return hash_json([[os.path.relpath(path, folder), path.stat().st_size] for path in shards])


def is_whole(checkpoint: Path, sha256: str) -> bool:
    """Whether the shards are those that were recorded, and the content of each has the checksums of its writing."""
    try:
        shards = _shards(checkpoint)
        policys = [path for path in shards if path.is_relative_to(checkpoint)]
        # Before 2026-11-27 the hash of a checkpoint with a critic was that of the policy alone.
        is_recorded = sha256 in (_hash_of(shards, checkpoint), _hash_of(policys, checkpoint))
        return is_recorded and all(map(_reads_back, shards))
    except OSError:
        return False


def _reads_back(shard: Path) -> bool:
    """torch writes zip archives, with a checksum for each tensor."""
    try:
        with ZipFile(shard) as archive:
            return archive.testzip() is None
    except BadZipFile:
        return False


def _shards(folder: Path) -> list[Path]:
    """Files that each process of the job wrote: weights, and its part of the optimiser. The critic's lie beside."""
    return sorted([*folder.rglob("*.pt"), *(folder.parents[1] / "_critic" / folder.name).rglob("*.pt")])


def _trained(job: Job) -> list[Path]:
    """Where each trained model of a job is saved, the policy first."""
    has_critic = job.argv.is_file() and "--critic.adam.lr" in json.loads(job.argv.read_text())
    return [job.checkpoints / name for name in ("_actor", *(["_critic"] if has_critic else []))]


def _last_written(folder: Path) -> int:
    """The step of the last whole checkpoint of one model; -1 where there is none."""
    try:
        tag = (folder / "latest").read_text().strip()
    except FileNotFoundError:
        return -1
    if not tag.startswith(_PREFIX) or not (folder / tag).is_dir():  # also a file that is being written and is empty
        return -1
    return step_of(folder / tag)
