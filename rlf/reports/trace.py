"""Looking for trajectories, and at the tokens of one: who matches, and how likely each sampled token was."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, islice
from typing import TYPE_CHECKING

from rich.text import Text

from rlf.lineage.records import FoundCall, StoredTrajectory, TrajectoryFilter, TrajectorySummary
from rlf.lineage.text_index import all_text
from rlf.reports.sheets import MISSING, decimal, duration, text_table, visible
from rlf.reports.summary import pairs, read_changes
from rlf.types.trajectory import Trajectory

if TYPE_CHECKING:
    from rich.table import Table

    from rlf.lineage.reader import Reader

_MAX_QUESTION = 60
_BATCH = 64
_HEAT = ("green", "yellow", "dark_orange", "red", "bold red")
_HEAT_EDGES = (0.9, 0.5, 0.1, 0.01)
"""Probabilities: a token at least as likely as the first is green, one less likely than the last bold red."""


@dataclass(frozen=True, slots=True)
class TrajectoryMatch:
    """A trajectory that was looked for, with its question."""

    summary: TrajectorySummary
    question: str


def find(
    reader: Reader,
    run_id: str,
    wanted: TrajectoryFilter,
    text: str | None,
    limit: int,
    after: tuple[str, int, int] | None = None,
) -> list[TrajectoryMatch]:
    """The trajectories that match, whole ones only where a text is looked for in prompts, turns and results.

    Args:
        after: phase, step and position of the one behind which the wanted ones stand.
    """
    heads: Iterable[TrajectorySummary] = reader.trajectories(run_id, wanted)
    if after is not None:
        heads = list(islice(dropwhile(lambda head: (head.phase, head.step, head.k) != after, heads), 1, None))
    if text is not None:
        heads = reader.with_words(run_id, list(heads), text)
    matches = (
        TrajectoryMatch(summary, _read_question(stored))
        for summary, stored in _read_some(reader, run_id, list(heads), limit)
        if text is None or (stored is not None and text.lower() in all_text(stored).lower())
    )
    return list(islice(matches, limit))


def _read_some(
    reader: Reader, run_id: str, heads: Sequence[TrajectorySummary], number: int
) -> Iterator[tuple[TrajectorySummary, StoredTrajectory | None]]:
    """Each with its whole trajectory, of which a number is read at once."""
    number = max(1, min(number, _BATCH))
    for start in range(0, len(heads), number):
        some = heads[start : start + number]
        yield from zip(some, reader.wholes(run_id, some), strict=True)


def find_flipped(reader: Reader, run_id: str, limit: int) -> list[TrajectoryMatch]:
    """Held-out questions whose outcome changed from the first evaluation to the last, as they were tried last."""
    flipped = [
        pair.after
        for change in read_changes(reader, run_id)
        for pair in pairs(change)
        if pair.before.success != pair.after.success
    ]
    return [TrajectoryMatch(summary, _read_question(reader.whole(run_id, summary))) for summary in flipped[:limit]]


def _read_question(stored: StoredTrajectory | None) -> str:
    messages = () if stored is None else stored.scored.trajectory.task.messages
    text = " ".join(messages[-1].content.split()) if messages else ""
    return _cut_text(text)


def _cut_text(text: str) -> str:
    return text if len(text) <= _MAX_QUESTION else text[: _MAX_QUESTION - 1] + "…"


def matches_table(matches: Sequence[TrajectoryMatch]) -> Table:
    """Renders what was found."""
    header = ("phase", "step", "K", "ended", "turns", "calls", "reward", "advantage", "question")
    return text_table(header, map(_match_row, matches), left=("phase", "ended", "question"), wraps=header)


def _match_row(match: TrajectoryMatch) -> tuple[str, ...]:
    item = match.summary
    advantage = MISSING if item.advantage is None else f"{item.advantage:+.3f}"
    figures = (str(item.num_turns), str(item.num_calls), decimal(item.reward), advantage)
    return item.phase, str(item.step), str(item.k), item.stop, *figures, visible(match.question)


def calls_table(calls: Sequence[FoundCall]) -> Table:
    """Renders calls of tools with the trajectories that `rlf trace RUN K --phase PHASE --step STEP` shows."""
    header = ("phase", "step", "K", "turn", "tool", "outcome", "time", "arguments", "text")
    left = ("phase", "tool", "outcome", "arguments", "text")
    return text_table(header, map(_call_cells, calls), left=left, wraps=header)


def _call_cells(call: FoundCall) -> tuple[str, ...]:
    turn = f"{call.turn} > {call.inside}" if call.inside else str(call.turn)
    place = (call.phase, str(call.step), str(call.k), turn, visible(call.name), str(call.outcome))
    words = (json.dumps(dict(call.arguments), ensure_ascii=False), " ".join(call.text.split()))
    return *place, duration(call.run_s), *(visible(_cut_text(text)) for text in words)


def heated(trajectory: Trajectory, decode: Callable[[int], str]) -> list[Text]:
    """Each turn's sampled tokens, coloured by the sampler's probability of them; plain where none was recorded."""
    return [Text.assemble(*_heat_tokens(trajectory, turn.start, turn.end, decode)) for turn in trajectory.turns]


def _heat_tokens(
    trajectory: Trajectory, start: int, end: int, decode: Callable[[int], str]
) -> Iterator[tuple[str, str]]:
    for place in range(start, end):
        logprob = trajectory.rollout_logprobs[place]
        rank = sum(math.exp(logprob) < edge for edge in _HEAT_EDGES)
        yield visible(decode(trajectory.tokens[place])), "" if math.isnan(logprob) else _HEAT[rank]


def heat_legend() -> Text:
    """One line that explains the colours."""
    text = Text("        probability of a sampled token: ", "dim")
    words = [f"≥ {edge:g}" for edge in _HEAT_EDGES] + [f"< {_HEAT_EDGES[-1]:g}"]
    for word, style in zip(words, _HEAT, strict=True):
        text.append(f" {word} ", style)
    text.append("  plain: not recorded", "dim")
    return text
