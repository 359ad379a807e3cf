"""Warnings that a run reports by itself: a step that holds nothing to learn from, and time lost to the schedule."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlf.algo.health import Action, Alarm, OnNoSignal
from rlf.plan.warnings import SLOW_S
from rlf.rollout.diagnosis import (
    SOLVED,
    CauseKind,
    Diagnosis,
    Setting,
    Signal,
    diagnose,
    evaluation_signal,
    step_signal,
)
from rlf.spec.models import RunSpec
from rlf.types.events import EvaluationFinished, Notice, StepFinished
from rlf.types.score import Scored

STEPS_BEFORE_STOP = 3
"""Steps in a row with nothing to learn from after which `on_no_signal: stop` ends a run."""
_SCHEDULE_SHARE = 0.1
"""Share of a step's sampling time lost to the schedule from which it is reported."""


class SignalWatch:
    """Checks the first evaluation and every step of a run, and reports why one holds nothing to learn from."""

    def __init__(
        self,
        spec: RunSpec,
        run_id: str,
        runs_folder: Path,
        redact: Callable[[str], str],
        *,
        had_signal: bool = False,
    ) -> None:
        """Looks at nothing yet.

        Args:
            redact: Strikes secrets out of what is quoted.
            had_signal: Whether a step before, of a run that is resumed, had a signal.
        """
        self._by_group = spec.train.algorithm.needs_group
        self._stops = spec.health.on_no_signal is OnNoSignal.STOP
        tools = tuple(tool.name for tool in spec.tools if not tool.hidden)
        self._training = Setting(tools, self._by_group, "data.train.answer", spec.data.train.answer)
        held_out = spec.data.eval
        self._held_out = Setting(tools, False, "data.eval.answer", None if held_out is None else held_out.answer)
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

    def after_step(self, event: StepFinished) -> tuple[list[Notice], Alarm | None]:
        """The notices of a step, and the alarm that ends the run if the spec asks for it."""
        notices = self._schedule_notices(event)
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
        self, signal: Signal, scored: Sequence[Scored], setting: Setting, place: str, phase: str, step: int
    ) -> Notice | None:
        if signal is Signal.SOME:
            return None
        found = diagnose(scored, signal, setting, num_before=self._num_without, had_signal=self._had_signal)
        self._num_without += len(scored)
        kinds = tuple(cause.kind for cause in found.causes)
        is_known, self._kinds = kinds == self._kinds, kinds
        command = f"{self._show} --phase {phase} --step {step} --trajectory {found.k}{self._options}"
        likely = "Likely, as before" if is_known else "Likely"
        words = f"{', '.join(kind.words for kind in kinds)}." if is_known else found.causes_words
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
        """Once: that sampling stood still for tools that `schedule: logical` waits for."""
        lost_s, generate_s = event.metrics.get("time/schedule_s", 0.0), event.metrics.get("time/generate_s", 0.0)
        if self._reported_schedule or not generate_s or lost_s < _SCHEDULE_SHARE * generate_s:
            return []
        tool, call_s = _slowest_tool(event.trajectories)
        if tool and call_s < SLOW_S:  # it fits into the ticks that the schedule leaves it: the machine was busy
            return []
        self._reported_schedule = True
        share, slowest = lost_s / generate_s, tool and f"{tool}: {call_s:.2g} s a call"
        text = (
            f"step {event.step}: {100 * share:.0f} % of the time of the rollouts ({lost_s:.2f} of {generate_s:.2f} s) "
        )
        text += "was lost to `rollout.schedule: logical`, which stops sampling until a slow tool returns"
        text += (
            f"{slowest and f' ({slowest})'}. Write `rollout.schedule: invariant`, which does not wait and repeats bit "
            "for bit on a CPU, or `clock`, which does not repeat."
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
