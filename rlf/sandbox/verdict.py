"""From how a process ended to its call's outcome: whose fault it was, in words a model can act on."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

from rlf.sandbox.execution import Execution, Outcome, Table, Usage
from rlf.sandbox.frames import PythonAnswer, TableAnswer
from rlf.sandbox.process import Answer, Exit
from rlf.sandbox.spec import Level, SandboxLimits

_CPU_SLACK_S = 0.3
"""By how much the kernel's two counts of processor time differ."""
_UNSAID = "it ended without a reason; the limits of open files, memory or processes may be too low (`ulimit -a`)"


def judge(answer: Answer, limits: SandboxLimits, level: Level) -> Execution:
    """The result of a call, whatever its process did."""
    outcome, error = _outside_outcome(answer, limits, level)
    found: PythonAnswer | TableAnswer | None = None
    if outcome is None:
        found = answer.found
        assert found is not None, "neither an answer nor a reason"
        outcome, error = found.outcome, found.error
        if outcome is Outcome.OK and answer.exceeded:
            outcome, error = Outcome.OUTPUT_LIMIT, f"only the first {limits.output_bytes} bytes of output were kept"
    ending = answer.exit or Exit()
    usage = Usage(answer.wall_s, ending.cpu_s, ending.peak_bytes)
    execution = Execution(outcome, answer.stdout, answer.stderr, error=error, usage=usage, level=level)
    if isinstance(found, PythonAnswer):
        return _with_value(execution, found, answer.blobs)
    if found is not None and found.columns is not None:
        return replace(execution, table=Table(found.columns, found.rows, found.truncated))
    return execution


def _outside_outcome(answer: Answer, limits: SandboxLimits, level: Level) -> tuple[Outcome | None, str | None]:
    """The outcome as seen from outside; None when the process answered in time."""
    ending = answer.exit
    if ending is not None and ending.failed:
        return Outcome.INFRA, ending.failed
    if answer.timed_out:
        return Outcome.TIMEOUT, f"not finished within {limits.wall_s:g} s"
    if answer.flooded:
        return Outcome.OUTPUT_LIMIT, f"ended for its output; the first {limits.output_bytes} bytes were kept"
    if ending is not None and ending.why == "memory":
        return Outcome.MEMORY, f"ended for using more than {limits.memory_mb} MiB of memory"
    if ending is not None and ending.why == "disk":
        return Outcome.KILLED, f"ended for writing more than {limits.disk_mb} MiB or too many files"
    if not answer.confined:
        return Outcome.INFRA, f"the sandbox could not be entered: {_last_line(answer.stderr) or _UNSAID}"
    if answer.fault is not None:
        return Outcome.KILLED, f"ended since the process answered with {answer.fault}"
    if answer.found is not None:
        return None, None
    assert ending is not None, "no answer and no end"
    return _ended_early(ending, limits, level)


def _last_line(text: str) -> str:
    """Where a traceback has its reason."""
    return (text.strip().splitlines() or [""])[-1][-300:]


def _ended_early(ending: Exit, limits: SandboxLimits, level: Level) -> tuple[Outcome, str]:
    code = os.waitstatus_to_exitcode(ending.status)
    if code >= 0:
        return Outcome.KILLED, f"the process left with code {code} before its end"
    if -code in (signal.SIGKILL, signal.SIGXCPU) and ending.cpu_s >= limits.cpu_s - _CPU_SLACK_S:
        return Outcome.TIMEOUT, f"more than {limits.cpu_s} s of processor time"
    if -code == signal.SIGKILL and level.contains_hostile_code:
        return Outcome.INFRA, "the process was killed from outside of the sandbox"
    return Outcome.KILLED, f"the process was ended by {signal.Signals(-code).name}"


def _with_value(execution: Execution, found: PythonAnswer, blobs: tuple[bytes, ...]) -> Execution:
    """Adds what the process gave back."""
    files = dict(zip(found.files, blobs, strict=False))
    return replace(execution, value=found.value, files=files, images=blobs[len(files) :])
