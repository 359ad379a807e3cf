"""Trajectories and calls of a run that match."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from rlf.chat.encoding import load_tokenizer
from rlf.core.errors import RlfError
from rlf.core.registry import nearest
from rlf.lineage.reader import Reader as Reader
from rlf.lineage.records import TRAIN as TRAIN
from rlf.lineage.records import FoundCall, TrajectoryFilter
from rlf.lineage.records import Run as Run
from rlf.lineage.records import StoredTrajectory as StoredTrajectory
from rlf.reports.trace import find
from rlf.spec.model_files import model_location
from rlf.types import FailureClass, Outcome, RunStatus

_POLL_S = 0.5


def wanted_trajectories(failure: str | None = None, **facts: Any) -> TrajectoryFilter:
    """Makes the lineage's filter. Raises RlfError for an unknown class of parse failure."""
    known = [str(kind) for kind in FailureClass]
    if failure is not None and failure not in known:
        raise RlfError(f"--failure: unknown class {failure!r}{nearest(failure, known)} (known: {', '.join(known)}).")
    return TrajectoryFilter(failure=None if failure is None else FailureClass(failure), **facts)


def find_calls(
    reader: Reader, run_id: str, wanted: TrajectoryFilter, tool: str | None, outcome: str | None, limit: int
) -> list[FoundCall]:
    """Calls of a tool, or with an outcome. Raises RlfError for a tool that was never called, or an unknown outcome."""
    outcomes = _parse_outcomes(outcome)
    called = [summary.name for summary in reader.tool_call_summary(run_id)]
    called += sorted(reader.names_inside(run_id) - set(called)) if tool is not None and tool not in called else []
    if tool is not None and tool not in called:
        raise RlfError(
            f"--tool: {run_id} has no call of {tool!r}{nearest(tool, called)} (called: {', '.join(called) or 'none'})."
        )
    return reader.calls(run_id, wanted, tool=tool, outcomes=outcomes, limit=limit)


def _parse_outcomes(name: str | None) -> list[Outcome]:
    if name is None:
        return list(Outcome)
    known = ["failed", *map(str, Outcome)]
    if name not in known:
        raise RlfError(f"--outcome: unknown outcome {name!r}{nearest(name, known)} (known: {', '.join(known)}).")
    return [found for found in Outcome if found is not Outcome.OK] if name == "failed" else [Outcome(name)]


def follow_trajectories(
    reader: Reader, run_id: str, wanted: TrajectoryFilter, text: str | None
) -> Iterator[StoredTrajectory]:
    """One trajectory that matches of each step that finishes from now on, until the run ends."""
    for step in _follow_steps(reader, run_id):
        here = replace(wanted, phase=TRAIN, step=step, limit=None)
        for match in find(reader, run_id, here, text, 1):
            stored = reader.whole(run_id, match.summary)
            if stored is not None:
                yield stored


def _follow_steps(reader: Reader, run_id: str) -> Iterator[int]:
    """The steps that finish from now on, until the run ends."""
    last_step = reader.get_run(run_id).last_step
    while True:
        run = reader.get_run(run_id)
        yield from range(last_step + 1, run.last_step + 1)
        last_step = run.last_step
        if run.status is not RunStatus.RUNNING:
            return
        time.sleep(_POLL_S)


def token_decoder(run: Run) -> Callable[[int], str]:
    """One token as text, by the tokenizer of the run's model."""
    tokenizer = load_tokenizer(model_location(run.record.plan["spec"]["model"]["path"]))
    return lambda token: str(tokenizer.decode([token]))
