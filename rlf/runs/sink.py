"""Where every event of a run goes: to the recorder, the view and the trackers, and to what may warn of it or end it.

Invariant: an event is recorded before anything else sees it.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf.algo.health import Action, Alarm, OnNoSignal, Watch
from rlf.core.errors import RunError
from rlf.core.meter import COST, ROUNDING, Meter
from rlf.lineage.recorder import Recorder
from rlf.plan import Plan
from rlf.reports.sheets import visible
from rlf.reports.verdict import RunVerdict
from rlf.rollout.signal import SOLVED, CauseKind, Diagnosis, DiagnosisSetting, Signal, evaluation_signal, step_signal
from rlf.runs.provenance import ReadFiles
from rlf.spec.engines import Feature
from rlf.spec.models import RunSpec
from rlf.training.missing import MissingWatch
from rlf.types.events import (
    CheckpointSaved,
    EvaluationFinished,
    EventSink,
    Interrupted,
    Notice,
    RunEvent,
    RunFinished,
    RunStatus,
    StepFinished,
)
from rlf.types.score import Scored, usage_by_name

if TYPE_CHECKING:
    from rlf.runs.tracking import Tracking
    from rlf.training.hidden import HiddenWatch

STEPS_BEFORE_STOP = 3
"""Steps in a row with nothing to learn from after which `on_no_signal: stop` ends a run."""
_SLOW_S = 0.05
"""Time of a call from which it is slow: the ticks that the logical order gives one for free take less on any CPU."""
_SCHEDULE_SHARE = 0.1
"""Share of a step's sampling time lost to the schedule from which it is reported."""


def diagnosis_setting(spec: RunSpec) -> DiagnosisSetting:
    """What a diagnosis of training trajectories reads of a spec."""
    tools = tuple(tool.name for tool in spec.tools if not tool.hidden)
    train, answer = spec.train, spec.data.train.answer
    bounds = None if train.dynamic_filtering is None else train.dynamic_filtering.bounds
    return DiagnosisSetting(tools, train.algorithm.needs_group, "data.train.answer", answer, bounds)


