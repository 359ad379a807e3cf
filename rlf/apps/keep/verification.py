"""Whether a lineage is whole: its database, checkpoints and folders, and what follows from what runs recorded."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from rlf.algo.estimator import AdvantageInput, Estimator, TermRewards
from rlf.apps.keep.chain import ChainFindings, Collected, Place, check_chain
from rlf.apps.keep.damage import Progress, find_damage
from rlf.apps.keep.salvage import ReadTable, read_tables
from rlf.apps.keep.upkeep import stray_folders
from rlf.core.errors import RlfError, RunError
from rlf.core.files import is_run_id
from rlf.core.redact import REDACTED
from rlf.engines.engine import Engine
from rlf.lineage.blobs import read_blobs
from rlf.lineage.chain import SCORE, TRAJECTORY
from rlf.lineage.reader import Reader
from rlf.lineage.records import EVALUATION, SWEEP, TRAIN, Run
from rlf.lineage.rows import PayloadReader
from rlf.lineage.store import DamagedDatabase, NoDatabase, Store
from rlf.plan.compiler import hash_recorded
from rlf.runs.place import open_lineage
from rlf.runs.restore import find_checkpoint_damage, kept_checkpoints, recorded_engine
from rlf.spec.models import KlPlace, TrainSpec
from rlf.training.evaluation import mean_advantages

_SAME = 1e-9
"""Relative difference up to which two sums of the same numbers are equal."""
_CLOSE = 1e-4
"""The same for advantages, which were computed in float32 on another device, padded to another length."""
_OF_ROW = {name: at for at, name in enumerate(TRAJECTORY.columns)}
_OF_SCORE = {name: at for at, name in enumerate(SCORE.columns)}


def check_plan(run: Run) -> Iterator[str]:
    """Whether a run's hash and seed are those of its plan."""
    record = run.record
    if record.engine in (SWEEP, EVALUATION) or not {"spec", "files"} <= record.plan.keys():
        return
    if record.plan["spec"].get("seed") != record.seed:
        yield f"its seed is {record.seed}, its plan's is {record.plan['spec'].get('seed')}"
    # A secret that a file held is struck out of what is stored, and not of what was hashed.
    if REDACTED in json.dumps(record.plan):
        return
    try:
        found = hash_recorded(record.plan, recorded_engine(record).WITHOUT_EFFECT, Path(record.cwd or "/"))
    except (RlfError, LookupError, TypeError, AttributeError) as error:
        yield f"its plan cannot be read: {type(error).__name__}: {error}"
        return
    if found != record.plan_hash:
        yield f"its plan has the hash {found[:12]}, and it says {record.plan_hash[:12]}"


