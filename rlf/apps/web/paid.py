"""Trajectories of a run with a high reward that are not right."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import case, func, select, text

from rlf.lineage import tables
from rlf.lineage.reader import Reader
from rlf.lineage.records import TRAIN, RunLine, TrajectoryLine
from rlf.lineage.values import read_asked
from rlf.reports.statistics import Interval, wilson_interval


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
