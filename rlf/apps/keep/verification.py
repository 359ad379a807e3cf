"""Whether a lineage is whole: its database, its checkpoints, and the folders of its runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlf.apps.keep.chain import ChainFindings, check_chain
from rlf.apps.keep.damage import Progress, find_damage
from rlf.apps.keep.recompute import Recomputation, check_plan
from rlf.apps.keep.salvage import ReadTable, read_tables
from rlf.apps.keep.upkeep import stray_folders
from rlf.core.errors import RlfError, RunError
from rlf.core.files import is_run_id
from rlf.lineage.reader import Reader
from rlf.lineage.store import DamagedDatabase, NoDatabase, Store
from rlf.runs.place import open_lineage
from rlf.runs.restore import find_checkpoint_damage, kept_checkpoints


@dataclass(frozen=True, slots=True)
class Head:
    """The last link of a run's chain: who knows it sees any later edit of what the run held by then."""

    number: int
    """Links of the chain."""
    sha256: str


@dataclass(frozen=True, slots=True)
class Verification:
    """Findings about a lineage."""

    num_runs: int
    faults: tuple[str, ...]
    """What is damaged, in words; empty where all is whole."""
    remarks: tuple[str, ...]
    """What is unusual and no damage."""
    heads: Mapping[str, Head] = field(default_factory=dict)
    """The head of each run's chain, by its id."""
    readable: tuple[ReadTable, ...] = ()
    """What is readable, where the database itself is damaged; empty else."""


def verify_folder(runs_folder: Path, progress: Progress = lambda _: None) -> Verification:
    """Reads the whole lineage of a runs folder and its checkpoints, as far as it can be read.

    Args:
        progress: called with what is read now, often.

    Raises:
        RlfError: there is no lineage, it is another program's, or nothing can be read for a reason that is no damage.
    """
    progress("what the last process left behind")  # a journal of gigabytes is written into the database first
    try:
        with open_lineage(runs_folder) as store:
            found = _verify_what_opens(store, runs_folder, progress)
    except (DamagedDatabase, NoDatabase) as error:
        found = Verification(0, (str(error),), ())
    path = runs_folder / "rlf.db"
    if not any(fault.startswith(("the file", "table", str(path))) for fault in found.faults) or not path.is_file():
        return found
    try:
        return replace(found, readable=tuple(read_tables(path)))
    except RunError as error:
        return replace(found, faults=(*found.faults, str(error)))


def _verify_what_opens(store: Store, runs_folder: Path, progress: Progress) -> Verification:
    try:
        return verify(Reader(store), runs_folder, progress)
    except (RlfError, OSError):
        raise
    except Exception:
        faults = tuple(find_damage(store))
        if not faults:
            raise  # a defect of rlf
        return Verification(0, faults, ())


def verify(reader: Reader, runs_folder: Path, progress: Progress = lambda _: None) -> Verification:
    """Reads the whole lineage and its newest checkpoints."""
    found = check_rows(reader, progress)
    progress("the checkpoints")
    run_ids = [run.record.id for run in reader.list_runs()]
    strays = (
        f"{path}: no run of this lineage has this folder. It is of another database, or what a removal left: delete it "
        "if nothing needs it."
        for path in stray_folders(runs_folder, run_ids)
    )
    faults = (*found.faults, *damaged_checkpoints(reader))
    return replace(found, faults=faults, remarks=(*found.remarks, *strays))


def check_rows(reader: Reader, progress: Progress = lambda _: None) -> Verification:
    """Reads the whole database, without what its rows name on the disk."""
    runs = reader.list_runs()
    chains, unreadable = dict[str, ChainFindings](), list[Exception]()
    for run in runs:
        try:
            with reader.store.read() as connection:
                look = Recomputation(connection, run)
                chains[run.record.id] = check_chain(connection, run.record.id, look, progress)
        except Exception as error:  # noqa: BLE001 - damage shows in any way
            unreadable.append(error)
    # What matches its link is as it was written, and is not looked at again.
    is_proven = not unreadable and not any(found.num_unproven for found in chains.values())
    faults = [*find_damage(reader.store, progress, is_proven=is_proven)]
    faults += _foreign_ids([run.record.id for run in runs])
    faults += [fault for found in chains.values() for fault in found.faults]
    if unreadable and not faults:
        raise unreadable[0]  # a defect of rlf
    faults += [f"run {run.record.id}: {words}" for run in runs for words in check_plan(run)]
    remarks = tuple(remark for found in chains.values() for remark in found.remarks)
    heads = {run_id: Head(found.head.number, found.head.sha256) for run_id, found in chains.items() if found.head}
    return Verification(len(runs), tuple(faults), remarks, heads)


def _foreign_ids(run_ids: list[str]) -> Iterator[str]:
    for run_id in run_ids:
        if not is_run_id(run_id):
            yield f"run {run_id!r}: not a run's id; the database was changed or crafted. Remove it with --keep-files"


def damaged_checkpoints(reader: Reader) -> Iterator[str]:
    """Every kept checkpoint that is gone or changed, in words."""
    for run in reader.list_runs():
        for saved in kept_checkpoints(reader, run.record.id):
            damage = find_checkpoint_damage(run.record, saved)
            if damage is not None:
                yield f"run {run.record.id}: the checkpoint of step {saved.step} is damaged: {damage}: {saved.path}"
