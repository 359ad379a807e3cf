"""From how a process ended to its call's outcome: whose fault it was, in words a model can act on."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlf.sandbox.execution import Execution, Outcome, Table, Usage
from rlf.sandbox.guest.wire import Frame
from rlf.sandbox.process import Answer, Exit
from rlf.sandbox.spec import Level, SandboxLimits

_CPU_SLACK_S = 0.3
"""By how much the kernel's two counts of processor time differ."""
_OWN_WORD = frozenset({Outcome.OK, Outcome.ERROR, Outcome.MEMORY})
"""Outcomes that a process of foreign code may report itself; all others are seen from outside."""
_UNSAID = "it ended without a reason; the limits of open files, memory or processes may be too low (`ulimit -a`)"


def judge(answer: Answer, limits: SandboxLimits, level: Level, *, trusted: bool = False) -> Execution:
    """The result of a call. `trusted`: the process ran no foreign code, so that its own word holds in all."""
    outcome, error = _outside_outcome(answer, limits, level)
    report: Mapping[str, Any] = {}
    if outcome is None:
        assert isinstance(answer.frame, Frame)
        report = answer.frame.head
        outcome, error = _own_word(report, trusted=trusted)
        if outcome is Outcome.OK and answer.exceeded:
            outcome, error = Outcome.OUTPUT_LIMIT, f"only the first {limits.output_bytes} bytes of output were kept"
    ending = answer.exit or Exit()
    usage = Usage(answer.wall_s, ending.cpu_s, ending.peak_bytes)
    execution = Execution(outcome, answer.stdout, answer.stderr, error=error, usage=usage, level=level)
    return (
        _with_result(execution, report, answer.frame.blobs) if isinstance(answer.frame, Frame) and report else execution
    )


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
    if isinstance(answer.frame, Frame):
        return None, None
    if answer.frame is not None:
        return Outcome.KILLED, f"the process answered with {answer.frame}"
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


def _own_word(report: Mapping[str, Any], *, trusted: bool) -> tuple[Outcome, str | None]:
    try:
        outcome = Outcome(report["outcome"])
        error = report.get("error")
        if not (error is None or isinstance(error, str)):
            raise TypeError("no text")
    except (KeyError, ValueError, TypeError):
        return Outcome.KILLED, "the process answered with something else"
    if outcome not in _OWN_WORD and not trusted:
        return Outcome.KILLED, f"the process reported {outcome.value!r}"
    return outcome, error


def _with_result(execution: Execution, report: Mapping[str, Any], blobs: tuple[bytes, ...]) -> Execution:
    """Adds what the process gave back, as far as it has the right form: it is the code's own word."""
    names = [name for name in report.get("files") or () if isinstance(name, str)][: len(blobs)]
    value = report.get("value")
    table = None
    if isinstance(report.get("rows"), list):
        rows = tuple(tuple(row) for row in report["rows"])
        table = Table(tuple(report["columns"]), rows, bool(report["truncated"]))
    value = value if isinstance(value, str) else None
    files = dict(zip(names, blobs, strict=False))
    return replace(execution, value=value, files=files, images=blobs[len(names) :], table=table)
