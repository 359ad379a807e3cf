"""Labels that people give trajectories, in a file of the runs folder that judges' calibration and `rlf demos` read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from sqlalchemy import case, func, select, text

from rlf.core.errors import RlfError, RunError
from rlf.core.files import lock_file, write_whole
from rlf.lineage import tables
from rlf.lineage.calls import read_asked
from rlf.lineage.reader import Reader
from rlf.lineage.records import TRAIN, RunLine, StoredTrajectory, TrajectoryLine
from rlf.reports.statistics import Interval, wilson_interval
from rlf.rewards.labels import LABELS, LabelledLine, label_id, read_labelled_lines
from rlf.types import Trajectory


@dataclass(frozen=True, slots=True)
class TrajectoryLabel:
    """What a person says of a trajectory."""

    run_id: str
    phase: str
    step: int
    k: int
    label: bool | float | None
    """Good or bad, or a number; None: it has no label any more."""
    kind: str | None
    comment: str | None
    question: str
    answer: str | None

    @property
    def place(self) -> str:
        """Its place in addresses of the page."""
        return f"{self.phase}/{self.step}/{self.k}"


def labels_by_id(runs_folder: Path) -> dict[str, TrajectoryLabel]:
    """Labels of trajectories by id, in the file's order; lines of other origins are passed over. Raises RlfError."""
    path = runs_folder / LABELS
    lines = read_labelled_lines(path) if path.exists() else []
    found = (_read_line(line) for line in lines)
    return {label_id(one.run_id, one.phase, one.step, one.k): one for one in found if one is not None}


def _read_line(line: LabelledLine) -> TrajectoryLabel | None:
    run_id, *place = (line.id or "").rsplit("/", 3)
    if len(place) != 3 or isinstance(line.label, str):
        return None
    with suppress(ValueError):
        step, k = map(int, place[1:])
        return TrajectoryLabel(
            run_id, place[0], step, k, line.label, line.kind, line.comment, line.question, line.answer
        )
    return None


def write_label(
    runs_folder: Path, run_id: str, stored: StoredTrajectory, label: bool | float | None, kind: str, comment: str
) -> TrajectoryLabel:
    """Gives a trajectory a label in place of the one that it has; None takes that away.

    Raises:
        RlfError: the label is none, or the file has a line that is wrong.
        RunError: another process writes the file.
    """
    head, trajectory = stored.summary, stored.scored.trajectory
    name, words, remark = label_id(run_id, head.phase, head.step, head.k), kind.strip() or None, comment.strip() or None
    line = {"id": name, "label": label, "kind": words, "comment": remark} | _facts(trajectory)
    line = {key: value for key, value in line.items() if value not in (None, {}, [], "")}
    if label is not None:
        try:
            LabelledLine.model_validate(line)
        except ValidationError as error:
            raise RlfError(f"label: got {label!r}; expected true, false or a number.") from error
    _rewrite(runs_folder / LABELS, name, None if label is None else line)
    place = (run_id, head.phase, head.step, head.k)
    return TrajectoryLabel(*place, label, words, remark, trajectory.task.question, trajectory.answer)


def _facts(trajectory: Trajectory) -> dict[str, Any]:
    """A trajectory as a judge reads it."""
    turns = [
        {
            "text": turn.text,
            "calls": [
                {
                    "name": record.call.name,
                    "arguments": dict(record.call.arguments),
                    "result": record.result.text,
                    "outcome": str(record.result.outcome),
                }
                for record in turn.calls
            ],
            "failures": [str(failure.kind) for failure in turn.failures],
            "num_tokens": max(1, turn.end - turn.start),
        }
        for turn in trajectory.turns
    ]
    task, world = trajectory.task, trajectory.world
    return {
        "question": task.question,
        "gold": task.answer,
        "columns": dict(task.columns),
        "answer": trajectory.answer,
        "turns": turns,
        "scores": {} if world is None else dict(world.scores),
        "stop": str(trajectory.stop),
    }


