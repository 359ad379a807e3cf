"""Runs, their reports, trajectories and calls in the terminal."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.style import Style
from rich.table import Table
from rich.text import Text

from rlf.apps.look.trace import MAX_QUESTION, TrajectoryMatch
from rlf.cli.board import sparkline
from rlf.core import RlfError, nearest
from rlf.core.identity import short
from rlf.core.text import shorten
from rlf.lineage.records import FoundCall, Run
from rlf.reports.overview import FACTS, NAMES, Overview, elapsed_s
from rlf.reports.report import Report, origin_facts, shown_events, status_words, usage_sheets
from rlf.reports.sheets import (
    MISSING,
    counted,
    decimal,
    duration,
    label_grid,
    percent,
    sheet_table,
    text_table,
    visible,
)
from rlf.reports.summary import change_view, example_parts
from rlf.reports.trajectory import ReadOpening, no_opening
from rlf.reports.verdict import verdict_text
from rlf.types.events import RunStatus, is_gap
from rlf.types.trajectory import Trajectory

STATUS_STYLES = {
    RunStatus.RUNNING: "cyan",
    RunStatus.FINISHED: "green",
    RunStatus.FAILED: "red",
    RunStatus.INTERRUPTED: "yellow",
}

# A table of runs, a line each.

_HEADERS = {"run_id": "run", "spec": "name", "success": "held-out"}
"""Of columns that are not headed by their name."""
_GIVE_WAY = ("tags", "parent", "seed", "time", "step", "engine", "success", "status", "spec")
_WRAPPING = ("parent", "tags")
_PADDING = 2
_NUMBERS = ("step", "seed", "time", "success", "started")


def shown_columns(overviews: Sequence[Overview], wanted: str | None) -> list[str]:
    """The columns of a table: those named, by commas; else all that are short and say something.

    Raises:
        RlfError: there is no such name.
    """
    if wanted is None:
        named = ["run_id", "spec", "engine", "status", "step", "seed", "time", "success", "parent", "tags"]
        empty = {
            "engine": len({o.engine for o in overviews}) < 2,
            "parent": not any(o.parent_id for o in overviews),
            "tags": not any(o.tags for o in overviews),
        }
        return [name for name in named if not empty.get(name, False)]
    named = [name.strip() for name in wanted.split(",") if name.strip()]
    for name in named:
        if name not in NAMES:
            raise RlfError(f"--columns: unknown name {name!r}{nearest(name, list(NAMES))} (known: {', '.join(NAMES)}).")
    return named


def fitting_columns(
    overviews: Sequence[Overview], columns: Sequence[str], width: int, *, must_stay: bool = False
) -> dict[str, int | None]:
    """The columns that fit the screen: the least informative are left out first; ids, or all, always stay.

    Returns their widths; None for those that wrap, and where the screen is too narrow for the last one.
    """
    shown = {name: [cell_len(_cell_text(item, name)) for item in overviews] for name in columns}
    whole = {name: max(len(_HEADERS.get(name, name)), *widths) for name, widths in shown.items()}
    if sum(needed + _PADDING for needed in whole.values()) <= width:
        return dict(whole)
    if must_stay:
        return dict.fromkeys(columns)
    widths = {name: len(name) if name in _WRAPPING else needed for name, needed in whole.items()}
    for name in _GIVE_WAY:
        if sum(needed + _PADDING for needed in widths.values()) <= width:
            return {column: None if column in _WRAPPING else needed for column, needed in widths.items()}
        widths.pop(name, None)
    return dict.fromkeys(widths)


def render_overviews(overviews: Sequence[Overview], columns: Mapping[str, int | None]) -> Table | Text:
    """One line per run, in columns with their widths; rich's table, which takes far longer, where one has none."""
    widths = {name: width for name, width in columns.items() if width is not None}
    return _render_lines(overviews, widths) if len(widths) == len(columns) else _render_table(overviews, columns)


def _render_lines(overviews: Sequence[Overview], columns: Mapping[str, int]) -> Text:
    """Text whose pieces of one style lie together: rich takes time for each piece."""
    header = [_pad_cell(_HEADERS.get(name, name), name, width) for name, width in columns.items()]
    parts: list[str | tuple[str, str | Style]] = [("".join(header), "dim")]
    plain = ""
    for item in overviews:
        plain += "\n"
        for name, width in columns.items():
            padded = _pad_cell(_cell_text(item, name), name, width)
            if name == "status":
                parts += [plain, (padded, STATUS_STYLES[item.status])]
                plain = ""
            else:
                plain += padded
    return Text.assemble(*parts, plain, no_wrap=True)


def _pad_cell(text: str, name: str, width: int) -> str:
    blank, padding = " " * (width - cell_len(text)), " " * _PADDING
    return f"{blank}{text}{padding}" if name in _NUMBERS else f"{text}{blank}{padding}"


