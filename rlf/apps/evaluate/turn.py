"""`rlf why RUN K --turn T`: what the parts of one turn were worth: its result, its call, each argument.

The beginning of the trajectory is kept, one part is left out or is another one that the run has seen, and the
run's model plays on. A part is worth how the share of right ends differs from that of the turn as it was.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rlf.apps.evaluate.branches import BranchPoint, find_trajectory, play_points
from rlf.apps.evaluate.findings import Findings
from rlf.apps.evaluate.why import CONFIDENCE, change_of, right_share, show_turn
from rlf.chat.format import ChatFormat
from rlf.core.errors import RlfError
from rlf.core.plain_json import Jsonable
from rlf.lineage.records import StoredTrajectory, TrajectoryFilter
from rlf.reports.sheets import Sheet, percent, points, points_range
from rlf.reports.statistics import Interval
from rlf.rollout.rollout import Prefix
from rlf.rollout.signal import quote
from rlf.runs.place import open_reader
from rlf.types import ToolCall, Trajectory, Turn
from rlf.types.trajectory import CallRecord

_MOST_READ = 400
"""Trajectories of the run in which other calls are looked for."""


class Change(NamedTuple):
    """A turn in which one part is another."""

    part: str
    instead: str
    """For people."""
    point: BranchPoint


@dataclass(frozen=True, slots=True)
class PartWorth:
    """What one part of the turn changed."""

    part: str
    instead: str
    """What was there in its place."""
    share: float
    """Of right continuations with that."""
    worth: Interval
    """Of the share with the turn as it was less this one, wide enough for all parts together."""
    branches: str
    """The evaluation with these continuations."""

    @property
    def matters(self) -> bool:
        """Whether it differs beyond chance."""
        return self.worth.low > 0 or self.worth.high < 0


@dataclass(frozen=True, slots=True)
class TurnExplanation(Jsonable):
    """What the parts of a turn were worth."""

    of: BranchPoint
    target: str
    """The model that played the continuations: `RUN@STEP`."""
    text: str
    """Its calls."""
    num_samples: int
    share: float
    """Of right continuations of the turn as it was."""
    branches: str
    parts: tuple[PartWorth, ...]
    unknown: tuple[str, ...]
    """Parts of which it cannot say anything, and why."""


def explain_turn(
    point: BranchPoint, num_samples: int, *, at: str | None = None, runs_folder: Path, command: Sequence[str]
) -> TurnExplanation:
    """Plays continuations of a turn as it was, and of the same turn with each part another one.

    Args:
        point: the trajectory; its `turn` is the one that is looked at, from 1.

    Raises:
        RlfError: there is no such trajectory, turn or model, or the turn makes no call.
    """
    run_id, stored = find_trajectory(point, runs_folder)
    trajectory, point = stored.scored.trajectory, replace(point, run=run_id)
    known = [turn for turn in Prefix.choices(trajectory) if turn and trajectory.turns[turn - 1].calls]
    if point.turn not in known:
        raise RlfError(
            f"--turn: got {point.turn}; expected a turn with a call and its result, of which there are "
            f"{', '.join(map(str, known)) or 'none'}. Name one of them, or leave the option out."
        )
    others = _read_others(stored, run_id, runs_folder)
    changes, unknown = list[Change](), list[str]()

    def choose(chat: ChatFormat) -> list[BranchPoint]:
        changes.extend(find_turn_changes(trajectory, point, others, chat, unknown.append))
        return [point, *(change.point for change in changes)]

    whole, *played = play_points(run_id, choose, stored, num_samples, at=at, runs_folder=runs_folder, command=command)
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(changes))
    share = right_share(whole, confidence)
    parts = []
    for change, branches in zip(changes, played, strict=True):
        other = right_share(branches, confidence)
        parts.append(PartWorth(change.part, change.instead, other[0], change_of(other, share), branches.run_id))
    turn = trajectory.turns[point.turn - 1]
    return TurnExplanation(
        point, whole.target, show_turn(turn), num_samples, share[0], whole.run_id, tuple(parts), tuple(unknown)
    )


def _read_others(stored: StoredTrajectory, run_id: str, runs_folder: Path) -> list[Trajectory]:
    """Other trajectories of the run: those of the same task first, then those of the nearest steps."""
    head = stored.summary
    with open_reader(runs_folder) as reader:
        heads = [one for one in reader.trajectories(run_id, TrajectoryFilter(phase=head.phase)) if one != head]
        heads.sort(key=lambda one: (one.task_id != head.task_id, abs(one.step - head.step)))
        found = reader.wholes(run_id, heads[:_MOST_READ])
        return [one.scored.trajectory for one in found if one is not None]


def find_turn_changes(
    trajectory: Trajectory,
    point: BranchPoint,
    others: Sequence[Trajectory],
    chat: ChatFormat,
    note: Callable[[str], None],
) -> Iterator[Change]:
    """The turn with each of its parts left out, and with another one in its place.

    Args:
        point: its turn, as it was.
        others: the nearest first, whose calls and results may take the place of these.
        note: takes a line for each part that cannot be another.
    """
    turn = trajectory.turns[point.turn - 1]
    before = replace(point, turn=point.turn - 1)
    numbers = [f" (call {at + 1})" if len(turn.calls) > 1 else "" for at in range(len(turn.calls))]
    for at, record in enumerate(turn.calls):
        name = f"result of {record.call.name}{numbers[at]}"
        if trajectory.world is not None:
            note(f"{name}: the state of the world depends on it")
        else:
            yield Change(name, "an empty one", replace(point, call=at, observation=""))
            made = (one.result for one in _calls(record.call.name, others) if one.result.outcome == "ok")
            if (text := next((one.text for one in made if one.text != record.result.text), None)) is not None:
                yield Change(name, quote(text), replace(point, call=at, observation=text))
            else:
                note(f"{name}: no other call of {record.call.name} gave another")
    yield Change("turn", "sampled again", before)
    if (another := _another_turn(turn, point.turn - 1, others)) is not None:
        yield Change("turn", show_turn(another), replace(before, sampled=another.text))
    reader = chat.after(trajectory.tokens[: turn.start])
    for at, record in enumerate(turn.calls):
        call = f"{record.call.name}{numbers[at]}"
        for name, instead, arguments in _other_arguments(record.call, others, chat):
            calls = [one.call for one in turn.calls]
            calls[at] = ToolCall(record.call.name, arguments)
            text = rewrite(reader, turn, at, calls)
            if text is None:
                note(f"argument {name} of {call}: the call cannot be written in place of this one")
            else:
                yield Change(f"argument {name} of {call}", instead, replace(before, sampled=text))


def _calls(tool: str, others: Sequence[Trajectory]) -> Iterator[CallRecord]:
    return (one for other in others for one in other.calls if one.call.name == tool)


def _another_turn(turn: Turn, place: int, others: Sequence[Trajectory]) -> Turn | None:
    """The most frequent turn with other calls at the same place, of the same task where there is one."""
    own = [one.call for one in turn.calls]
    task = [other for other in others if other.task == others[0].task]
    for found in (task, others):
        turns = [other.turns[place] for other in found if len(other.turns) > place]
        texts = Counter(one.text for one in turns if one.calls and [call.call for call in one.calls] != own)
        if texts:
            text = texts.most_common(1)[0][0]
            return next(one for one in turns if one.text == text)
    return None


def _other_arguments(
    call: ToolCall, others: Sequence[Trajectory], chat: ChatFormat
) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """For each argument: its name, what is in its place, and all arguments then."""
    schema = next((tool.input_schema for tool in chat.tools if tool.name == call.name), {})
    for name, value in call.arguments.items():
        rest = {key: one for key, one in call.arguments.items() if key != name}
        if name not in schema.get("required", ()):
            yield name, "left out", rest
        seen = (one.call.arguments[name] for one in _calls(call.name, others) if name in one.call.arguments)
        if (other := next((one for one in seen if one != value), None)) is not None:
            yield name, quote(str(other)), {**call.arguments, name: other}


def rewrite(chat: ChatFormat, turn: Turn, at: int, calls: Sequence[ToolCall]) -> str | None:
    """The turn's text with one call another, as the format reads it back; None where it cannot be written so."""
    old, new = turn.calls[at].call, calls[at]
    try:
        pairs = [(chat.write_call(old), chat.write_call(new))]
    except RlfError:
        return None
    for name, value in old.arguments.items():
        if name in new.arguments and new.arguments[name] != value:
            pairs.append((json.dumps(value, ensure_ascii=False), json.dumps(new.arguments[name], ensure_ascii=False)))
            pairs.append((str(value), str(new.arguments[name])))
    for before, after in pairs:
        if turn.text.count(before) == 1:
            text = turn.text.replace(before, after)
            if list(chat.parse(text, truncated=False).calls) == list(calls):
                return text
    return None


def show_turn_explanation(found: TurnExplanation) -> Findings:
    """For people."""
    of = found.of
    title = f"turn {of.turn} of {of.phase} {of.step}, {of.k} of {of.run}"
    return Findings(title, [_sheet(found)], list(_lines(found)))


def _sheet(found: TurnExplanation) -> Sheet:
    note = f"shares of {found.num_samples} continuations by {found.target}; 95 %, all parts together"
    rows = tuple(
        (
            one.part,
            one.instead,
            percent(one.share),
            f"{points(found.share - one.share, signed=True)} ({points_range(one.worth.low, one.worth.high)})",
        )
        for one in found.parts
    )
    return Sheet(f"Turn {found.of.turn}: {found.text}", note, ("part", "in its place", "right then", "worth"), rows)


def _lines(found: TurnExplanation) -> Iterator[str]:
    yield f"as it was, {percent(found.share)} of its continuations are right"
    if not any(one.matters for one in found.parts):
        yield "cannot say that any part matters: no change is beyond chance"
    yield from (f"{one.part} matters: {percent(one.share)} with {one.instead}" for one in found.parts if one.matters)
    yield from (f"cannot say: {line}" for line in found.unknown)
