"""Events of a run on their way to trackers.

Invariant: nothing that a tracker does ends a run or holds it up: each has a thread of its own and a queue, and one that
raises or falls too far behind is left out, with one warning.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from queue import Full, Queue
from threading import Thread
from types import TracebackType
from typing import Self

from rlf.core.redact import Redactor
from rlf.core.text import describe, text_of
from rlf.trackers import TrackedRun, Tracker
from rlf.types.events import EvaluationFinished, Interrupted, Notice, RunEvent, RunFinished, RunStatus, StepFinished

logger = logging.getLogger(__name__)

_MAX_WAITING = 1000
"""Events that a tracker may be behind."""
_MAX_WAITING_WHOLE = 8
"""The same for events with their trajectories, which are in memory as long as they wait."""
_LAST_S = 60.0
"""Time that all trackers together have at the end to send what waits."""


class Tracking:
    """Passes a run's events to trackers. Use it as a context manager, within which the run ends."""

    def __init__(
        self, trackers: Sequence[Tracker], run: TrackedRun, redactor: Redactor, *, last_s: float = _LAST_S
    ) -> None:
        run = replace(run, spec=json.loads(redactor.json(run.spec)), redact=redactor.text)
        self._redactor = redactor
        self._lines = [_Line(tracker, run) for tracker in trackers]
        self._step = run.first_step - 1
        self._ended, self._last_s = False, last_s

    def __call__(self, event: RunEvent) -> list[Notice]:
        """Hands an event on; a warning for each tracker that has failed since the last one."""
        if isinstance(event, StepFinished):
            self._step = event.step
        self._ended = self._ended or isinstance(event, RunFinished)
        light = self._without_bulk_and_secrets(event) if self._lines else event
        has_whole = isinstance(event, StepFinished | EvaluationFinished)
        for line in self._lines:
            line.put(event if has_whole and line.takes_trajectories else light)
        return self._take_failures()

    def _without_bulk_and_secrets(self, event: RunEvent) -> RunEvent:
        match event:
            case StepFinished():
                return replace(event, trajectories=(), advantages=())
            case EvaluationFinished() | Interrupted():
                return replace(event, trajectories=())
            case Notice():
                data = json.loads(self._redactor.json(event.data))
                return replace(event, text=self._redactor.text(event.text), data=data)
            case RunFinished():
                return replace(event, error=self._redactor.optional(event.error))
            case _:
                return event

    def __enter__(self) -> Self:
        for line in self._lines:
            line.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._ended and error is not None:
            self(RunFinished(RunStatus.FAILED, self._step, text_of(error)))
        until = time.monotonic() + self._last_s
        for line in self._lines:
            line.end()
        for line in self._lines:
            line.join(max(0.0, until - time.monotonic()))
        for notice in self._take_failures():
            logger.warning("%s", notice.text)

    def _take_failures(self) -> list[Notice]:
        failed = [line for line in self._lines if line.failure is not None]
        self._lines = [line for line in self._lines if line.failure is None]
        return [Notice("warning", f"report_to: {line.failure}", {"tracker": line.name}) for line in failed]


class _Line:
    """One tracker, its queue and its thread, which is left behind where it hangs."""

    def __init__(self, tracker: Tracker, run: TrackedRun) -> None:
        self.name, self.takes_trajectories = tracker.kind, tracker.takes_trajectories
        self._most = _MAX_WAITING_WHOLE if tracker.takes_trajectories else _MAX_WAITING
        self.failure: str | None = None
        """Why it takes no more events."""
        self._queue: Queue[RunEvent | None] = Queue(self._most)
        self._thread = Thread(
            target=self._send_events, args=(tracker, run), name=f"tracker-{tracker.kind}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def put(self, event: RunEvent | None) -> None:
        if self.failure is None:
            try:
                self._queue.put_nowait(event)
            except Full:
                self._set_failure(f"it is {self._most} events behind")

    def end(self) -> None:
        self.put(None)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._set_failure("it did not finish in time, and it may lack the last events")

    def _send_events(self, tracker: Tracker, run: TrackedRun) -> None:
        try:
            run.folder.mkdir(parents=True, exist_ok=True)
            writer = tracker.open(run)
            while (event := self._queue.get()) is not None:
                writer(event)
            writer.close()
        except BaseException as error:  # a tracker may raise anything, SystemExit too
            logger.debug("tracker %s", tracker.kind, exc_info=True)
            self._set_failure(describe(error).splitlines()[0].rstrip(": "))

    def _set_failure(self, why: str) -> None:
        self.failure = self.failure or f"{self.name} gets no more events of this run: {why}. The run continues."