def _render_table(overviews: Sequence[Overview], columns: Mapping[str, int | None]) -> Table:
    """Columns without a width share what is left of the screen, and break."""
    table = Table(box=None, padding=(0, _PADDING, 0, 0), header_style="dim")
    for name, width in columns.items():
        justify: Literal["right", "left"] = "right" if name in _NUMBERS else "left"
        overflow: Literal["fold", "ellipsis"] = "fold" if name == "run_id" else "ellipsis"  # a cut id names no run
        no_wrap = name not in (*_WRAPPING, "run_id")
        table.add_column(_HEADERS.get(name, name), justify=justify, no_wrap=no_wrap, overflow=overflow, width=width)
    for item in overviews:
        style = STATUS_STYLES[item.status]
        table.add_row(*(Text(_cell_text(item, name), style if name == "status" else "") for name in columns))
    return table


def _cell_text(item: Overview, name: str) -> str:
    match name:
        case "success":
            return MISSING if item.evaluation is None else percent(FACTS["success"](item))
        case "time":
            return duration(elapsed_s(item.started, item.finished, item.status, item.idle_s))
        case "started":
            return time.strftime("%Y-%m-%d %H:%M", time.localtime(item.started))
        case "tags":
            return visible(" ".join(item.tags))
        case _:
            fact = FACTS[name](item)
            return "" if fact is None else visible(str(fact))


# A run in full.

_CURVE_WIDTH = 48


def report_view(report: Report, options: str = "", opening: ReadOpening = no_opening) -> RenderableType:
    """Renders a report, its result first and what it was made from last; to be printed as `summary_view` says."""
    title = Text(f"{visible(report.run.record.name)} · {report.run.record.id}", "bold")
    text = Text(visible(status_words(report.run)), overflow="fold")
    text.stylize(STATUS_STYLES[report.run.status], 0, len(report.run.status))
    parts: list[RenderableType] = [Rule(title, align="left", style="dim"), text]
    parts.append(verdict_text(report.verdict))
    parts += [change_view(report.summary, report.verdict.line), Text()]
    parts.append(label_grid(_show_course(report)))
    for sheet in usage_sheets(report):
        parts += [Text(), sheet_table(sheet)]
    parts += [*example_parts(report.summary, options, opening), Text()]
    return Group(*parts, label_grid(_show_origin(report.run, options)))


def _show_origin(run: Run, options: str) -> Iterator[tuple[str, Text]]:
    """The origin of the run."""
    for label, words in origin_facts(run):
        yield label, Text(visible(words), overflow="fold")
    files = counted(len(run.record.files), "file")
    yield "made from", Text(f"{files}: rlf runs show {run.record.id} --lineage{options}", no_wrap=True)


def _show_course(report: Report) -> Iterator[tuple[str, Text]]:
    """How training went."""
    for label, name in (("success", "success"), ("reward", "reward/mean")):
        values = [step.metrics[name] for step in report.steps if name in step.metrics]
        if values:
            yield label, _show_curve(values, unit=name == "success")
    for name in sorted({name for step in report.steps for name in step.metrics if is_gap(name)}):
        values = [step.metrics[name] for step in report.steps if name in step.metrics]
        yield "gap", _show_curve(values, unit=True, best=min).append(f"  {name.removeprefix('gap/')}", "dim")
    if report.checkpoints:
        newest = report.checkpoints[-1]
        yield "checkpoint", Text(f"step {newest.step}: {visible(newest.path)}", overflow="fold")
    for change in report.changes:
        what = f"after step {change.step}: {change.role} {change.path}: {short(change.old_sha256)}"
        yield "changed", Text(visible(f"{what} → {short(change.sha256)}"), "yellow", overflow="fold")
    for note in report.notes:
        yield "note", Text(visible(note.text), overflow="fold")
    for event in shown_events(report.events):
        yield event.level, Text(visible(event.text), overflow="fold")


def _show_curve(values: Sequence[float], *, unit: bool, best: Callable[[Sequence[float]], float] = max) -> Text:
    """First and last value of a curve around its drawing."""
    low, high = (0.0, 1.0) if unit else (None, None)
    first, last = (percent(value) if unit else decimal(value) for value in (values[0], values[-1]))
    text = Text(f"{first} ", no_wrap=True).append(sparkline(values, _CURVE_WIDTH, low, high), "green")
    return text.append(f" {last}", "bold").append(
        f"  best {percent(best(values)) if unit else decimal(best(values))}", "dim"
    )


# Trajectories and calls that were looked for, and the tokens of one by their probability.

_HEAT = ("green", "yellow", "dark_orange", "red", "bold red")
_HEAT_EDGES = (0.9, 0.5, 0.1, 0.01)
"""Probabilities: a token at least as likely as the first is green, one less likely than the last bold red."""


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
    return *place, duration(call.run_s), *(visible(shorten(text, MAX_QUESTION)) for text in words)


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
