"""Trajectories of a run with a high reward that are not right."""

from __future__ import annotations

from dataclasses import dataclass

from rlf.apps.web.queries import count_paid, read_paid, read_pay
from rlf.lineage.reader import Reader
from rlf.lineage.records import TRAIN, RunLine, TrajectoryLine
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
    totals = read_pay(reader, run.id, TRAIN)
    num_right = sum(total.num_right for total in totals)
    threshold = sum(total.right_reward for total in totals) / num_right if num_right else None
    num_wrong = sum(total.num_wrong for total in totals)
    paid_by_step = {} if threshold is None else count_paid(reader, run.id, TRAIN, threshold)
    num_paid = sum(paid_by_step.values())
    steps = tuple(
        PaidStep(total.step, total.reward, total.success, paid_by_step.get(total.step, 0)) for total in totals
    )
    rows = () if threshold is None else tuple(read_paid(reader, run.id, TRAIN, threshold, limit))
    share = wilson_interval(num_paid, num_wrong) if num_wrong else None
    return PaidNotRight(run, threshold, num_paid, num_wrong, share, steps, rows)
