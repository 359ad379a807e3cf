"""The checkpoints that the lineage names: whether they are there and whole, and taking those of a collapse away."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from rlf.core.inside import path_inside
from rlf.engines.openrlhf.job.folder import Job
from rlf.lineage.marks import forget_checkpoints
from rlf.lineage.reader import Reader
from rlf.lineage.records import RunRecord
from rlf.lineage.store import Store


def job_of(record: RunRecord, folder: Path) -> Job:
    """The job of an OpenRLHF run whose folder this is."""
    output = record.plan["spec"]["engine"].get("output")
    return Job(folder / "job", folder / "job" if output is None else Path(output).absolute() / folder.name)


def drop_checkpoints(store: Store, run_id: str, folder: Path, *, from_step: int) -> None:
    """Takes a run's checkpoints of that step and later away, so that it resumes before.

    Args:
        folder: the run's.

    Raises:
        RlfError: a checkpoint's path leads out of the folder that the run saves in, and nothing was deleted.
    """
    reader = Reader(store)
    record = reader.get_run(run_id).record
    root = job_of(record, folder).checkpoints if record.engine == "openrlhf" else folder
    saved = [item for item in reader.checkpoints(run_id) if item.step >= from_step]
    places = [path_inside(root, Path(item.path).absolute()) for item in saved]
    forget_checkpoints(store, run_id, [item.step for item in saved])
    for place in places:
        shutil.rmtree(place, ignore_errors=True)


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
