"""Trajectories: found by filters, one in full, its tokens, and the answers to one question."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Depends, Query

from rlf.apps.web.labels import PaidNotRight, TrajectoryLabel, find_paid, labels_by_id, write_label
from rlf.apps.web.site import Area, Site
from rlf.apps.web.trajectories import (
    QuestionAnswers,
    TokenPage,
    TrajectoryList,
    TrajectoryOrder,
    TrajectoryPage,
    TrajectoryView,
    page_trajectories,
    read_answers,
    read_tokens,
    read_trajectory,
)
from rlf.core.errors import RlfError
from rlf.lineage.records import TrajectoryFilter
from rlf.runs.trajectories import wanted_trajectories
from rlf.types import Outcome, StopReason

_FAILED = "failed"


def read_filter(
    phase: str = "",
    step: int | None = None,
    task: str = "",
    succeeded: bool | None = None,
    stop: StopReason | None = None,
    tool: str = "",
    outcome: str = "",
    failure: str = "",
) -> TrajectoryFilter:
    """Reads a request's filter of trajectories; `outcome=failed` is every outcome but ok."""
    if outcome not in {"", _FAILED, *Outcome}:
        raise RlfError(f"outcome: got {outcome[:80]!r}; expected {_FAILED}, {', '.join(Outcome)}.")
    outcomes = [one for one in Outcome if one == outcome or (outcome == _FAILED and one is not Outcome.OK)]
    return wanted_trajectories(
        failure or None,
        phase=phase or None,
        step=step,
        task_id=task or None,
        succeeded=succeeded,
        stop=stop,
        tool=tool or None,
        outcomes=tuple(outcomes),
    )


Text = Annotated[str, Query(max_length=500)]
Wanted = Annotated[TrajectoryFilter, Depends(read_filter)]
PAGE = "/runs/{run}/t"


def routes(site: Site) -> Area:
    """The routes of the area."""
    area = Area(site, "trajectories")

    @area.read(PAGE)
    def list_trajectories(
        run: str,
        wanted: Wanted,
        sort: TrajectoryOrder = TrajectoryOrder.PLACE,
        text: Text = "",
        flipped: bool = False,
        after: str = "",
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
    ) -> TrajectoryPage:
        """The trajectories of a run that match, a page at a time."""
        with site.reader() as reader:
            return page_trajectories(reader, run, TrajectoryList(wanted, sort, text, flipped), after or None, limit)

    @area.read(PAGE + "/{phase}/{step}/{k}")
    def show_trajectory(
        run: str,
        phase: str,
        step: int,
        k: int,
        failed: bool | None = None,
        tool: str = "",
        failure: str = "",
        text: Text = "",
        flipped: bool = False,
    ) -> TrajectoryView:
        """One trajectory turn by turn, with its neighbours in the list of the other parameters."""
        wanted = read_filter(phase, None, "", None if failed is None else not failed, None, tool, "", failure)
        listed = TrajectoryList(wanted, text=text, flipped=flipped)
        is_filtered = failed is not None or bool(tool or failure or text or flipped)
        with site.reader() as reader:
            return read_trajectory(reader, run, (phase, step, k), site.openings, listed if is_filtered else None)

    @area.read(PAGE + "/{phase}/{step}/{k}/tokens")
    def show_tokens(
        run: str,
        phase: str,
        step: int,
        k: int,
        begin: Annotated[int, Query(ge=0)] = 0,
        end: Annotated[int, Query(ge=0)] = 4096,
    ) -> TokenPage:
        """The tokens of a trajectory, which of them were sampled, and with what probability."""
        with site.reader() as reader:
            return read_tokens(reader, run, (phase, step, k), site.openings, begin, min(end, begin + 8192))

    @area.act("POST", PAGE + "/{phase}/{step}/{k}/label")
    def label_trajectory(
        run: str,
        phase: str,
        step: int,
        k: int,
        label: Annotated[bool | float | None, Body()] = None,
        kind: Annotated[str, Body(max_length=80)] = "",
        comment: Annotated[str, Body(max_length=10_000)] = "",
    ) -> TrajectoryLabel:
        """Says what a person thinks of a trajectory: good, bad or a number; null takes the label away."""
        with site.reader() as reader:
            run_id = reader.get_run(run).record.id
            stored = reader.trajectory(run_id, k=k, step=step, phase=phase)
        words = map(site.files.make_redactor().text, (kind, comment))
        return write_label(site.runs_folder, run_id, stored, label, *words)

    @area.read("/labels")
    def list_labels() -> tuple[TrajectoryLabel, ...]:
        """The labels of people, the oldest first."""
        return tuple(labels_by_id(site.runs_folder).values())

    @area.read("/runs/{run}/paid")
    def find_paid_trajectories(run: str, limit: Annotated[int, Query(ge=1, le=200)] = 50) -> PaidNotRight:
        """Wrong training trajectories with as much reward as right ones."""
        with site.reader() as reader:
            return find_paid(reader, run, limit)

    @area.read("/runs/{run}/groups/{step}/{task:path}")
    def show_group(run: str, step: int, task: str, phase: str = "train") -> QuestionAnswers:
        """The answers to one question in one step, side by side."""
        with site.reader() as reader:
            return read_answers(reader, run, task, site.openings, step, phase)

    @area.read("/runs/{run}/questions/{task:path}")
    def show_question(run: str, task: str, phase: str = "") -> QuestionAnswers:
        """One question through the steps and evaluations of a run."""
        with site.reader() as reader:
            return read_answers(reader, run, task, site.openings, None, phase or None)

    return area
