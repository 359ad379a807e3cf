"""News of the lineage since the last look, for pages that show runs while they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlf.core.errors import RlfError
from rlf.lineage.reader import Reader
from rlf.lineage.records import Evaluation, LoggedEvent, RunLine, Step

__all__ = ["Cursor", "RunLine", "RunNews", "changed_lines", "parse_cursors", "read_news"]


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a reader has read one run."""

    run_id: str
    step_s: float = 0.0
    """When the last step that was read finished."""
    evaluation_s: float = 0.0
    num_notices: int = 0

    def behind(self, steps: Sequence[Step], evaluations: Sequence[Evaluation], num_notices: int) -> Cursor:
        """The cursor after more was read."""
        return replace(
            self,
            step_s=max([self.step_s, *(step.finished for step in steps)]),
            evaluation_s=max([self.evaluation_s, *(one.finished for one in evaluations)]),
            num_notices=self.num_notices + num_notices,
        )

    def __str__(self) -> str:
        return f"{self.run_id}@{self.step_s!r}@{self.evaluation_s!r}@{self.num_notices}"


@dataclass(frozen=True, slots=True)
class RunNews:
    """The news of one run."""

    run_id: str
    run: RunLine
    steps: tuple[Step, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    notices: tuple[LoggedEvent, ...] = ()
    cursor: Cursor | None = None
    """From which the next look begins; None where it was not asked for what is new in the run."""


def parse_cursors(text: str) -> dict[str, Cursor]:
    """Cursors by run, as `Cursor` writes them, with commas. Raises RlfError for anything else."""
    found = {}
    for part in filter(None, text.split(",")):
        run_id, *places = part.split("@")
        try:
            step_s, evaluation_s, num_notices = (float(place) for place in places)
            found[run_id] = Cursor(run_id, step_s, evaluation_s, max(0, int(num_notices)))
        except (ValueError, OverflowError) as error:
            raise RlfError(f"since: got {part[:80]!r}; expected RUN@TIME@TIME@NUMBER. Send what came last.") from error
    return found


def read_news(reader: Reader, cursor: Cursor) -> RunNews | None:
    """The news of a run after a cursor; None where the run is gone.

    A step that was made again by a resumed run is new: it finished later.
    """
    found = reader.run_lines(run_id=cursor.run_id)
    if not found:
        return None
    steps = reader.steps(cursor.run_id, cursor.step_s)
    evaluations = reader.evaluations(cursor.run_id, cursor.evaluation_s)
    notices = reader.events(cursor.run_id, cursor.num_notices)
    return RunNews(
        cursor.run_id,
        found[0],
        tuple(steps),
        tuple(evaluations),
        tuple(notices),
        cursor.behind(steps, evaluations, len(notices)),
    )


def changed_lines(before: Sequence[RunLine], now: Sequence[RunLine]) -> tuple[RunLine, ...]:
    """The runs that are new, or whose status or step is another."""
    known = {(run.id, run.status, run.last_step) for run in before}
    return tuple(run for run in now if (run.id, run.status, run.last_step) not in known)
