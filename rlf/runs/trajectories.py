"""What trajectories begin with as texts, and those of a run that match a filter or a text."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rlf.chat.encoding import load_tokenizer
from rlf.core.errors import RlfError
from rlf.core.redact import Redactor
from rlf.core.registry import nearest
from rlf.lineage.reader import Reader
from rlf.lineage.records import TRAIN, FoundCall, Run, StoredTrajectory, TrajectoryFilter
from rlf.reports.trajectory import opening
from rlf.spec.model_files import folder_on_disk, model_location
from rlf.spec.reader import mentioned, read_env_files
from rlf.types import FailureClass, Outcome, RunStatus
from rlf.types.trajectory import Trajectory

# The openings of a run's prompts, before each question, by the tokenizer of the run's model.


class Openings:
    """Reads the openings of one run's trajectories; the tokenizer is loaded for the first."""

    def __init__(self, run: Run) -> None:
        self._spec = run.record.plan.get("spec", {})
        filled_in = run.record.plan.get("interpolated", ())
        folders = {(Path(run.record.cwd or "") / file.path).parent for file in run.record.files if file.role == "spec"}
        environment = os.environ | read_env_files(folders)
        self.redactor = Redactor(environment, mentioned(item["text"] for item in filled_in))

    def __call__(self, trajectory: Trajectory) -> str:
        """The opening, or what the plan says of it where the tokenizer is not on this machine."""
        if not trajectory.tokens:
            return self._planned_text("its tokens are not kept")
        decode = self.decoder
        if decode is None:
            return self._planned_text("the model's tokenizer is not on this machine")
        return opening(trajectory, decode)

    @cached_property
    def decoder(self) -> Callable[[Sequence[int]], str] | None:
        """Tokens as text without secrets, which ids hold and texts do not; None without a tokenizer."""
        decode = self.plain_decoder
        return None if decode is None else lambda tokens: self.redactor.text(decode(tokens))

    @cached_property
    def plain_decoder(self) -> Callable[[Sequence[int]], str] | None:
        """Tokens as text with the secrets that are in it."""
        path = self._spec.get("model", {}).get("path")
        folder = None if path is None else folder_on_disk(path)
        if folder is None:
            return None
        if (folder / "tokenizer.json").is_file():
            from tokenizers import Tokenizer  # type: ignore[import-untyped]  # ships no stubs

            fast = Tokenizer.from_file(str(folder / "tokenizer.json"))
            return lambda tokens: str(fast.decode(list(tokens), skip_special_tokens=False))
        try:
            tokenizer = load_tokenizer(str(folder))
        except RlfError:
            return None
        return lambda tokens: str(tokenizer.decode(list(tokens)))

    def _planned_text(self, why: str) -> str:
        """The system texts and tools that the plan names."""
        data = self._spec.get("data", {})
        texts = {part["system"] for part in data.values() if isinstance(part, dict) and part.get("system")}
        tools = [tool["name"] for tool in self._spec.get("tools", ()) if not tool.get("hidden")]
        lines = [*sorted(texts), *([f"tools: {', '.join(tools)}"] if tools else [])]
        return "\n".join([*lines, f"(as the plan says: {why})"]) if lines else ""


# Trajectories and calls of a run that match.

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
    from rlf.reports.trace import find

    last_step = reader.get_run(run_id).last_step
    while True:
        run = reader.get_run(run_id)
        for step in range(last_step + 1, run.last_step + 1):
            here = replace(wanted, phase=TRAIN, step=step, limit=None)
            found = [reader.whole(run_id, match.summary) for match in find(reader, run_id, here, text, 1)]
            yield from (stored for stored in found if stored is not None)
        last_step = run.last_step
        if run.status is not RunStatus.RUNNING:
            return
        time.sleep(_POLL_S)


def token_decoder(run: Run) -> Callable[[int], str]:
    """One token as text, by the tokenizer of the run's model."""
    tokenizer = load_tokenizer(model_location(run.record.plan["spec"]["model"]["path"]))
    return lambda token: str(tokenizer.decode([token]))
