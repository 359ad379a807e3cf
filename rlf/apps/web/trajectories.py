"""Trajectories as a page shows them: a list by cursor, one in full, its tokens, the answers to one question."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Select, select, tuple_

from rlf.core.errors import RlfError
from rlf.core.registry import load_function
from rlf.lineage import tables
from rlf.lineage.calls import read_asked
from rlf.lineage.reader import Reader
from rlf.lineage.records import (
    BRANCH_SECTION,
    EVALUATION,
    RunLine,
    StoredTrajectory,
    TrajectoryFilter,
    TrajectoryLine,
    TrajectorySummary,
)
from rlf.lineage.values import AnyRow, filter_conditions, find_row, summary
from rlf.reports.pages.chart import Chart, Line
from rlf.reports.pages.render import Side, side
from rlf.reports.statistics import wilson_interval
from rlf.runs.trajectories import Openings
from rlf.types.trajectory import Trajectory

_WINDOW = 16
"""Tokens before a piece that are decoded with it: more than one character ever takes."""
_BROKEN = "\ufffd"


class TrajectoryOrder(StrEnum):
    """In which order trajectories are listed."""

    PLACE = "place"
    """By phase, step and position."""
    WORST = "reward"
    """By reward, the lowest first; those without one are left out."""
    BEST = "advantage"
    """By advantage, the highest first; those without one are left out."""


def token_texts(openings: Openings, trajectory: Trajectory) -> list[str]:
    """One text per token; empty for all of them where the tokenizer is not on this machine.

    A character that several tokens make stands with the last of them.
    """
    decode = openings.plain_decoder
    if decode is None:
        return [""] * len(trajectory.tokens)
    return openings.redactor.pieces(list(_split_pieces(trajectory.tokens, decode)))


def _split_pieces(tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> Iterator[str]:
    start, given = 0, ""
    for end in range(1, len(tokens) + 1):
        text = decode(tokens[start:end])
        if text.endswith(_BROKEN) and end < len(tokens) and end - start < _WINDOW:
            yield ""
            continue
        yield text[len(given) :]
        start, given = _next_window(tokens, start, end, text, decode)


def _next_window(
    tokens: Sequence[int], start: int, end: int, text: str, decode: Callable[[Sequence[int]], str]
) -> tuple[int, str]:
    """Where decoding continues, and what was returned already: windows keep a decode short."""
    if end - start < _WINDOW:
        return start, text
    return end - 1, decode(tokens[end - 1 : end])


_MAX_SIDES = 64
"""Answers to one question that are read whole."""
_MAX_WALKED = 500
"""Trajectories with a text that are looked through for the neighbours of one."""


@dataclass(frozen=True, slots=True)
class TrajectoryList:
    """Which trajectories a list has."""

    wanted: TrajectoryFilter
    order: TrajectoryOrder = TrajectoryOrder.PLACE
    """Of a list without a text."""
    text: str = ""
    """In prompt, turns or results."""
    flipped: bool = False
    """Only held-out questions whose outcome changed from the first evaluation to the last, as they were tried last."""


@dataclass(frozen=True, slots=True)
class TrajectoryPage:
    """Some of a run's trajectories."""

    run: RunLine
    rows: tuple[TrajectoryLine, ...]
    next: str | None
    """Place of the one behind which the next page begins; None on the last one."""


