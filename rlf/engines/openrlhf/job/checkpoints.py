"""DeepSpeed's checkpoints of a job: `ckpt/_actor/global_stepN`, the critic's beside, and the one that `latest` names.

DeepSpeed writes `latest` when all of a checkpoint is written, and continues from the one that it names.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from rlf.core.hashing import hash_json
from rlf.engines.openrlhf.job.folder import Job

_PREFIX = "global_step"


def latest_checkpoint(job: Job) -> Path | None:
    """The policy's folder of the checkpoint that was written last; None where there is none."""
    try:
        tag = _latest(job).read_text().strip()
    except FileNotFoundError:
        return None
    if not tag.startswith(_PREFIX):  # also a file that is being written and is empty so far
        return None
    folder = _latest(job).with_name(tag)
    return folder if folder.is_dir() else None


def whole_checkpoints(job: Job) -> list[Path]:
    """The policy's folders of the latest checkpoint and of those before it that are still there, oldest first."""
    latest = latest_checkpoint(job)
    if latest is None:
        return []
    there = [path for path in latest.parent.glob(f"{_PREFIX}*") if step_of(path) <= step_of(latest)]
    return sorted(there, key=step_of)


def point_to(job: Job, checkpoint: Path | None) -> None:
    """Makes DeepSpeed continue from a checkpoint, since it may otherwise look for one that was removed.

    None: from the start. What a stop left half-written is removed, since OpenRLHF takes its folder for a checkpoint.
    """
    for folder in job.checkpoints.glob("_*"):
        if checkpoint is None:
            shutil.rmtree(folder)
        else:
            (folder / "latest").write_text(checkpoint.name)


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
    return hash_json([[path.relative_to(folder).as_posix(), path.stat().st_size] for path in _shards(folder)])


def is_whole(checkpoint: Path, sha256: str) -> bool:
    """Whether the shards are those that were recorded, and the content of each has the checksums of its writing."""
    try:
        return checkpoint_hash(checkpoint) == sha256 and all(map(_reads_back, _shards(checkpoint)))
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
    """Files that each process of the job wrote: weights, and its part of the optimiser."""
    return sorted(folder.rglob("*.pt"))


def _latest(job: Job) -> Path:
    return job.checkpoints / "_actor" / "latest"
