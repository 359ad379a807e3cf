"""The end of a run for people: held-out success before and after, and the answers to one question before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from rlf.reports.change import (
    Change,
    Example,
    Shift,
    Trial,
    gained_pair,
    kind_interval,
    read_changes,
    read_example,
    shifts,
)
from rlf.reports.evaluation import interval_of, kinds_of
from rlf.reports.opening import ReadOpening, no_opening
from rlf.reports.quantities import MISSING, level, p_value, percent, percent_range, points, points_range, visible
from rlf.reports.sheets import plain_table
from rlf.reports.statistics import Estimate
from rlf.reports.trajectory import legend, trajectory_view

if TYPE_CHECKING:
    from rich.table import Table

    from rlf.lineage.reader import Reader

_EXAMPLE_LINES = 12


@dataclass(frozen=True, slots=True)
class Summary:
    """Results of a run's evaluations."""

    run_id: str
    changes: tuple[Change, ...]
    example: Example | None
    """A held-out question that failed before and succeeds after; None when there is none."""


def read_summary(reader: Reader, run_id: str) -> Summary:
    """Reads a run's summary from the lineage."""
    return summarize(reader, run_id, read_changes(reader, run_id))


def summarize(reader: Reader, run_id: str, changes: tuple[Change, ...]) -> Summary:
    """The summary of a run whose changes are read already."""
    pair = gained_pair(changes)
    return Summary(run_id, changes, None if pair is None else read_example(reader, run_id, pair))


def summary_view(
    summary: Summary, options: str = "", opening: ReadOpening = no_opening, below: str = ""
) -> RenderableType:
    """Renders a summary. Print it with `crop=False`: the commands in it are lines that must not be broken.

    Args:
        options: What the commands in it need beside the run, e.g. ` --runs elsewhere`.
        opening: Reads what the policy saw before the question.
        below: A line that stands under it; its sentence is not repeated.
    """
    return Group(change_view(summary, below), *example_parts(summary, options, opening))


def change_view(summary: Summary, verdict: str = "") -> RenderableType:
    """The effect of the run: a sentence for each mode, then the rates.

    Args:
        verdict: A line that stands above or below; its sentence is not repeated.
    """
    if not summary.changes:
        return Text("no evaluation yet", style="dim")
    found = shifts(summary.changes)
    parts: list[RenderableType] = [
        Text(words, "bold") for words in shift_lines(summary.changes, found) if words not in verdict
    ]
    parts += [_make_table(summary.changes, found), Text("in brackets: 95 % confidence intervals", style="dim")]
    return Group(*parts)


def example_parts(summary: Summary, options: str, opening: ReadOpening) -> Iterator[RenderableType]:
    """One question before and after, turn by turn; nothing where none was gained."""
    if summary.example is not None:
        yield from _show_first_example(summary.example, f"rlf runs show {summary.run_id}{options}", opening)


def _make_table(changes: Sequence[Change], found: Sequence[Shift | None]) -> Table:
    first = "held-out success"
    header = (first, _column_header("before", changes[0].before), _column_header("after", changes[0].after), "change")
    table = plain_table(header, left=(first,), wraps=())
    for change, shift in zip(changes, found, strict=True):
        for name, before, after in rate_rows(change):
            whole = not name.startswith("  ")
            style = _choose_colour(shift) if whole else "none"
            figures = (_show_rate(before), _show_rate(after), Text(difference_words(before.value, after.value), style))
            table.add_row(Text(visible(name)), *figures, style="bold" if whole else None)
    return table


def _choose_colour(shift: Shift | None) -> str:
    """Colour is a claim too: there is none where no change is shown."""
    if shift is None or not shift.finding.shown:
        return "none"
    return "green" if shift.finding.difference > 0 else "red"


def _column_header(word: str, trial: Trial | None) -> str:
    return word if trial is None else f"{word} (step {trial.evaluation.step})"


def rate_rows(change: Change) -> Iterator[tuple[str, Estimate, Estimate]]:
    """The mode's rows: all questions, each kind, pass@k."""
    before, after = change.before, change.after
    metrics = before.evaluation.metrics
    size = f", n = {metrics['num_questions']:.0f}" if "num_questions" in metrics else ""
    yield change.mode + size, _overall_success(before), _overall_success(after)
    for kind in sorted(kinds_of(metrics)):
        yield f"  {kind}", _of_kind(before, kind), _of_kind(after, kind)
    for name in sorted(name for name in metrics if name.startswith("pass@")):
        yield f"  {name}", Estimate(_metrics_of(before).get(name)), Estimate(_metrics_of(after).get(name))


def _overall_success(trial: Trial | None) -> Estimate:
    return Estimate(_metrics_of(trial).get("success"), interval_of(_metrics_of(trial)))


def _of_kind(trial: Trial | None, kind: str) -> Estimate:
    return (
        Estimate(None)
        if trial is None
        else Estimate(kinds_of(_metrics_of(trial)).get(kind), kind_interval(trial, kind))
    )


def _metrics_of(trial: Trial | None) -> Mapping[str, float]:
    return {} if trial is None else trial.evaluation.metrics


def _show_rate(rate: Estimate) -> Text:
    text = Text(percent(rate.value))
    return text if rate.interval is None else text.append(f" ({percent_range(*rate.interval)})", "not bold dim")


def difference_words(before: float | None, after: float | None) -> str:
    """`+6.1 points`."""
    return MISSING if before is None or after is None else points(after - before, signed=True)


def shift_lines(changes: Sequence[Change], found: Sequence[Shift | None]) -> Iterator[str]:
    """A sentence on each mode's change."""
    for change, shift in zip(changes, found, strict=True):
        if shift is not None:
            yield f"{change.mode}: {_shift_words(shift, len(changes))}"


def _shift_words(shift: Shift, num_modes: int) -> str:
    found, flipped = shift.finding, shift.flips
    low, high = found.interval
    if not found.shown:
        words = f"no change is shown ({points(found.difference, signed=True)}, "
    elif found.difference > 0:
        words = f"success rose by {points(found.difference)} ("
    else:
        words = f"success fell by {points(-found.difference)} ("
        low, high = -high, -low
    words += f"{level(found.confidence)} CI {points_range(low, high)}, n = {shift.num_questions}"
    if flipped is not None:
        words += f", {flipped.num_gained} gained, {flipped.num_lost} lost"
    return f"{words}, {p_value(found.p_adjusted)}{f' by Holm over {num_modes} modes' if num_modes > 1 else ''})"


def _show_first_example(example: Example, command: str, opening: ReadOpening) -> Iterator[RenderableType]:
    for title, stored in (("one held-out question, before", example.before), ("the same, after", example.after)):
        place = f"--phase {stored.summary.phase} --step {stored.summary.step} --trajectory {stored.summary.k}"
        yield Text()
        yield Rule(Text(title, "bold"), align="left", style="dim")
        yield trajectory_view(stored.scored, _EXAMPLE_LINES, opening=opening(stored.scored.trajectory))
        yield Text(f"{command} {place}", style="dim", no_wrap=True, overflow="ignore")
    yield legend()