@dataclass(frozen=True, slots=True)
class TrajectoryView:
    """One trajectory with its neighbours and its group."""

    run: RunLine
    stored: StoredTrajectory
    side: Side
    """It as texts, turn by turn, with the system prompt and the declarations of tools."""
    group: tuple[TrajectorySummary, ...]
    """All answers to its question in the same step or evaluation, by sample."""
    previous: str | None
    """Place of the one before it in the list that it was opened from."""
    next: str | None


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a trajectory."""

    position: int
    id: int
    text: str
    """What it adds to the text; empty for a part of a character that a later one completes."""
    sampled: bool
    """Whether the policy sampled it, so that it is in the loss."""
    logprob: float | None
    """Of the sampler, natural; None where none was recorded."""
    turn: int | None
    """From 1: the turn that it was sampled in, or that it answers; None before the first."""


@dataclass(frozen=True, slots=True)
class TokenPage:
    """Some tokens of a trajectory."""

    num_tokens: int
    num_sampled: int
    tokens: tuple[Token, ...]
    is_decoded: bool
    """Whether the tokenizer is on this machine; texts are empty without it."""


@dataclass(frozen=True, slots=True)
class QuestionAnswers:
    """Answers to one question, whole and side by side."""

    run: RunLine
    task_id: str
    question: str
    gold: str
    sides: tuple[Side, ...]
    summaries: tuple[TrajectorySummary, ...]
    """Aligned with `sides`."""


def place_of(summary: TrajectorySummary) -> str:
    """`train/5/3`: phase, step and position."""
    return f"{summary.phase}/{summary.step}/{summary.k}"


def parse_place(text: str) -> tuple[str, int, int]:
    """Phase, step and position. Raises RlfError where it is no place."""
    phase, *numbers = text.split("/")
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        raise RlfError(f"after: got {text[:80]!r}; expected PHASE/STEP/K. Send what `next` was.")
    return phase, int(numbers[0]), int(numbers[1])


def page_trajectories(
    reader: Reader, name: str, listed: TrajectoryList, after: str | None, limit: int
) -> TrajectoryPage:
    """The trajectories of a list, a page at a time."""
    run = _read_run_line(reader, name)
    rows = _read_page(reader, run.id, listed, None if after is None else parse_place(after), limit + 1)
    following = place_of(rows[limit - 1].summary) if len(rows) > limit else None
    return TrajectoryPage(run, tuple(rows[:limit]), following)


def _read_page(
    reader: Reader, run_id: str, listed: TrajectoryList, after: tuple[str, int, int] | None, limit: int
) -> Sequence[TrajectoryLine]:
    if not listed.text and not listed.flipped:
        return read_page(reader, run_id, listed.wanted, listed.order, after, limit)
    if listed.text:
        found = load_function("apps.look.trace:find")(reader, run_id, listed.wanted, listed.text, limit, after)
    else:
        found = load_function("apps.look.trace:find_flipped")(reader, run_id, limit) if after is None else []
    return [TrajectoryLine(match.summary, match.question) for match in found]


def read_trajectory(
    reader: Reader,
    name: str,
    place: tuple[str, int, int],
    openings: Callable[[str], Openings],
    listed: TrajectoryList | None = None,
) -> TrajectoryView:
    """One trajectory.

    Args:
        openings: of a run, which reads what its policy saw before a question.
        listed: the list in which it has neighbours; None: its step or evaluation.
    """
    run = _read_run_line(reader, name)
    phase, step, k = place
    stored = reader.trajectory(run.id, k=k, step=step, phase=phase)
    found = stored.summary
    group = reader.trajectories(run.id, TrajectoryFilter(phase=phase, step=step, task_id=found.task_id))
    before, behind = _find_neighbours(
        reader, run.id, listed or TrajectoryList(TrajectoryFilter(phase=phase, step=step)), place
    )
    return TrajectoryView(
        run=run,
        stored=stored,
        side=side(found.trajectory_id, stored, openings(run.id)(stored.scored.trajectory)),
        group=tuple(sorted(group, key=lambda one: one.sample_index)),
        previous=None if before is None else place_of(before),
        next=None if behind is None else place_of(behind),
    )


def _find_neighbours(
    reader: Reader, run_id: str, listed: TrajectoryList, place: tuple[str, int, int]
) -> tuple[TrajectorySummary | None, TrajectorySummary | None]:
    """Those before and behind a trajectory in a list; None where it is the first, the last or not in it."""
    if not listed.text and not listed.flipped:
        return _query_neighbours(reader, run_id, listed.wanted, place)
    heads = [row.summary for row in _read_page(reader, run_id, listed, None, _MAX_WALKED)]
    at = next((number for number, head in enumerate(heads) if (head.phase, head.step, head.k) == place), None)
    if at is None:
        return None, None
    return heads[at - 1] if at else None, heads[at + 1] if at + 1 < len(heads) else None


def read_tokens(
    reader: Reader, name: str, place: tuple[str, int, int], openings: Callable[[str], Openings], begin: int, end: int
) -> TokenPage:
    """The tokens of a trajectory from one position to another, with what is known of each."""
    run_id = reader.get_run(name).record.id
    phase, step, k = place
    trajectory = reader.trajectory(run_id, k=k, step=step, phase=phase).scored.trajectory
    opened = openings(run_id)
    texts = token_texts(opened, trajectory)
    tokens = [
        Token(
            position=at,
            id=trajectory.tokens[at],
            text=texts[at],
            sampled=trajectory.action_mask[at],
            logprob=trajectory.rollout_logprobs[at] if trajectory.action_mask[at] else None,
            turn=next(
                (number for number, turn in enumerate(trajectory.turns, 1) if turn.start <= at < turn.observation_end),
                None,
            ),
        )
        for at in range(begin, min(end, len(trajectory.tokens)))
    ]
    return TokenPage(len(trajectory.tokens), trajectory.num_sampled, tuple(tokens), opened.decoder is not None)


def read_answers(
    reader: Reader, name: str, task_id: str, openings: Callable[[str], Openings], step: int | None, phase: str | None
) -> QuestionAnswers:
    """The answers to a question: those of one step or evaluation, or the first of each evaluation of the run."""
    run = _read_run_line(reader, name)
    found = reader.trajectories(run.id, TrajectoryFilter(task_id=task_id, step=step, phase=phase, limit=1000))
    if not found:
        raise RlfError(f"run {run.id}: no answer to {task_id!r} there. The list of its trajectories names the tasks.")
    chosen = [one for one in found if step is not None or one.sample_index == 0][:_MAX_SIDES]
    whole = zip(chosen, reader.wholes(run.id, chosen), strict=True)
    read = [(one, stored) for one, stored in whole if stored is not None]
    opened = openings(run.id)
    sides = [side(place_of(one), stored, opened(stored.scored.trajectory)) for one, stored in read]
    messages = read[0][1].scored.trajectory.task.messages if read else ()
    question = messages[-1].content if messages else ""
    gold = found[0].gold if isinstance(found[0].gold, str) else json.dumps(found[0].gold, ensure_ascii=False)
    return QuestionAnswers(run, task_id, question, gold, tuple(sides), tuple(one for one, _ in read))


def _read_run_line(reader: Reader, name: str) -> RunLine:
    return reader.run_lines(run_id=reader.get_run(name).record.id)[0]


@dataclass(frozen=True, slots=True)
class BranchLine:
    """Branches of a trajectory that are in the lineage."""

    run_id: str
    turn: int
    change: str
    """What was another in its last turns; empty: nothing."""
    num_played: int
    success: float | None


def find_branches(reader: Reader, run_id: str, place: tuple[str, int, int]) -> list[BranchLine]:
    """The branches of a trajectory, newest first."""
    ids = [line.id for line in reader.run_lines(parent_id=run_id) if line.engine == EVALUATION]
    found = list[BranchLine]()
    for run in reader.list_runs(ids) if ids else ():
        of: dict[str, Any] | None = run.record.plan.get(BRANCH_SECTION)
        if of is None or (of["phase"], of["step"], of["k"]) != place:
            continue
        for one in reader.evaluations(run.record.id):
            num = len(reader.trajectories(run.record.id))
            change = "result" if of["observation"] is not None else "call" if of.get("sampled") is not None else ""
            found.append(BranchLine(run.record.id, of["turn"], change, num, one.metrics.get("success")))
    return found


def branch_charts(branches: Sequence[BranchLine]) -> list[Chart]:
    """The chance of success after each turn, as `rlf why` and `rlf runs branch` found it; none for fewer than two."""
    newest: dict[int, BranchLine] = {}
    for one in branches:
        if not one.change and one.success is not None:
            newest.setdefault(one.turn, one)
    if len(newest) < 2:
        return []
    shares = {turn: (one.success or 0.0, one.num_played) for turn, one in sorted(newest.items())}
    band = tuple((float(turn), *wilson_interval(round(share * num), num)) for turn, (share, num) in shares.items())
    line = Line("success", 0, tuple((float(turn), share) for turn, (share, _) in shares.items()), band)
    return [Chart("Chance of success, by turns that are kept", (line,), share=True)]


def read_page(
    reader: Reader,
    run_id: str,
    wanted: TrajectoryFilter,
    order: TrajectoryOrder,
    after: tuple[str, int, int] | None,
    limit: int,
) -> list[TrajectoryLine]:
    """Trajectories from behind one on, with their questions; `limit` of the filter is not looked at.

    Args:
        after: phase, step and position of the one before the first that is wanted.
    """
    table = tables.trajectories
    query = select(table).where(table.c.run_id == run_id, *filter_conditions(wanted))
    with reader.store.read() as connection:
        last = None if after is None else find_row(connection, run_id, after[2], after[1], after[0])
        return read_asked(connection, connection.execute(_order_query(query, order, last).limit(limit)).all())


def _order_query(query: Select[Any], order: TrajectoryOrder, last: AnyRow | None) -> Select[Any]:
    """A query in an order, from behind a row on: by key, so that late pages cost what early ones do."""
    columns = tables.trajectories.c
    if order is TrajectoryOrder.PLACE:
        key = (columns.phase, columns.step, columns.k)
        behind = None if last is None else tuple_(*key) > tuple_(last.phase, last.step, last.k)
        return (query if behind is None else query.where(behind)).order_by(*key)
    by = columns[order.value]
    query = query.where(by.is_not(None))
    if last is not None:
        value = getattr(last, order.value)
        further = by > value if order is TrajectoryOrder.WORST else by < value
        query = query.where(further | ((by == value) & (columns.id > last.id)))
    return query.order_by(by if order is TrajectoryOrder.WORST else by.desc(), columns.id)


def _query_neighbours(
    reader: Reader, run_id: str, wanted: TrajectoryFilter, place: tuple[str, int, int]
) -> tuple[TrajectorySummary | None, TrajectorySummary | None]:
    """The trajectories before and behind a place among those that a filter wants."""
    table = tables.trajectories
    key, here = tuple_(table.c.phase, table.c.step, table.c.k), tuple_(*place)
    query = select(table).where(table.c.run_id == run_id, *filter_conditions(wanted)).limit(1)
    order = (table.c.phase, table.c.step, table.c.k)
    with reader.store.read() as connection:
        before = connection.execute(query.where(key < here).order_by(*(one.desc() for one in order))).first()
        behind = connection.execute(query.where(key > here).order_by(*order)).first()
    return (None if before is None else summary(before), None if behind is None else summary(behind))
