"""JSON Lines: one event a line, for `jq`, pandas and programs that follow a run."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TextIO

from rlf.trackers import TrackedRun, Tracker, TrackerWriter
from rlf.types.events import CheckpointSaved, EvaluationFinished, Notice, RunEvent, RunFinished, StepFinished

FILE = "metrics.jsonl"


class JsonlTracker(Tracker):
    """Writes `metrics.jsonl` into the run's folder: a line for each event, each with `event`, `time` and `step`."""

    kind: Literal["jsonl"] = "jsonl"

    def open(self, run: TrackedRun) -> TrackerWriter:
        """Opens the file; a resume drops the lines of the steps that it does again."""
        path = run.folder / FILE
        draft = path.with_suffix(".draft")
        draft.write_text("".join(_lines_before(path, run.first_step)), encoding="utf-8")
        draft.replace(path)  # a kill at any moment leaves the old lines or the kept ones
        writer = _Writer(path.open("a", encoding="utf-8"))
        writer.line("run", run.first_step - 1, run_id=run.run_id, spec=dict(run.spec))
        return writer


class _Writer:
    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __call__(self, event: RunEvent) -> None:
        match event:
            case StepFinished():
                self.line("step", event.step, metrics=_replace_nonfinite(event.metrics))
            case EvaluationFinished():
                self.line("evaluation", event.step, mode=event.mode, metrics=_replace_nonfinite(event.metrics))
            case CheckpointSaved():
                self.line("checkpoint", event.step, path=event.path, sha256=event.sha256)
            case Notice():
                self.line("notice", None, level=event.level, text=event.text, data=dict(event.data))
            case RunFinished():
                self.line("finished", event.step, status=event.status, error=event.error)

    def line(self, event: str, step: int | None, **values: Any) -> None:
        """Writes one line through to the disk, so that a reader who follows the file sees it."""
        entry = {"event": event, "time": time.time(), "step": step, **values}
        self._file.write(json.dumps(entry, ensure_ascii=False, default=str) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _replace_nonfinite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """JSON has no word for what is no number."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def _lines_before(path: Path, step: int) -> list[str]:
    """The whole lines of an earlier process that are about steps before this one."""
    if step == 1 or not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="\n") as file:
        return [line for line in file if line.endswith("\n") and (json.loads(line)["step"] or 0) < step]
