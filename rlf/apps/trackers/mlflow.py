"""MLflow: a run of an experiment, on a tracking server or in a database."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from rlf.trackers import TrackedRun, Tracker, TrackerWriter, metrics_of
from rlf.types.events import EvaluationFinished, RunEvent, RunFinished, RunStatus, StepFinished

_TAG = "rlf.run_id"
_MAX_PARAM_CHARS = 6000
_MAX_BATCH = 100
"""Params of one request, the most that MLflow takes."""
_STATUS = {RunStatus.FINISHED: "FINISHED", RunStatus.FAILED: "FAILED", RunStatus.INTERRUPTED: "KILLED"}


class MlflowTracker(Tracker):
    """Reports to MLflow: metrics by step, the spec's values as params, rlf's id of the run as the tag `rlf.run_id`."""

    module: ClassVar[str | None] = "mlflow"
    install: ClassVar[str] = "mlflow-skinny"
    kind: Literal["mlflow"] = "mlflow"
    tracking_uri: str | None = None
    """Server or database, e.g. `http://mlflow:5000` or `sqlite:///mlflow.db`; null: MLFLOW_TRACKING_URI, or else
    MLflow's own default."""
    experiment: str = "rlf"
    """Experiment of the run; made where there is none."""

    def open(self, run: TrackedRun) -> TrackerWriter:
        """Begins a run of the experiment; a resume continues the one of the tag."""
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        client = MlflowClient(self.tracking_uri)
        found = client.get_experiment_by_name(self.experiment)
        experiment = client.create_experiment(self.experiment) if found is None else found.experiment_id
        known = client.search_runs([experiment], f"tags.`{_TAG}` = '{run.run_id}'", max_results=1)
        if known:
            client.update_run(known[0].info.run_id, status="RUNNING")
            return _Writer(client, known[0].info.run_id)
        started = client.create_run(experiment, run_name=run.name, tags={_TAG: run.run_id}).info.run_id
        params = [Param(name, value[:_MAX_PARAM_CHARS]) for name, value in _flatten_values(run.spec, "")]
        for start in range(0, len(params), _MAX_BATCH):
            client.log_batch(started, params=params[start : start + _MAX_BATCH])
        return _Writer(client, started)


class _Writer:
    def __init__(self, client: Any, run_id: str) -> None:
        self._client = client
        self._run_id = run_id
        self._status = RunStatus.FAILED

    def __call__(self, event: RunEvent) -> None:
        from mlflow.entities import Metric

        if isinstance(event, StepFinished | EvaluationFinished):
            now = int(1000 * time.time())
            values = [(name, value) for name, value in metrics_of(event).items() if math.isfinite(value)]
            self._client.log_batch(self._run_id, metrics=[Metric(name, v, now, event.step) for name, v in values])
        elif isinstance(event, RunFinished):
            self._status = event.status

    def close(self) -> None:
        self._client.set_terminated(self._run_id, _STATUS[self._status])


def _flatten_values(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The values of a spec by dotted key."""
    if isinstance(value, Mapping) and value:
        for key, child in value.items():
            yield from _flatten_values(child, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list | tuple) and value:
        for index, child in enumerate(value):
            yield from _flatten_values(child, f"{path}.{index}")
    else:
        yield path, str(value)