def _rewrite(path: Path, name: str, line: dict[str, Any] | None) -> None:
    """Replaces a line or adds it, whole or not at all; the others stay as they are written."""

    def is_other(text: str) -> bool:
        return bool(text.strip()) and json.loads(text).get("id") != name

    _locked(path, lambda: _write(path, is_other, line))


def _write(path: Path, is_kept: Callable[[str], bool], line: dict[str, Any] | None) -> None:
    if path.exists():
        read_labelled_lines(path)  # a line that is wrong is named, and nothing is written
    texts = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    kept = [text for text in texts if is_kept(text)]
    write_whole(
        path, "".join(f"{text}\n" for text in [*kept, *([json.dumps(line, ensure_ascii=False)] if line else [])])
    )


def _locked(path: Path, work: Callable[[], None]) -> None:
    """Does some work while no other process of this file's readers does any."""
    try:
        lock = lock_file(path.with_suffix(".lock"))
    except BlockingIOError as error:
        raise RunError(f"{path}: another process is writing labels. Try again.") from error
    try:
        work()
    finally:
        if lock is not None:
            os.close(lock)


@dataclass(frozen=True, slots=True)
class PaidStep:
    """How far reward and success differ at a step."""

    step: int
    reward: float
    success: float
    num_paid: int
    """Trajectories that are paid as the right ones are, and are not right."""


@dataclass(frozen=True, slots=True)
class PaidNotRight:
    """Whether a run's policy earns reward for wrong answers."""

    run: RunLine
    threshold: float | None
    """The mean reward of right trajectories, above which a wrong one is paid like them; None where none is right."""
    num_paid: int
    num_wrong: int
    share: Interval | None
    """95 % Wilson interval of the share of the wrong ones that are paid so."""
    steps: tuple[PaidStep, ...]
    rows: tuple[TrajectoryLine, ...]
    """Those that are paid most, the latest first where it is the same."""


def find_paid(reader: Reader, name: str, limit: int) -> PaidNotRight:
    """Wrong training trajectories of a run with at least the mean reward of right ones."""
    run = reader.run_lines(run_id=reader.get_run(name).record.id)[0]
    table = tables.trajectories.c
    of_run, right = (table.run_id == run.id, table.phase == TRAIN), table.success >= 1.0
    by_step = (
        select(
            table.step,
            func.avg(table.reward).label("reward"),
            func.avg(table.success).label("success"),
            func.sum(case((right, 1), else_=0)).label("num_right"),
            func.sum(case((right, 0), else_=1)).label("num_wrong"),
            func.sum(case((right, table.reward), else_=0.0)).label("right_reward"),
        )
        .where(*of_run, table.reward.is_not(None), table.success.is_not(None))
        .group_by(table.step)
        .order_by(table.step)
    )
    paid_by_step, rows = dict[int, int](), list[TrajectoryLine]()
    with reader.store.read() as connection:
        totals = connection.execute(by_step).all()
        num_right, num_wrong = (sum(getattr(one, name) for one in totals) for name in ("num_right", "num_wrong"))
        threshold = sum(one.right_reward for one in totals) / num_right if num_right else None
        if threshold is not None:
            # One whose success is not known is neither right nor wrong.
            is_paid = (*of_run, table.reward >= threshold, table.success.is_not(None), text(tables.FAILED))
            counted = select(table.step, func.count()).where(*is_paid).group_by(table.step)
            paid_by_step = {row[0]: row[1] for row in connection.execute(counted)}
            best_first = select(tables.trajectories).where(*is_paid).order_by(table.reward.desc(), table.step.desc())
            rows = read_asked(connection, connection.execute(best_first.limit(limit)).all())
    steps = tuple(PaidStep(one.step, one.reward, one.success, paid_by_step.get(one.step, 0)) for one in totals)
    num_paid = sum(paid_by_step.values())
    share = wilson_interval(num_paid, num_wrong) if num_wrong else None
    return PaidNotRight(run, threshold, num_paid, num_wrong, share, steps, tuple(rows))
