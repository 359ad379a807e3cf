"""The lineage of runs: tables, the store they live in, the recorder that writes and the reader that reads.

Importing the package loads no database library; each name is fetched from its module when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlf.core.registry import lazily

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader
    from rlf.lineage.recorder import Recorder
    from rlf.lineage.records import (
        Checkpoint,
        Evaluation,
        FileRecord,
        LoggedEvent,
        ParentKind,
        Run,
        RunRecord,
        StepTotals,
        StoredTrajectory,
        ToolCallSummary,
        TrainingStep,
        TrajectoryFilter,
        TrajectorySummary,
    )
    from rlf.lineage.run import begin_resume, start_run
    from rlf.lineage.store import Store, open_store

__all__ = [
    "Checkpoint",
    "Evaluation",
    "FileRecord",
    "LoggedEvent",
    "ParentKind",
    "Reader",
    "Recorder",
    "Run",
    "RunRecord",
    "StepTotals",
    "Store",
    "StoredTrajectory",
    "ToolCallSummary",
    "TrainingStep",
    "TrajectoryFilter",
    "TrajectorySummary",
    "begin_resume",
    "open_store",
    "start_run",
]

_HOME = {
    **dict.fromkeys(__all__, "records"),
    **{"Reader": "reader", "Recorder": "recorder", "Store": "store", "open_store": "store"},
    **dict.fromkeys(("begin_resume", "start_run"), "run"),
}
"""Module of each name."""
__getattr__ = lazily(__name__, _HOME)
