"""Checkpoints of runs: which are undamaged, where a run continues, and how to remove some."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlf.core.errors import RlfError
from rlf.core.files import check_run_id, path_inside
from rlf.engines.engine import Start, recorded_engine
from rlf.lineage.marks import forget_checkpoints
from rlf.lineage.reader import Reader
from rlf.lineage.records import Checkpoint, RunRecord
from rlf.lineage.store import Store


def drop_checkpoints(store: Store, run_id: str, folder: Path, *, from_step: int) -> None:
    """Removes a run's checkpoints of that step and later, so that it resumes before them.

    Args:
        folder: the run's.

    Raises:
        RlfError: a checkpoint's path leads out of the folder that the run saves in, and nothing was deleted.
    """
    reader = Reader(store)
    record = reader.get_run(run_id).record
    root = recorded_engine(record).checkpoints_in(folder)
    saved = [item for item in reader.checkpoints(run_id) if item.step >= from_step]
    places = [path_inside(root, Path(item.path).absolute()) for item in saved]
    forget_checkpoints(store, run_id, [item.step for item in saved])
    for place in places:
        shutil.rmtree(place, ignore_errors=True)


def kept_checkpoints(reader: Reader, run_id: str) -> list[Checkpoint]:
    """Those that `checkpoint.keep` has not taken away, in order of step."""
    return [saved for saved in reader.checkpoints(run_id) if saved.dropped is None]


def damaged_checkpoints(reader: Reader) -> Iterator[str]:
    """Every kept checkpoint that is gone or changed, in words."""
    for run in reader.list_runs():
        for saved in kept_checkpoints(reader, run.record.id):
            damage = find_damage(run.record, saved)
            if damage is not None:
                yield f"run {run.record.id}: the checkpoint of step {saved.step} is damaged: {damage}: {saved.path}"


def find_damage(record: RunRecord, saved: Checkpoint) -> str | None:
    """The damage of a checkpoint in words; None where it is whole, or on a disk that is not seen from here."""
    try:
        return recorded_engine(record).find_damage(_checkpoint_path(record, saved), saved.sha256)
    except RlfError as error:
        return str(error)


def _checkpoint_path(record: RunRecord, saved: Checkpoint) -> Path:
    """Where a checkpoint is. Raises RlfError where its path leads out of the folder that the run saves in."""
    folder = Path(record.folder)
    if folder.name != check_run_id(record.id):
        raise RlfError(f"the folder {folder} does not have the run's id as its name: nothing was read there")
    return path_inside(recorded_engine(record).checkpoints_in(folder), Path(saved.path).absolute())


def choose_start(reader: Reader, record: RunRecord, wanted: int | None = None) -> Start:
    """The newest whole checkpoint of a run, or that of a step that was asked for; 0 is the run's beginning.

    One damaged checkpoint is skipped; where more would be lost, the caller has to name the step.

    Raises:
        RlfError: there is no whole checkpoint of that step, or too many are damaged.
    """
    kept = kept_checkpoints(reader, record.id)
    if wanted is not None:
        return _start_at(record, kept, wanted)
    skipped: list[str] = []
    for saved in reversed(kept):
        damage = find_damage(record, saved)
        if damage is None:
            break
        skipped.append(f"step {saved.step}: {damage}: {saved.path}")
    found = kept[-len(skipped) - 1] if len(skipped) < len(kept) else None
    place = None if found is None else _checkpoint_path(record, found)
    start = Start(0 if found is None else found.step, place, tuple(skipped))
    if len(skipped) > 1 or (skipped and found is None):
        raise RlfError(_too_far(record, start, kept[-1].step))
    return start


def _start_at(record: RunRecord, kept: Sequence[Checkpoint], wanted: int) -> Start:
    if wanted == 0:
        return Start(0, None, named=True)
    saved = next((item for item in kept if item.step == wanted), None)
    damage = "there is none" if saved is None else find_damage(record, saved)
    if saved is None or damage is not None:
        there = ", ".join(str(item.step) for item in kept) or "none"
        raise RlfError(
            f"run {record.id}: the checkpoint of step {wanted}: {damage}. Checkpoints are kept of steps: {there}; 0 is "
            "the beginning of the run. Name one of these."
        )
    return Start(wanted, _checkpoint_path(record, saved), named=True)


def _too_far(record: RunRecord, start: Start, newest: int) -> str:
    lines = "\n".join(f"  {line}" for line in start.skipped)
    back = f"step {start.step}" if start.step else "the beginning of the run, step 0"
    return (
        f"run {record.id}: {len(start.skipped)} damaged checkpoints are refused:\n{lines}\nThe newest whole state is "
        f"that of {back}: steps {start.step + 1} to {newest} and later would be trained again. Restore a checkpoint, "
        f"or accept that with `rlf resume {record.id} --from {start.step}`."
    )
