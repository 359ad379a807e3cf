"""Weights & Biases, with its server or offline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from rlf.trackers import TrackedRun, Tracker, TrackerWriter, metrics_of
from rlf.types.events import EvaluationFinished, RunEvent, RunFinished, RunStatus, StepFinished


class WandbTracker(Tracker):
    """Reports to Weights & Biases under the run's id, so that a resume continues there; the key is read from
    WANDB_API_KEY or `wandb login`.
    """

    module: ClassVar[str | None] = "wandb"
    install: ClassVar[str] = "wandb"
    kind: Literal["wandb"] = "wandb"
    project: str = "rlf"
    """Project of the run."""
    entity: str | None = None
    """Team or user; null: the default one of the key."""
    group: str | None = None
    """Group of runs that are shown together."""
    mode: Literal["online", "offline"] = "online"
    """`offline` writes into the run's folder, for `wandb sync` later, and needs no key and no network."""

    def open(self, run: TrackedRun) -> TrackerWriter:
        """Begins the run there, or continues it."""
        import wandb

        (run.folder / "wandb").mkdir(exist_ok=True)
        opened = wandb.init(
            id=run.run_id,
            name=run.name,
            project=self.project,
            entity=self.entity,
            group=self.group,
            mode=self.mode,
            dir=str(run.folder),
            resume="allow",
            config=dict(run.spec),
            settings=wandb.Settings(silent=True, console="off"),
        )
        opened.define_metric("rlf/step")
        opened.define_metric("*", step_metric="rlf/step")
        return _Writer(opened)


class _Writer:
    """Steps are a metric of their own there: W&B's own counter only goes up, and a resume goes back."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._failed = False

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, StepFinished | EvaluationFinished):
            values: Mapping[str, float] = {"rlf/step": event.step, **metrics_of(event)}
            self._run.log(values)
        elif isinstance(event, RunFinished):
            self._failed = event.status is not RunStatus.FINISHED

    def close(self) -> None:
        self._run.finish(exit_code=int(self._failed))
