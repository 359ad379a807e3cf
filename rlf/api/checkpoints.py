"""The checkpoints that the lineage names: whether they are there and whole, and taking those of a collapse away."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from rlf.lineage.marks import forget_checkpoints
from rlf.lineage.reader import Reader
from rlf.lineage.store import Store


def drop_checkpoints(store: Store, run_id: str, *, from_step: int) -> None:
    """Takes a run's checkpoints of that step and later away, so that it resumes before."""
    saved = [item for item in Reader(store).checkpoints(run_id) if item.step >= from_step]
    forget_checkpoints(store, run_id, [item.step for item in saved])
    for item in saved:
        shutil.rmtree(item.path, ignore_errors=True)


def damaged_checkpoints(reader: Reader) -> Iterator[str]:
    """Newest checkpoints that are gone or changed, in words. Older ones go as new ones come, by `checkpoint.keep`."""
    from rlf.engines.local import checkpoint as local
    from rlf.engines.openrlhf.job import checkpoints as openrlhf

    for run in reader.list_runs():
        for saved in reader.checkpoints(run.record.id)[-1:]:
            path = Path(saved.path)
            match run.record.engine:
                case "local":
                    whole = local.is_whole(path)
                case "openrlhf" if run.record.plan["spec"]["engine"].get("ingest") is None:
                    whole = openrlhf.is_whole(path, saved.sha256)
                case _:  # on disks that are not seen from here
                    whole = True
            if not whole:
                yield f"run {run.record.id}: the checkpoint of step {saved.step} is gone or damaged: {path}"
