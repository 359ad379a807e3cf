"""Trajectories: those that match, one of them in three views, a group, and a question through a run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from rlf.apps.web.api.trajectories import read_filter
from rlf.apps.web.labels import find_paid, labels_by_id
from rlf.apps.web.pages.shared import is_part, lineage, page, site_of
from rlf.apps.web.trajectories import (
    QuestionAnswers,
    Token,
    TrajectoryList,
    TrajectoryOrder,
    branch_charts,
    find_branches,
    page_trajectories,
    read_answers,
    read_tokens,
    read_trajectory,
)
from rlf.core.errors import RlfError
from rlf.lineage.calls import tool_call_summary
from rlf.lineage.reader import Reader
from rlf.lineage.records import TRAIN
from rlf.reports.trajectory import show_links
from rlf.rewards.labels import LABELS, label_id
from rlf.types import FailureClass, Outcome
from rlf.types.trajectory import Trajectory

router = APIRouter(include_in_schema=False)

_PER_PAGE = 50
_MAX_PAGES = 200
"""That a queue is searched for."""
_MAX_TOKENS = 4096
"""Tokens that the view holds at once."""
_PROBABILITIES = (0.9, 0.5, 0.1, 0.01)
_WHY_S = 90
_LANE_WIDTH = 960
_LABEL_WIDTH = 150


@dataclass(frozen=True, slots=True)
class Asked:
    """The query of a list of trajectories, as in its address."""

    phase: str = ""
    step: str = ""
    result: str = ""
    """`right`, `wrong` or `flipped`."""
    failure: str = ""
    text: str = ""
    tool: str = ""
    outcome: str = ""
    sort: TrajectoryOrder = TrajectoryOrder.PLACE

    @property
    def query(self) -> str:
        """The query string of the address; empty without a filter."""
        named = {name: getattr(self, name) for name in self.__slots__}
        return urlencode({name: value for name, value in named.items() if value and value != TrajectoryOrder.PLACE})

    @property
    def listed(self) -> TrajectoryList:
        """The list."""
        succeeded = {"right": True, "wrong": False}.get(self.result)
        step = int(self.step) if self.step.isdecimal() else None
        wanted = read_filter(self.phase, step, "", succeeded, None, self.tool, self.outcome, self.failure)
        return TrajectoryList(wanted, self.sort, self.text, self.result == "flipped")


Wanted = Annotated[Asked, Depends()]


@dataclass(frozen=True, slots=True)
class Lane:
    """A span of time in the drawing."""

    kind: str
    label: str
    row: int
    x: float
    width: float
    seconds: float


@router.get("/runs/{name}/t")
def show_trajectories(request: Request, name: str, asked: Wanted, after: str = "") -> HTMLResponse:
    """Trajectories of a run that match, 50 at a time."""
    found, fault = None, ""
    with lineage(request) as reader:
        run = reader.get_run(name)
        run_id = run.record.id
        try:
            found = page_trajectories(reader, run_id, asked.listed, after or None, _PER_PAGE)
        except RlfError as error:
            fault = str(error)
        tools = [summary.name for summary in tool_call_summary(reader, run_id)]
        modes = sorted({one.mode for one in reader.evaluations(run_id)}, reverse=True)
    known = {"tools": tools, "phases": [TRAIN, *modes], "failures": list(FailureClass), "outcomes": list(Outcome)}
    of_run = labels_by_id(site_of(request).runs_folder)
    values = {
        "run": run,
        "asked": asked,
        "fault": fault,
        "labels": {one.place: one for one in of_run.values() if one.run_id == run_id},
    }
    values |= {"matches": found.rows if found else (), "following": found.next if found else None}
    base, title = f"/runs/{run_id}/t", f"trajectories · {run_id}"
    return page(request, "trajectories.html", title, place="runs", base=base, query=asked.query, **values, **known)


@router.get("/runs/{name}/queue")
def show_queue(request: Request, name: str, asked: Wanted) -> RedirectResponse:
    """The first trajectory of a list that nobody has labelled yet; the labels where there is none."""
    labels, after = labels_by_id(site_of(request).runs_folder), None
    with lineage(request) as reader:
        run_id = reader.get_run(name).record.id
        for _ in range(_MAX_PAGES):
            found = page_trajectories(reader, run_id, asked.listed, after, _PER_PAGE)
            for one in (line.summary for line in found.rows):
                if label_id(run_id, one.phase, one.step, one.k) not in labels:
                    query = "&".join(filter(None, (asked.query, "queue=1")))
                    return RedirectResponse(f"/runs/{run_id}/t/{one.phase}/{one.step}/{one.k}?{query}", 303)
            after = found.next
            if after is None:
                break
    return RedirectResponse(f"/labels?run={run_id}", 303)


@router.get("/labels")
def show_labels(request: Request, run: str = "") -> HTMLResponse:
    """What people say of trajectories, the newest first, and the commands that use it."""
    found = [one for one in labels_by_id(site_of(request).runs_folder).values() if run in ("", one.run_id)]
    file = site_of(request).runs_folder / LABELS
    return page(request, "labels.html", "Labels", place="runs", labels=found[::-1], of_run=run, file=file)


@router.get("/runs/{name}/t/{phase}/{step}/{k}")
def show_trajectory(
    request: Request,
    name: str,
    phase: str,
    step: int,
    k: int,
    view: str = "turns",
    colour: str = "probability",
    begin: Annotated[int, Query(ge=0)] = 0,
    queue: bool = False,
) -> HTMLResponse:
    """One trajectory as turns, tokens or time, with its scores and its group; tokens from one of them on."""
    # Not declared as a parameter: `phase` and `step` of the list would be those of the path.
    given: dict[str, Any] = {name: text for name, text in request.query_params.items() if name in Asked.__slots__}
    asked = Asked(**given)
    site, place, is_listed = site_of(request), (phase, step, k), bool(asked.query)
    with lineage(request) as reader:
        found = read_trajectory(reader, name, place, site.openings, asked.listed if is_listed else None)
        run = reader.get_run(found.run.id)
        branches = find_branches(reader, run.record.id, place)
        certificate = _certificate(reader, run.record.id) if view == "tokens" else None
        read = (
            read_tokens(reader, run.record.id, place, site.openings, begin, begin + _MAX_TOKENS)
            if view == "tokens"
            else None
        )
    trajectory = found.stored.scored.trajectory
    rewards = [member.reward for member in found.group if member.reward is not None]
    system = next((message.content for message in trajectory.messages if message.role == "system"), "")
    values = {
        "run": run,
        "found": found,
        "stored": found.stored,
        "one": found.stored.summary,
        "side": found.side,
        "links": show_links(trajectory),
        "system": found.side.opening or system,
        "tools": [tool for tool in run.record.plan.get("spec", {}).get("tools", ()) if not tool.get("hidden")],
        "group": found.group,
        "lowest": min([0.0, *rewards]),
        "highest": max([0.0, *rewards]),
        "group_mean": fmean(rewards) if rewards else None,
        "view": view,
        "colour": colour,
        "tokens": []
        if read is None
        else [(token, _style(token, trajectory, found.stored.summary.advantage, colour)) for token in read.tokens],
        "begin": begin,
        "per_page": _MAX_TOKENS,
        "branches": branches,
        "charts": [asdict(chart) for chart in branch_charts(branches)],
        "label": labels_by_id(site.runs_folder).get(label_id(run.record.id, phase, step, k)),
        "queue": queue,
        "certificate": certificate,
        "lanes": _lanes(trajectory) if view == "time" else [],
    }
    base, title = f"/runs/{run.record.id}/t", f"{phase} {step} · {k} · {run.record.id}"
    return page(request, "trajectory.html", title, place="runs", base=base, query=asked.query, **values)


def _certificate(reader: Reader, run_id: str) -> Any:
    """The checks of masks that were played before the run began; None where there were none."""
    found = [event.data["certificate"] for event in reader.events(run_id) if "certificate" in event.data]
    return found[-1] if found else None


def _style(token: Token, trajectory: Trajectory, advantage: float | None, colour: str) -> str:
    """The classes of a token: whether it is in the loss, its shade, and whether a turn begins with it."""
    styles = ["turn-start"] if any(token.position == turn.start for turn in trajectory.turns) else []
    if not token.sampled:
        return " ".join([*styles, *(["sp"] if token.text.startswith("<|") else [])])
    shades = {"probability": _shade(token.logprob), "advantage": _shade_of_advantage(advantage)}
    return " ".join([*styles, "in-loss", shades.get(colour, "")]).strip()


def _shade(logprob: float | None) -> str:
    """`p1` to `p4`, the less likely the stronger; none for what is as good as certain."""
    probability = 1.0 if logprob is None or not math.isfinite(logprob) else math.exp(logprob)
    rank = sum(probability < edge for edge in _PROBABILITIES)
    return f"p{rank}" if rank else ""


def _shade_of_advantage(advantage: float | None) -> str:
    """`a1` to `a3` for tokens that become likelier, `n1` to `n3` for the others."""
    if not advantage:
        return ""
    size = abs(advantage)
    return f"{'a' if advantage > 0 else 'n'}{1 if size < 0.5 else 2 if size < 1.25 else 3}"


def _lanes(trajectory: Trajectory) -> list[Lane]:
    """Sampling, waiting and calls on one axis of time, as the turns came."""
    spans = list(_spans(trajectory))
    total = max((start + seconds for _, _, _, start, seconds in spans), default=0.0) or 1.0
    scale = (_LANE_WIDTH - _LABEL_WIDTH - 10) / total
    return [
        Lane(kind, label, row, _LABEL_WIDTH + start * scale, max(1.0, seconds * scale), seconds)
        for kind, label, row, start, seconds in spans
    ]


def _spans(trajectory: Trajectory) -> Iterator[tuple[str, str, int, float, float]]:
    row, clock = 0, 0.0
    for number, turn in enumerate(trajectory.turns, start=1):
        yield "sample", f"turn {number}", row, clock, turn.sample_s
        clock, row = clock + turn.sample_s, row + 1
        for record in turn.calls:
            result = record.result
            if result.queue_s:
                yield "queue", "waits", row, clock, result.queue_s
            kind = "tool" if result.outcome is Outcome.OK else "fault"
            yield kind, f"{record.call.name}: {result.outcome}", row, clock + result.queue_s, result.run_s
            row += 1
        clock += turn.tools_s


@router.get("/runs/{name}/groups/{step}/{task:path}")
def show_group(request: Request, name: str, step: int, task: str, phase: str = TRAIN) -> HTMLResponse:
    """All answers to one question of a step, side by side."""
    return _answers(request, name, task, step, phase, f"group of step {step}")


@router.get("/runs/{name}/questions/{task:path}")
def show_question(request: Request, name: str, task: str, phase: str = "") -> HTMLResponse:
    """One question through the steps and evaluations of a run."""
    return _answers(request, name, task, None, phase or None, "question")


def _answers(request: Request, name: str, task: str, step: int | None, phase: str | None, words: str) -> HTMLResponse:
    site = site_of(request)
    with lineage(request) as reader:
        found: QuestionAnswers = read_answers(reader, name, task, site.openings, step, phase)
        run = reader.get_run(found.run.id)
    values = {"run": run, "found": found, "base": f"/runs/{run.record.id}/t", "words": words}
    return page(request, "members.html", f"{words} {task}", place="runs", **values)


@router.get("/runs/{name}/why/{step}/{k}")
def show_advantage(request: Request, name: str, step: int, k: int) -> HTMLResponse:
    """Why a training trajectory has its advantage; the frame comes first."""
    site, found = site_of(request), None
    with lineage(request) as reader:
        run = reader.get_run(name)
    if is_part(request):
        about = {"run": run.record.id, "runs": str(site.runs_folder), "step": step, "k": k}
        found = site.fresh.read("explain_advantage", deadline_s=_WHY_S, **about)
    place = f"/runs/{run.record.id}/t/{TRAIN}/{step}/{k}"
    return page(request, "why.html", f"advantage of {TRAIN} {step} · {k}", place="runs", run=run, found=found, at=place)


@router.get("/runs/{name}/paid")
def show_paid(request: Request, name: str) -> HTMLResponse:
    """Wrong training trajectories with as much reward as right ones."""
    with lineage(request) as reader:
        found = find_paid(reader, name, _PER_PAGE)
        run = reader.get_run(found.run.id)
    base = f"/runs/{run.record.id}/t"
    return page(
        request, "paid.html", f"paid, not right · {run.record.id}", place="runs", run=run, found=found, base=base
    )
