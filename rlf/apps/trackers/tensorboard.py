"""TensorBoard: scalars in an event file of the run's folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar, Literal

from rlf.trackers import TrackedRun, Tracker, TrackerWriter, metrics_of
from rlf.types.events import EvaluationFinished, Notice, RunEvent, StepFinished

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

FOLDER = "tensorboard"


class TensorboardTracker(Tracker):
    """Writes event files into the run's folder; `tensorboard --logdir runs` shows all runs side by side."""

    module: ClassVar[str | None] = "tensorboard"
    install: ClassVar[str] = "tensorboard"
    kind: Literal["tensorboard"] = "tensorboard"

    def open(self, run: TrackedRun) -> TrackerWriter:
        """Opens an event file; after a resume TensorBoard forgets the steps that are done again."""
        from torch.utils.tensorboard.writer import SummaryWriter

        purged = None if run.first_step == 1 else run.first_step
        summary = SummaryWriter(str(run.folder / FOLDER), purge_step=purged)
        writer = _Writer(summary, run.first_step - 1)
        writer.text("spec", json.dumps(run.spec, indent=1, ensure_ascii=False))
        return writer


class _Writer:
    def __init__(self, summary: SummaryWriter, step: int) -> None:
        self._summary = summary
        self._step = step

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, StepFinished | EvaluationFinished):
            self._step = event.step
            for name, value in metrics_of(event).items():
                self._summary.add_scalar(name, value, event.step)
            self._summary.flush()
        elif isinstance(event, Notice):
            self.text(f"notices/{event.level}", event.text)

    def text(self, name: str, words: str) -> None:
        """Shows words as they are: the four spaces keep Markdown from reading them."""
        indented = "\n".join(f"    {line}" for line in words.splitlines())
        self._summary.add_text(name, indented, self._step)

    def close(self) -> None:
        self._summary.close()