class SignalWatch:
    """Checks the first evaluation and every step of a run, and reports why one holds nothing to learn from."""

    def __init__(
        self, spec: RunSpec, run_id: str, runs_folder: Path, redact: Callable[[str], str], *, had_signal: bool = False
    ) -> None:
        """Looks at nothing yet.

        Args:
            redact: Strikes secrets out of what is quoted.
            had_signal: Whether a step before, of a run that is resumed, had a signal.
        """
        self._by_group = spec.train.algorithm.needs_group
        self._stops = spec.health.on_no_signal is OnNoSignal.STOP
        self._training = diagnosis_setting(spec)
        answer = None if spec.data.eval is None else spec.data.eval.answer
        self._held_out = DiagnosisSetting(self._training.tools, False, "data.eval.answer", answer)
        self._missing = MissingWatch(spec.rewards, redact)
        self._show, self._redact = f"rlf runs show {run_id}", redact
        self._options = "" if runs_folder == Path("runs") else f" --runs {shlex.quote(str(runs_folder))}"
        self._had_signal = had_signal
        self._num_without = 0
        """Trajectories since the last signal, which a conclusion rests on."""
        self._since: int | None = None
        self._kinds: tuple[CauseKind, ...] | None = None
        """Causes that were named last."""
        self._evaluated = False
        self._reported_schedule = False

    def after_evaluation(self, event: EvaluationFinished) -> Notice | None:
        """The diagnosis of the first mode of the evaluation before the first step."""
        if event.step > 0 or self._evaluated or not event.trajectories:
            return None
        self._evaluated = True
        signal = evaluation_signal(event.trajectories)
        place = f"{event.mode} evaluation after step 0"
        return self._make_notice(signal, event.trajectories, self._held_out, place, event.mode, 0)

    def command(self, phase: str, step: int, k: int) -> str:
        """What shows one of the run's trajectories."""
        return f"{self._show} --phase {phase} --step {step} --trajectory {k}{self._options}"

    def after_step(self, event: StepFinished) -> tuple[list[Notice], Alarm | None]:
        """The notices of a step, and the alarm that ends the run if the spec asks for it."""
        notices = [*self._schedule_notices(event), *self._missing.after_step(event)]
        signal = step_signal(event.metrics, by_group=self._by_group)
        is_solved = signal is Signal.NO_DIFFERENCE and event.metrics.get("success", 0.0) >= SOLVED
        if signal is Signal.SOME or (is_solved and self._had_signal) or not event.trajectories:
            self._had_signal = self._had_signal or signal is Signal.SOME
            self._since = self._kinds = None
            self._num_without = 0
            return notices, None
        diagnosis = self._make_notice(
            signal, event.trajectories, self._training, f"step {event.step}", "train", event.step
        )
        if diagnosis is not None:
            notices.append(diagnosis)
        return notices, self._make_alarm(signal, event)

    def _make_alarm(self, signal: Signal, event: StepFinished) -> Alarm | None:
        if signal is Signal.NO_SUCCESS:
            self._since = None
            return None
        self._since = event.step if self._since is None else self._since
        if not self._stops or event.step - self._since + 1 < STEPS_BEFORE_STOP:
            return None
        text = f"nothing to learn from since step {self._since} (on_no_signal: stop)"
        shown = tuple(range(min(5, len(event.trajectories))))
        return Alarm("on_no_signal", text, Action.STOP, event.step, self._since, 0.0, shown)

    def _make_notice(
        self, signal: Signal, scored: Sequence[Scored], setting: DiagnosisSetting, place: str, phase: str, step: int
    ) -> Notice | None:
        if signal is Signal.SOME:
            return None
        from rlf.rollout.diagnosis import diagnose  # of runs that have nothing to learn from alone

        found = diagnose(scored, signal, setting, num_before=self._num_without, had_signal=self._had_signal)
        self._num_without += len(scored)
        kinds = tuple(cause.kind for cause in found.causes)
        is_known, self._kinds = kinds == self._kinds, kinds
        command = self.command(phase, step, found.k)
        likely = "Likely, as before" if is_known else "Likely"
        causes = " ".join(f"{cause.seen}. {cause.advice}" for cause in found.causes)
        words = f"{', '.join(kind.replace('_', ' ') for kind in kinds)}." if is_known else causes
        parts = [
            f"{place}: {found.figures}.",
            f"{likely}: {words}" if kinds else "",
            f"Example: {found.example}",
            f"Look: {command}",
        ]
        data = {"signal": signal, "phase": phase, "step": step, "trajectory": found.k, "command": command}
        return Notice("warning", self._redact("\n  ".join(filter(None, parts))), data | self._notice_data(found))

    def _notice_data(self, found: Diagnosis) -> dict[str, Any]:
        causes = [
            {"kind": cause.kind, "seen": self._redact(cause.seen), "advice": cause.advice, "trajectory": cause.shows}
            for cause in found.causes
        ]
        return {"figures": found.figures, "causes": causes, "example": self._redact(found.example)}

    def _schedule_notices(self, event: StepFinished) -> list[Notice]:
        """Once: that sampling stood still for tools that the logical order of batches waits for."""
        lost_s, generate_s = event.metrics.get("time/schedule_s", 0.0), event.metrics.get("time/generate_s", 0.0)
        if self._reported_schedule or not generate_s or lost_s < _SCHEDULE_SHARE * generate_s:
            return []
        tool, call_s = _slowest_tool(event.trajectories)
        if tool and call_s < _SLOW_S:  # it fits into the ticks that the schedule leaves it: the machine was busy
            return []
        self._reported_schedule = True
        share, slowest = lost_s / generate_s, tool and f"{tool}: {call_s:.2g} s a call"
        text = (
            f"step {event.step}: {100 * share:.0f} % of the time of the rollouts ({lost_s:.2f} of {generate_s:.2f} s) "
        )
        text += "was lost to the logical order of batches, which stops sampling until a slow tool returns"
        text += (
            f"{slowest and f' ({slowest})'}. Write `rollout.schedule: invariant`, which does not wait on a CPU, or "
            "`clock`, which does not repeat."
        )
        return [Notice("warning", text, {"step": event.step, "lost_s": lost_s, "share": share})]


