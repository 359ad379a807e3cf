"""Trajectories: those that match, one of them in three views, a group, and a question through a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from rlf.api.lineage import Reader
from rlf.api.runs.openings import Openings
from rlf.api.runs.tokens import token_texts
from rlf.api.runs.trace import TRAIN, StoredTrajectory, find, find_calls, find_flipped, wanted_trajectories
from rlf.core.errors import RlfError
from rlf.reports.pages.turns import Side, side
from rlf.types import FailureClass, Outcome
from rlf.types.trajectory import Trajectory
from rlf.web.pages.render import lineage, page

router = APIRouter(include_in_schema=False)

_PER_PAGE = 50
_MAX_TOKENS = 4096
"""Tokens that the view holds at once."""
_PROBABILITIES = (0.9, 0.5, 0.1, 0.01)
_LANE_WIDTH, _LANE_HEIGHT = 960, 18


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the view."""

    place: int
    id: int
    text: str
    style: str
    probability: float | None
    """By the sampler; None where the policy did not sample it."""
    advantage: float | None
    """What its turn is trained with, as far as the lineage has it."""
    starts_turn: bool


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
def show_trajectories(
    request: Request,
    name: str,
    phase: str = "",
    step: str = "",
    result: str = "",
    failure: str = "",
    text: str = "",
    tool: str = "",
    outcome: str = "",
    sort: str = "",
    limit: int = _PER_PAGE,
) -> HTMLResponse:
    """Trajectories of a run that match; with a tool or an outcome the calls that do."""
    asked = {"phase": phase, "step": step, "result": result, "failure": failure, "text": text, "tool": tool}
    asked |= {"outcome": outcome, "sort": sort}
    query = urlencode({key: value for key, value in asked.items() if value})
    found: dict[str, Any] = {"matches": [], "calls": [], "fault": ""}
    with lineage(request) as reader:
        run = reader.get_run(name)
        try:
            found |= _matching(reader, run.record.id, asked, limit)
        except (RlfError, ValueError) as error:
            found["fault"] = str(error)
        tools = [summary.name for summary in reader.tool_call_summary(run.record.id)]
        modes = sorted({one.mode for one in reader.evaluations(run.record.id)}, reverse=True)
    more = len(found["matches"]) + len(found["calls"]) >= limit
    values = {"run": run, "asked": asked, "query": f"?{query}" if query else "", "limit": limit, "more": more}
    known = {"tools": tools, "phases": [TRAIN, *modes], "failures": list(FailureClass), "outcomes": list(Outcome)}
    base = f"/runs/{run.record.id}/t"
    title = f"trajectories · {run.record.id}"
    return page(request, "trajectories.html", title, place="runs", base=base, **values, **known, **found)


def _matching(reader: Reader, run_id: str, asked: dict[str, str], limit: int) -> dict[str, Any]:
    wanted = wanted_trajectories(
        asked["failure"] or None,
        phase=asked["phase"] or None,
        step=int(asked["step"]) if asked["step"] else None,
        succeeded={"right": True, "wrong": False}.get(asked["result"]),
        best_first=asked["sort"] == "advantage",
        limit=None if asked["text"] else limit,
    )
    if asked["tool"] or asked["outcome"]:
        return {"calls": find_calls(reader, run_id, wanted, asked["tool"] or None, asked["outcome"] or None, limit)}
    if asked["result"] == "flipped":
        return {"matches": find_flipped(reader, run_id, limit)}
    return {"matches": find(reader, run_id, wanted, asked["text"] or None, limit)}


@router.get("/runs/{name}/t/{phase}/{step}/{k}")
def show_trajectory(
    request: Request, name: str, phase: str, step: int, k: int, view: str = "turns", colour: str = "probability"
) -> HTMLResponse:
    """One trajectory as turns, tokens or time, with its scores and its group."""
    asked = {key: value for key, value in request.query_params.items() if key not in ("view", "colour")}
    with lineage(request) as reader:
        run = reader.get_run(name)
        run_id = run.record.id
        stored = reader.trajectory(run_id, k=k, step=step, phase=phase)
        group = reader.trajectories(run_id, wanted_trajectories(phase=phase, step=step, task_id=stored.summary.task_id))
        place = _neighbours(reader, run_id, asked, stored)
    openings, trajectory = Openings(run), stored.scored.trajectory
    opening = openings(trajectory)
    tools = run.record.plan.get("spec", {}).get("tools", ())
    rewards = [member.reward for member in group if member.reward is not None]
    values = {
        "run": run,
        "stored": stored,
        "one": stored.summary,
        "side": side("", stored, opening),
        "system": opening or next((m.content for m in trajectory.task.messages if m.role == "system"), ""),
        "tools": [tool for tool in tools if not tool.get("hidden")],
        "group": group,
        "lowest": min([0.0, *rewards]),
        "highest": max([0.0, *rewards]),
        "group_mean": fmean(rewards) if rewards else None,
        "view": view,
        "colour": colour,
        "tokens": _tokens(openings, stored, colour) if view == "tokens" else [],
        "lanes": _lanes(trajectory) if view == "time" else [],
        "query": urlencode(asked),
        **place,
    }
    title = f"{phase} {step} · {k} · {run_id}"
    return page(request, "trajectory.html", title, place="runs", base=f"/runs/{run_id}/t", **values)


