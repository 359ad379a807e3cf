"""The types that commands print with `--json`: of `data` by command, and of events by command and event.

A new command is enrolled here with a frozen dataclass; a test compares the names with those that commands print under.
Loaded by `rlf schema output` and by tests alone: it imports what every command may print.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlf.api.doctor.attacks import SandboxAttacks
from rlf.api.doctor.findings import Examination
from rlf.api.evaluation.branches import Branches
from rlf.api.evaluation.play import Progress
from rlf.api.evaluation.run import Begun
from rlf.api.judges.serve import JudgeEndpoints
from rlf.api.projects import OpenedPage, Project
from rlf.api.python.specs import Check
from rlf.api.python.tools import ListedTool, ShownTool
from rlf.api.running.drive import RunInfo, RunOutcome
from rlf.api.running.lines import EvaluationLine, InterruptedLine, StepLine
from rlf.api.running.reproduce import Agreement
from rlf.api.running.sweeps import Member
from rlf.api.runs.bundles import Bundle
from rlf.api.runs.exports import Exported
from rlf.api.runs.marks import Noted, Tagged, Thinned
from rlf.api.runs.removal import RemovedRuns
from rlf.api.runs.tail import Tailed
from rlf.api.runs.transfer import ExportedRuns, ImportedRuns
from rlf.api.runs.verification import Verification
from rlf.api.serve import ServedEndpoint
from rlf.api.specs.planning import PlanDifference, PlanReport
from rlf.api.specs.rehearsals import Rehearsal, Stage
from rlf.apps.attack.attack import Attack
from rlf.apps.build.build import Built, Estimate, ShownWorld
from rlf.apps.formats.prompts import ShownPrompt
from rlf.apps.fuzz.fuzz import ToolFuzz
from rlf.apps.imports.tools import Written
from rlf.apps.imports.worlds import ImportedWorld
from rlf.apps.judges.calibration import Calibration
from rlf.apps.keep.salvage import Salvage
from rlf.apps.rewards.scoring import Rescoring, RewardKind, RewardTerm, ShownReward, Trial
from rlf.apps.tools.trials import CalledTool, ToolBench, ToolTrial
from rlf.apps.worlds.worlds import DescribedWorld, WorldKind
from rlf.chat.marks import Parsed
from rlf.environments.playing import Page, Played
from rlf.lineage.graph import Graph, Node, NodeDifference
from rlf.lineage.records import FoundCall, StoredTrajectory
from rlf.reports.comparison import Comparison
from rlf.reports.evaluations import EvaluationReport
from rlf.reports.overview import Overview
from rlf.reports.report import Report
from rlf.reports.sweep import SeedReport, SweepReport
from rlf.reports.trace import Match
from rlf.rollout.certificate import Certificate
from rlf.types import CheckpointSaved, Notice, RunFinished

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SchemaFiles:
    """Files of written schemas."""

    files: tuple[Path, ...]


OUTPUTS: dict[str, Any] = {
    "init": Project,
    "check": Check,
    "plan": PlanReport | PlanDifference,
    "run": RunOutcome | SweepReport,
    "resume": RunOutcome | SweepReport,
    "rehearse": Rehearsal | RunOutcome,
    "eval": EvaluationReport,
    "export": Exported,
    "trace": list[Match] | list[FoundCall] | StoredTrajectory,
    "web": Bundle,
    "schema": SchemaFiles | Json,
    "doctor": Examination,
    "doctor.attack": SandboxAttacks,
    "env build": Estimate | Built,
    "env list": list[WorldKind],
    "env show": ShownWorld | DescribedWorld,
    "env test": Page,
    "env attack": Page,
    "env play": Played,
    "env import": ImportedWorld,
    "runs list": list[Overview],
    "runs show": Report | SweepReport | EvaluationReport | Graph | StoredTrajectory,
    "runs tail": Tailed,
    "runs compare": Comparison | SeedReport,
    "runs diff": list[NodeDifference],
    "runs whence": list[Node],
    "runs fork": RunOutcome,
    "runs branch": Branches,
    "runs reproduce": Agreement | RunOutcome,
    "runs tag": Tagged,
    "runs note": Noted,
    "runs rm": RemovedRuns,
    "runs gc": Thinned,
    "runs verify": Verification,
    "runs salvage": Salvage,
    "runs export": ExportedRuns,
    "runs import": ImportedRuns,
    "format show": ShownPrompt,
    "format parse": Parsed,
    "format certify": Certificate,
    "tools list": list[ListedTool],
    "tools show": ShownTool,
    "tools test": list[ToolTrial] | CalledTool,
    "tools bench": ToolBench,
    "tools fuzz": ToolFuzz,
    "tools import": Written,
    "rewards list": list[RewardTerm] | list[RewardKind],
    "rewards show": ShownReward,
    "rewards test": list[Trial],
    "rewards score": Rescoring,
    "rewards attack": Attack | list[Attack],
    "rewards calibrate": Calibration,
    "judge serve": JudgeEndpoints,
    "serve": ServedEndpoint,
}
"""The type of a command's result."""

_OF_RUN: dict[str, Any] = {
    "started": RunInfo,
    "step": StepLine,
    "evaluation": EvaluationLine,
    "interrupted": InterruptedLine,
    "checkpoint": CheckpointSaved,
    "notice": Notice,
    "finished": RunFinished,
}
EVENTS: dict[str, dict[str, Any]] = {
    "run": {**_OF_RUN, "member": Member},
    "resume": {**_OF_RUN, "member": Member},
    "rehearse": {**_OF_RUN, "stage": Stage},
    "eval": {
        "started": Begun,
        "progress": Progress,
        **{name: _OF_RUN[name] for name in ("evaluation", "interrupted", "notice", "finished")},
    },
    "web": {"open": OpenedPage},
    "runs fork": _OF_RUN,
    "runs reproduce": _OF_RUN,
    "runs tail": {name: _OF_RUN[name] for name in ("step", "evaluation", "notice")},
}
"""The types of the events that a command prints before its result, each on a line of its own."""
