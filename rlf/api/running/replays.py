"""Tool results of an earlier run, to play back in place of the tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rlf.api.lineage import open_reader
from rlf.core import RlfError
from rlf.lineage.reader import Reader
from rlf.lineage.records import INTERRUPTED
from rlf.tools.execution.cache import AnsweredCall, Replay, Tape, arguments_text, read_tape
from rlf.types import Outcome, ToolResult

RECORDING = "tool_calls.jsonl"
"""The file in a run's folder that `--record` writes."""
_PLAYED = "replay.txt"
"""The file in a run's folder that names what its tool calls are answered from."""


def keep_replay(folder: Path, name: str) -> None:
    """Writes the recording that answers a run's calls into its folder, so that a resume uses it too."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _PLAYED).write_text(str(Path(name).absolute()) if Path(name).is_file() else name, encoding="utf-8")


def kept_replay(folder: Path, runs_folder: Path) -> Replay | None:
    """The recording that `keep_replay` named; None for a run that calls its tools.

    Raises:
        RlfError: it is gone.
    """
    path = folder / _PLAYED
    return find_replay(path.read_text(encoding="utf-8"), runs_folder) if path.is_file() else None


def find_replay(name: str, runs_folder: Path) -> Replay:
    """The calls of a recording's file, or of a run as its lineage has them, which lacks those that reward terms made.

    Raises:
        RlfError: there is neither, or the run's trajectories are not all kept.
    """
    path = Path(name)
    if path.is_file():
        return read_tape(path)
    with open_reader(runs_folder) as reader:
        run_id = reader.get_run(name).record.id
        return Tape(_recorded_calls(reader, run_id))


def _recorded_calls(reader: Reader, run_id: str) -> Iterator[tuple[AnsweredCall, ToolResult]]:
    """Every call that reached the executor in a trajectory that counts, in the order of its trajectory."""
    for summary in reader.trajectories(run_id):
        if summary.phase == INTERRUPTED:
            continue
        stored = reader.whole(run_id, summary)
        if stored is None:
            fix = f"Replay a file that `rlf run --record` wrote (RUNS/{run_id}/{RECORDING})."
            raise RlfError(f"run {run_id}: trajectory {summary.trajectory_id} is kept without its calls. {fix}")
        for record in stored.scored.trajectory.calls:
            if record.result.outcome is not Outcome.LIMIT_REACHED:
                text = arguments_text(record.call.arguments)
                yield AnsweredCall(summary.trajectory_id, record.call.name, text), record.result
