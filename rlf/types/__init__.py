"""The nouns every package shares. Frozen values and protocols, no behaviour beyond what they say of themselves."""

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
from rlf.types.image import Image
from rlf.types.policy import Finish, Policy, Sample, SampleRequest, Sampling
from rlf.types.score import Score, Scored, ScoreState, ScoreUsage
from rlf.types.task import Message, Task
from rlf.types.tool import (
    Attempt,
    InnerCall,
    InnerTurn,
    Outcome,
    ToolCall,
    ToolDescription,
    ToolInvoker,
    ToolOutput,
    ToolResult,
)
from rlf.types.trajectory import (
    CallRecord,
    FailureClass,
    ParseFailure,
    Repair,
    RepairKind,
    StopReason,
    Trajectory,
    Turn,
)

__all__ = [
    "Attempt",
    "CallRecord",
    "CheckpointSaved",
    "EvaluationFinished",
    "EventSink",
    "FailureClass",
    "Finish",
    "Image",
    "InnerCall",
    "InnerTurn",
    "Interrupted",
    "Message",
    "Notice",
    "Outcome",
    "ParseFailure",
    "Policy",
    "Repair",
    "RepairKind",
    "RunEvent",
    "RunFinished",
    "RunStatus",
    "Sample",
    "SampleRequest",
    "Sampling",
    "Score",
    "ScoreState",
    "ScoreUsage",
    "Scored",
    "StepFinished",
    "StopReason",
    "Task",
    "ToolCall",
    "ToolDescription",
    "ToolInvoker",
    "ToolOutput",
    "ToolResult",
    "Trajectory",
    "Turn",
]
