"""What each command prints with `--json`: the type of its `data`, by command; and of its events, by command and event.

A new command is enrolled here with a frozen dataclass; a test compares the names with those that commands print under.
Loaded by `rlf schema output` and by tests alone: it imports what every command may print.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NotRequired, TypedDict

from rlf.api.chat.prompts import ShownPrompt
from rlf.api.doctor.findings import Finding
from rlf.api.judges.serve import ServedModel
from rlf.api.projects import Project
from rlf.api.rewards.attack import ToolPlayed
from rlf.api.rewards.calibration import Calibration
from rlf.api.rewards.kinds import RewardKind, RewardTerm, ShownReward
from rlf.api.running.lines import EvaluationLine, InterruptedLine, StepLine
from rlf.api.running.reproduce import Agreement
from rlf.api.running.start import RunInfo, RunOutcome
from rlf.api.running.sweeps import Member
from rlf.api.runs.compare import Comparison
from rlf.api.runs.exports import Exported
from rlf.api.runs.marks import Noted, RemovedRuns, Tagged, Thinned
from rlf.api.runs.tail import Tailed
from rlf.api.runs.transfer import ExportedRuns, ImportedRuns
from rlf.api.runs.verification import Verification
from rlf.api.specs.planning import PlanDifference, PlanReport
from rlf.api.specs.rehearsals import Rehearsal, Stage
from rlf.api.tools.prompts import ToolPrompt
from rlf.api.tools.trials import ToolTrial
from rlf.api.tools.write import Written
from rlf.chat.fuzz.foreign import ForeignTally
from rlf.chat.fuzz.report import Tally
from rlf.chat.parsed import Parsed
from rlf.core.errors import Fault
from rlf.lineage.graph import Graph, Node, NodeDifference
from rlf.lineage.records import FoundCall, StoredTrajectory
from rlf.lineage.salvage import Salvage
from rlf.reports.overview import Overview
from rlf.reports.report import Report
from rlf.reports.sweep import SeedReport, SweepReport
from rlf.reports.trace import Match
from rlf.rewards.attack.findings import Finding as RewardFinding
from rlf.rewards.attack.profit import Attempt
from rlf.rollout.certificate import Certificate
from rlf.sandbox.battery import AttackResult
from rlf.tools.bench import BenchReport
from rlf.types import CheckpointSaved, Notice, RunFinished, Score, ToolResult

Json = dict[str, Any]


class CheckedMember(TypedDict):
    name: str
    plan_hash: str
    overrides: tuple[str, ...]


class Check(TypedDict):
    ok: bool
    faults: tuple[Fault, ...]
    warnings: list[Fault]
    name: NotRequired[str]
    plan_hash: NotRequired[str]
    members: NotRequired[list[CheckedMember]]


class Doctor(TypedDict):
    ok: bool
    findings: list[Finding]


class SandboxAttacks(TypedDict):
    ok: bool
    attacks: list[AttackResult]


class SchemaFiles(TypedDict):
    files: list[Path]


class JudgeEndpoints(TypedDict):
    endpoints: list[ServedModel]


class Tool(TypedDict):
    name: str
    description: str
    inputSchema: Json
    kind: str
    timeout_s: float
    num_tests: int


class ListedTool(Tool):
    file: str


class ShownTool(Tool):
    prompts: list[ToolPrompt]


class CalledTool(TypedDict):
    tool: str
    arguments: Json
    result: ToolResult


class ToolBench(TypedDict):
    tool: str
    report: BenchReport


class ToolFuzz(TypedDict):
    tallies: list[Tally]
    foreign: list[ForeignTally]
    skipped: list[str]


class RewardTrial(TypedDict):
    file: Path
    ok: bool | None
    term: str
    what: str
    expected: str
    value: float | None
    reason: str
    shortfalls: tuple[str, ...]


class ScoredSide(TypedDict):
    reward: float | None
    scores: list[Score]
    advantage: float | None


class RescoredTrajectory(TypedDict):
    id: str
    task: str
    change: float | None
    changes: dict[str, float]
    before: ScoredSide
    after: ScoredSide


class RewardScores(TypedDict):
    source: str
    no_advantages: str | None
    trajectories: list[RescoredTrajectory]


class RewardAttack(TypedDict):
    spec: str
    chat: str
    questions: int
    share: float
    passed: bool
    verdict: str
    findings: tuple[RewardFinding, ...]
    tools: tuple[ToolPlayed, ...]
    gold: Attempt | None
    wrong_in_form: Attempt | None
    trying: Attempt
    attempts: list[Attempt]
    num_searched: int
    num_hacks: int
    hacks: list[Attempt]
    nothing_beats_trying: bool


OUTPUTS: dict[str, Any] = {
    "init": Project,
    "check": Check,
    "plan": PlanReport | PlanDifference,
    "run": RunOutcome | SweepReport,
    "resume": RunOutcome | SweepReport,
    "rehearse": Rehearsal | RunOutcome,
    "export": Exported,
    "trace": list[Match] | list[FoundCall] | StoredTrajectory,
    "schema": SchemaFiles | Json,
    "doctor": Doctor,
    "doctor.attack": SandboxAttacks,
    "runs list": list[Overview],
    "runs show": Report | SweepReport | Graph | StoredTrajectory,
    "runs tail": Tailed,
    "runs compare": Comparison | SeedReport,
    "runs diff": list[NodeDifference],
    "runs whence": list[Node],
    "runs fork": RunOutcome,
    "runs reproduce": Agreement | RunOutcome,
    "runs tag": Tagged,
    "runs note": Noted,
    "runs rm": RemovedRuns,
    "runs gc": Thinned,
    "runs verify": Verification,
    "runs salvage": Salvage,
    "runs export": ExportedRuns,
    "runs import": ImportedRuns,
    "chat show": ShownPrompt,
    "chat parse": Parsed,
    "chat certify": Certificate,
    "tools list": list[ListedTool],
    "tools show": ShownTool,
    "tools test": list[ToolTrial] | CalledTool,
    "tools bench": ToolBench,
    "tools fuzz": ToolFuzz,
    "tools import": Written,
    "rewards list": list[RewardTerm] | list[RewardKind],
    "rewards show": ShownReward,
    "rewards test": list[RewardTrial],
    "rewards score": RewardScores,
    "rewards attack": RewardAttack | list[RewardAttack],
    "rewards calibrate": Calibration,
    "judge serve": JudgeEndpoints,
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
    "runs fork": _OF_RUN,
    "runs reproduce": _OF_RUN,
    "runs tail": {name: _OF_RUN[name] for name in ("step", "evaluation", "notice")},
}
"""The types of the events that a command prints before its result, each on a line of its own."""