class Recomputation:
    """Looks at the trajectories of a run, step by step. Loads torch where there are advantages to be computed."""

    def __init__(self, connection: Connection, run: Run) -> None:
        self._connection = connection
        self._run = run
        self._answers: dict[str, Any] = {}
        """By a task's content."""
        self._right: set[tuple[str | None, str]] = set()
        """Contents with a gold that is theirs."""
        self._payloads = PayloadReader()

    def __call__(self, place: Place, collected: Sequence[Collected]) -> Iterator[str]:
        """Faults among the trajectories of a step or an evaluation."""
        names = {one.row[_OF_ROW["task_sha256"]] for one in collected} - self._answers.keys() - {None}
        for name, data in read_blobs(self._connection, names).items():
            self._answers[name] = json.loads(data)["answer"]
        for one in collected:
            yield from (f"trajectory {one.row[0]} ({one.row[2]}): {words}" for words in self._check_one(one))
        if place[0] == TRAIN and self._estimator is not None:
            yield from self._check_advantages(self._estimator, collected)

    def _check_one(self, one: Collected) -> Iterator[str]:
        row = one.row
        name = row[_OF_ROW["task_sha256"]]
        gold = row[_OF_ROW["gold"]]
        if (name, gold) not in self._right and name in self._answers and json.loads(gold) != self._answers[name]:
            yield f"its gold is {gold[:60]}, its task's {json.dumps(self._answers[name])[:60]}"
        else:
            self._right.add((name, gold))
        if one.payload is not None and one.scores:
            stored, (found, is_sum) = row[_OF_ROW["reward"]], _sum_scores(one.scores)
            is_same = stored == found
            if stored is not None and found is not None:
                is_same = math.isclose(stored, found, rel_tol=_SAME)
            # A sum over terms none of which has a value and a weight is 0 for some, and no reward for others.
            if not is_same and (stored is not None or is_sum):
                yield f"its reward is {stored}, its scores add up to {found}"

    @cached_property
    def _estimator(self) -> Estimator | None:
        """None where the advantages of the run do not follow from its rows."""
        train = self._train
        if train is None or train.observations_in_loss or train.algorithm.reads_turns:
            return None
        if train.algorithm.needs_critic or train.algorithm.needs_teacher:
            return None
        env = self._run.record.plan["spec"].get("env") or {}
        if train.algorithm.spans_batch and env.get("kind") == "several":  # of worlds apart, which rows do not name
            return None
        return None if train.kl.coef > 0 and train.kl.place is KlPlace.REWARD else train.algorithm

    @cached_property
    def _train(self) -> TrainSpec | None:
        try:
            return TrainSpec.model_validate(self._run.record.plan["spec"]["train"])
        except (LookupError, TypeError, ValueError):  # of a plan that this rlf has other keys for
            return None

    def _check_advantages(self, estimator: Estimator, collected: Sequence[Collected]) -> Iterator[str]:
        at = _OF_ROW["advantage"]
        used = [one for one in collected if one.row[at] is not None]
        if not used or any(one.payload is None or one.row[_OF_ROW["reward"]] is None for one in used):
            return
        if used[0].row[_OF_ROW["trajectory_id"]].startswith("demonstration/"):  # imitated, whatever its reward is
            return
        engine = recorded_engine(self._run.record)
        if engine.COUNTS_LEFT_OUT and len(used) < len(collected):
            return
        asked = self._make_input(engine, estimator, collected, used)
        if asked is None:
            return
        means = mean_advantages(estimator.advantages(asked).advantages_BT, asked.action_mask_BT)
        for one, found in zip(used, means, strict=True):
            if not math.isclose(found, one.row[at], rel_tol=_CLOSE, abs_tol=_CLOSE):
                words = f"its advantage is {one.row[at]:.6g}, its group's rewards give {found:.6g}"
                yield f"trajectory {one.row[0]} ({one.row[2]}): {words}"

    def _make_input(
        self, engine: Engine, estimator: Estimator, collected: Sequence[Collected], used: Sequence[Collected]
    ) -> AdvantageInput | None:
        import torch

        masks = [self._payloads.action_mask(one.payload or b"") for one in used]
        size = max(map(len, masks))
        mask_BT = torch.frombuffer(bytearray(b"".join(mask.ljust(size, b"\0") for mask in masks)), dtype=torch.bool)
        tasks = [one.row[_OF_ROW["task_id"]] for one in used]
        numbers = {task: number for number, task in enumerate(dict.fromkeys(tasks))}
        greedy_B = None
        if estimator.needs_greedy:
            greedy = {
                one.row[_OF_ROW["task_id"]]: one.row[_OF_ROW["reward"]]
                for one in collected
                if one.row[_OF_ROW["trajectory_id"]].endswith("/greedy")
            }
            if any(greedy.get(task) is None for task in tasks):
                return None
            greedy_B = torch.tensor([greedy[task] for task in tasks])
        rewards = [engine.trained_reward(one.row[_OF_ROW["reward"]]) for one in used]
        assert self._train is not None, "an estimator without its settings"
        return AdvantageInput(
            rewards_B=torch.tensor(rewards, dtype=torch.float32),
            group_B=torch.tensor([numbers[task] for task in tasks]),
            action_mask_BT=mask_BT.view(len(used), size),
            reward_clip=self._train.reward_clip,
            terms=_make_terms(used),
            greedy_B=greedy_B,
        )


def _make_terms(used: Sequence[Collected]) -> TermRewards | None:
    """As `rlf.training.batch` makes them."""
    import torch

    names = [[score[_OF_SCORE["term"]] for score in one.scores] for one in used]
    if not names[0] or any(each != names[0] for each in names):
        return None
    pairs = [[(score[_OF_SCORE["value"]], score[_OF_SCORE["weight"]]) for score in one.scores] for one in used]
    return TermRewards(
        torch.tensor([[0.0 if value is None else value * weight for value, weight in row] for row in pairs]),
        torch.tensor([[value is not None for value, _ in row] for row in pairs]),
        torch.tensor([max(abs(row[at][1]) for row in pairs) for at in range(len(names[0]))]),
    )


def _sum_scores(scores: Sequence[Sequence[Any]]) -> tuple[float | None, bool]:
    """The sum of weight times value, None where a value that counts is missing; and whether any value counts."""
    reward, counts = 0.0, False
    for score in scores:
        value, weight = score[_OF_SCORE["value"]], score[_OF_SCORE["weight"]]
        if value is None and weight:
            return None, counts
        if value is not None:
            reward += weight * value
            counts |= bool(weight)
    return (reward if math.isfinite(reward) else None), counts


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
    faults += [
        f"run {run.record.id!r}: not a run's id; the database was changed or crafted. Remove it with --keep-files"
        for run in runs
        if not is_run_id(run.record.id)
    ]
    faults += [fault for found in chains.values() for fault in found.faults]
    if unreadable and not faults:
        raise unreadable[0]  # a defect of rlf
    faults += [f"run {run.record.id}: {words}" for run in runs for words in check_plan(run)]
    remarks = tuple(remark for found in chains.values() for remark in found.remarks)
    heads = {run_id: Head(found.head.number, found.head.sha256) for run_id, found in chains.items() if found.head}
    return Verification(len(runs), tuple(faults), remarks, heads)


def damaged_checkpoints(reader: Reader) -> Iterator[str]:
    """Every kept checkpoint that is gone or changed, in words."""
    for run in reader.list_runs():
        for saved in kept_checkpoints(reader, run.record.id):
            damage = find_checkpoint_damage(run.record, saved)
            if damage is not None:
                yield f"run {run.record.id}: the checkpoint of step {saved.step} is damaged: {damage}: {saved.path}"