def _slowest_tool(scored: Sequence[Scored]) -> tuple[str, float]:
    """Name and mean time of a call of the tool that took most time; an empty name where none was run."""
    times: dict[str, list[float]] = {}
    for item in scored:
        for record in item.trajectory.calls:
            times.setdefault(record.call.name, []).append(record.result.run_s)
    if not times:
        return "", 0.0
    name, found = max(times.items(), key=lambda item: sum(item[1]))
    return name, sum(found) / len(found)


logger = logging.getLogger(__name__)
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


class RunSink:
    """Gives each event to the recorder first, then to the view, and steps to what watches over the run."""

    def __init__(self, spec: RunSpec, signals: SignalWatch, budget: Budget) -> None:
        self.budget = budget
        self.recorder: Recorder | None = None
        self.shown: EventSink | None = None
        """The view, once it is open."""
        has_tools = any(not tool.hidden for tool in spec.tools)
        self._watch = Watch(spec.health, has_tools=has_tools, by_group=spec.train.algorithm.needs_group)
        self.hidden: HiddenWatch | None = None
        """None: no term is hidden."""
        if any(term.hidden for term in spec.rewards):
            from rlf.training.hidden import HiddenWatch

            self.hidden = HiddenWatch(spec.rewards, spec.success, spec.health.hidden)
        self._signals = signals
        self.tracking: Tracking | None = None
        """None: nothing is reported to trackers."""
        self.opening: list[RunEvent] = []
        """What is recorded and shown before the engine runs."""
        self.files: ReadFiles | None = None
        """Gathers what the run's own code opens; set when the run has a record."""

    def __call__(self, event: RunEvent) -> None:
        assert self.recorder, "an event before the run is registered"
        self.budget.note(event)
        log_done(event)
        if self.files is not None and isinstance(event, StepFinished | EvaluationFinished | Interrupted | RunFinished):
            for notice in self.files.record_into(self.recorder):
                self(notice)
        alarms: list[Alarm] = []
        if self.hidden is not None:  # it adds metrics to a step
            event, alarms = self.hidden.measure(event, partial(self._signals.command, "train"))
        self.recorder(event)
        if self.shown is not None:  # a stop may come while the view is still being opened
            self.shown(event)
        for warning in () if self.tracking is None else self.tracking(event):
            self(warning)
        match event:
            case StepFinished():
                notices, alarm = self._signals.after_step(event)
                for notice in notices:
                    self(notice)
                self._act_on_alarms([*self._watch.after(event), *alarms, *([] if alarm is None else [alarm])])
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

    def __init__(self, alarms: Sequence[Alarm], verdict: RunVerdict | None = None) -> None:
        """The verdict, of a run that has one by now, is the last line."""
        self.alarms = alarms
        words = "; ".join(alarm.text for alarm in alarms)
        words = f"{words}\n" if "\n" in words else f"{words}. "
        advice = "Look at the trajectories that the alarm names, then change the spec, or continue with `rlf resume`."
        last = [] if verdict is None else [visible(verdict.line)]
        super().__init__("\n".join([f"health: {words}{advice}", *last]))


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
    verdict: RunVerdict
    """What the run came to."""
    spent: str | None = None
    """Why it stopped, where its budget is spent."""


View = Callable[[RunInfo], EventSink]
"""Called once, when the run is checked and registered; what it returns sees every event."""
