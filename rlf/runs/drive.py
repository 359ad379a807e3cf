"""A registered run, driven to its end: recorded, shown and tracked, while this process owns it and its budget lasts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rlf.algo.health import Action, Alarm, Watch
from rlf.core.errors import RunError
from rlf.core.meter import COST, ROUNDING, Meter
from rlf.lineage.recorder import Recorder
from rlf.plan import Plan
from rlf.reports.sheets import visible
from rlf.reports.summary import Verdict
from rlf.runs.signals import SignalWatch
from rlf.runs.tracking import Tracking
from rlf.spec.models import Feature
from rlf.types.events import (
    CheckpointSaved,
    EvaluationFinished,
    EventSink,
    Interrupted,
    Notice,
    RunEvent,
    RunStatus,
    StepFinished,
)
from rlf.types.score import usage_by_name

if TYPE_CHECKING:
    from rlf.spec.models import RunSpec

# The budget of a run: counted as it is spent, and the run stopped when it is gone.

_UNITS = (COST, "requests")


class BudgetSpent(RunError):
    """`limits.max_usd` is spent: the run stops as by Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Budget:
    """One run's."""

    max_usd: float | None
    """None: no limit."""
    spent_usd: float = 0.0
    """Before this process."""
    counts_events: bool = False
    """Whether tools and judges are called by other processes, so that only what they report can be counted."""
    is_played: bool = False
    """Whether the results of tools come from a recording, so that they cost nothing."""
    meter: Meter = field(default_factory=Meter)
    recorded: Meter = field(default_factory=Meter)
    """What trajectories of events have cost."""

    def note(self, event: RunEvent) -> None:
        """Counts what an event's trajectories cost."""
        if isinstance(event, StepFinished | EvaluationFinished | Interrupted):
            usages = usage_by_name(event.trajectories, is_played=self.is_played).values()
            spent = {unit: number for unit in _UNITS if (number := sum(usage[unit] for usage in usages))}
            self.recorded.add(spent)
            if self.counts_events:
                self.meter.add(spent)

    def unrecorded(self) -> dict[str, float]:
        """Spending so far that no event's trajectories have."""
        found = {unit: self.meter.usage.get(unit, 0.0) - self.recorded.usage.get(unit, 0.0) for unit in _UNITS}
        return {unit: number for unit, number in found.items() if number > ROUNDING}

    @contextmanager
    def watched(self, stop: Callable[[], None]) -> Iterator[None]:
        """Calls `stop` when the budget is spent. Raises BudgetSpent where it is from the beginning."""
        left_usd = None if self.max_usd is None else self.max_usd - self.spent_usd
        if left_usd is not None and left_usd <= ROUNDING:
            raise self.spent()
        with self.meter.bounded(left_usd, stop):
            yield

    def spent(self) -> BudgetSpent:
        """Why the run stops."""
        spent_usd = self.spent_usd + self.meter.cost_usd
        words = f"limits.max_usd: ${spent_usd:.4g} of ${self.max_usd:g} are spent"
        return BudgetSpent(f"{words}. Raise it with `rlf resume RUN --max-usd N`.")


def open_budget(plan: Plan, spent_usd: float = 0.0, max_usd: float | None = None, *, is_played: bool = False) -> Budget:
    """The budget of a run by its plan, or by the limit of the command line instead."""
    limit = plan.spec.limits.max_usd if max_usd is None else max_usd
    return Budget(limit, spent_usd, counts_events=Feature.RECORDED_CALLS in plan.spec.engine.LACKS, is_played=is_played)


# Passes every event of a run on: to recorder, view and trackers, and to the guards that may end it.

logger = logging.getLogger(__name__)


class RunSink:
    """Gives each event to the recorder first, then to the view, and steps to what watches over the run."""

    def __init__(self, spec: RunSpec, signals: SignalWatch, budget: Budget) -> None:
        self.budget = budget
        self.recorder: Recorder | None = None
        self.shown: EventSink | None = None
        has_tools = any(not tool.hidden for tool in spec.tools)
        self._watch = Watch(spec.health, has_tools=has_tools, by_group=spec.train.algorithm.needs_group)
        self._signals = signals
        self.tracking: Tracking | None = None
        self.opening: list[RunEvent] = []
        """What is recorded and shown before the engine runs."""

    def __call__(self, event: RunEvent) -> None:
        assert self.recorder and self.shown and self.tracking, "an event before the run is registered"
        self.budget.note(event)
        log_done(event)
        self.recorder(event)
        self.shown(event)
        for warning in self.tracking(event):
            self(warning)
        match event:
            case StepFinished():
                notices, alarm = self._signals.after_step(event)
                for notice in notices:
                    self(notice)
                self._act_on_alarms([*self._watch.after(event), *([] if alarm is None else [alarm])])
            case EvaluationFinished():
                diagnosis = self._signals.after_evaluation(event)
                if diagnosis is not None:
                    self(diagnosis)

    def _act_on_alarms(self, alarms: Sequence[Alarm]) -> None:
        """Reports alarms, then does what the gravest of them asks for."""
        for alarm in alarms:
            data = {"guard": alarm.guard, "step": alarm.step, "since": alarm.since, "value": alarm.value}
            self(Notice("alarm", f"health: {alarm.text}", data | {"trajectories": list(alarm.trajectories)}))
        grave = [alarm for alarm in alarms if alarm.action is not Action.WARN]
        if grave:
            self.flush()
            raise HealthStop(grave)

    def flush(self) -> None:
        assert self.recorder is not None, "a flush before the run is registered"
        self.recorder.flush()


def log_done(event: RunEvent) -> None:
    """Logs one line for a step, an evaluation or a checkpoint that is done."""
    match event:
        case StepFinished():
            seconds = event.metrics.get("time/step_s", 0.0)
            logger.info("step %d done: %d trajectories, %.1f s", event.step, len(event.trajectories), seconds)
        case EvaluationFinished():
            num_played, seconds = len(event.trajectories), event.metrics.get("time/total_s", 0.0)
            name = f"evaluation after step {event.step}"
            logger.info("%s done: %s, %d trajectories, %.1f s", name, event.mode, num_played, seconds)
        case CheckpointSaved():
            logger.info("checkpoint of step %d done: %s, %.1f s", event.step, event.path, event.save_s)


class HealthStop(RunError):
    """A guard of `health:` ended the run."""

    def __init__(self, alarms: Sequence[Alarm], verdict: Verdict | None = None) -> None:
        """The verdict, of a run that has one by now, is the last line."""
        self.alarms = alarms
        words = "; ".join(alarm.text for alarm in alarms)
        advice = "Look at the trajectories that the alarm names, then change the spec, or continue with `rlf resume`."
        last = [] if verdict is None else [visible(verdict.line)]
        super().__init__("\n".join([f"health: {words}. {advice}", *last]))


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Facts of a run before its first event."""

    run_id: str
    name: str
    folder: Path
    total_steps: int
    first_step: int
    """1, or the step a resume starts with."""
    seed: int
    plan_hash: str
    device: str
    model: str
    resumed: bool
    specs: tuple[str, ...]
    costs_usd: Mapping[str, float] = field(default_factory=dict)
    """What was spent before a resume, by tool and judged term."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run, or this part of it, ended."""

    run_id: str
    status: RunStatus
    step: int
    verdict: Verdict
    """What the run came to."""
    spent: str | None = None
    """Why it stopped, where its budget is spent."""


View = Callable[[RunInfo], EventSink]
"""Called once, when the run is checked and registered; what it returns sees every event."""