def _neighbours(reader: Reader, run_id: str, asked: dict[str, str], stored: StoredTrajectory) -> dict[str, Any]:
    """The trajectories before and behind in the list that one came from; of its step without a list."""
    here = stored.summary
    if any(asked.get(key) for key in ("text", "tool", "outcome", "result")) or asked.get("sort"):
        listed = _matching(reader, run_id, _all_asked(asked), _PER_PAGE)
        places = [(one.phase, one.step, one.k) for one in _summaries(listed)]
    else:
        wanted = wanted_trajectories(asked.get("failure") or None, phase=here.phase, step=here.step)
        places = [(one.phase, one.step, one.k) for one in reader.trajectories(run_id, wanted)]
    at = places.index(found) if (found := (here.phase, here.step, here.k)) in places else -1
    before = places[at - 1] if at > 0 else None
    behind = places[at + 1] if 0 <= at < len(places) - 1 else None
    return {"previous": before, "next": behind, "position": at + 1, "num_listed": len(places)}


def _all_asked(asked: dict[str, str]) -> dict[str, str]:
    names = ("phase", "step", "result", "failure", "text", "tool", "outcome", "sort")
    return {name: asked.get(name, "") for name in names}


def _summaries(listed: dict[str, Any]) -> list[Any]:
    found = [match.summary for match in listed.get("matches", ())]
    return found + list({(call.phase, call.step, call.k): call for call in listed.get("calls", ())}.values())


def _tokens(openings: Openings, stored: StoredTrajectory, colour: str) -> list[Token]:
    trajectory, advantage = stored.scored.trajectory, stored.summary.advantage
    texts = token_texts(openings, trajectory)[:_MAX_TOKENS]
    starts = {turn.start for turn in trajectory.turns}
    return [_token(trajectory, place, text, advantage, colour, place in starts) for place, text in enumerate(texts)]


def _token(
    trajectory: Trajectory, place: int, text: str, advantage: float | None, colour: str, starts_turn: bool
) -> Token:
    sampled = bool(trajectory.action_mask[place])
    logprob = trajectory.rollout_logprobs[place]
    probability = math.exp(logprob) if sampled and math.isfinite(logprob) else None
    styles = ["in-loss"] if sampled else ["sp"] if text.startswith("<|") else []
    if sampled:
        shade = _shade_of_advantage(advantage) if colour == "advantage" else _shade(probability)
        styles += [shade] if shade and colour != "mask" else []
    styles += ["turn-start"] if starts_turn else []
    own = advantage if sampled else None
    return Token(place, trajectory.tokens[place], text, " ".join(styles), probability, own, starts_turn)


def _shade(probability: float | None) -> str:
    """`p1` to `p4`, the less likely the stronger; none for what is as good as certain."""
    rank = 0 if probability is None else sum(probability < edge for edge in _PROBABILITIES)
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
    scale = (_LANE_WIDTH - 160) / total
    return [
        Lane(kind, label, row, 150 + start * scale, max(1.0, seconds * scale), seconds)
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


@router.get("/runs/{name}/groups/{step}/{task}")
def show_group(request: Request, name: str, step: int, task: str, phase: str = TRAIN) -> HTMLResponse:
    """All answers to one question of a step, side by side."""
    with lineage(request) as reader:
        run = reader.get_run(name)
        wanted = wanted_trajectories(phase=phase, step=step, task_id=task)
        stored = _whole(reader, run.record.id, reader.trajectories(run.record.id, wanted))
    return _members(request, run, stored, f"group of step {step}", task)


@router.get("/runs/{name}/questions/{task}")
def show_question(request: Request, name: str, task: str) -> HTMLResponse:
    """One question through all evaluations of a run."""
    with lineage(request) as reader:
        run = reader.get_run(name)
        tried = reader.trajectories(run.record.id, wanted_trajectories(task_id=task))
        stored = _whole(reader, run.record.id, [one for one in tried if one.phase != TRAIN] or tried)
    return _members(request, run, stored, "question", task)


def _whole(reader: Reader, run_id: str, summaries: Sequence[Any]) -> list[StoredTrajectory]:
    found = (reader.whole(run_id, summary) for summary in summaries)
    return [stored for stored in found if stored is not None]


def _members(request: Request, run: Any, stored: Sequence[StoredTrajectory], words: str, task: str) -> HTMLResponse:
    members: list[tuple[StoredTrajectory, Side]] = [(one, side("", one, "-")) for one in stored]
    if not members:
        raise RlfError(f"run {run.record.id}: no trajectory of the question {task!r} is kept here.")
    values = {"run": run, "members": members, "task": task, "base": f"/runs/{run.record.id}/t"}
    return page(request, "members.html", f"{words} {task}", place="runs", words=words, **values)
