"""Passes every event of a run on: to recorder, view and trackers, and to the guards that may end it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlf.algo.health import Action, Alarm, Watch
from rlf.api.running.budgets import Budget
from rlf.api.running.signals import SignalWatch
from rlf.core.errors import RunError
from rlf.reports.sheets import visible
from rlf.reports.summary import Verdict
from rlf.types.events import CheckpointSaved, EvaluationFinished, EventSink, Notice, RunEvent, StepFinished

if TYPE_CHECKING:
    from rlf.api.running.tracking import Tracking
    from rlf.lineage.recorder import Recorder
    from rlf.spec.models import RunSpec

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
