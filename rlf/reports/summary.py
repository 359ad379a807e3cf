"""The end of a run for people: success on held-out questions before and after, and one question told twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from rlf.reports.change import Change, Example, Trial, flips, gained_pair, kind_interval, read_changes, read_example
from rlf.reports.evaluation import interval_of, kinds_of
from rlf.reports.quantities import MISSING, p_value, percent, percent_range, visible
from rlf.reports.statistics import Interval
from rlf.reports.trajectory import legend, trajectory_view

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader

_EXAMPLE_LINES = 12


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run's evaluations come to."""

    run_id: str
    changes: tuple[Change, ...]
    example: Example | None
    """A held-out question that failed before and succeeds after; None when there is none."""


def read_summary(reader: Reader, run_id: str) -> Summary:
    """Reads a run's summary from the lineage."""
    changes = read_changes(reader, run_id)
    pair = gained_pair(changes)
    return Summary(run_id, changes, None if pair is None else read_example(reader, run_id, pair))


def summary_view(summary: Summary, options: str = "") -> RenderableType:
    """Renders a summary. Print it with `crop=False`: the commands in it are lines that must not be broken.

    Args:
        options: What the commands in it need beside the run, e.g. ` --runs elsewhere`.
    """
    if not summary.changes:
        return Text("no evaluation yet", style="dim")
    parts: list[RenderableType] = [_table(summary.changes), *_flip_lines(summary.changes)]
    if summary.example is not None:
        parts += _example(summary.example, f"rlf runs show {summary.run_id}{options}")
    return Group(*parts)


def _table(changes: Sequence[Change]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("held-out success", no_wrap=True)
    for header in (_header("before", changes[0].before), _header("after", changes[0].after), "change"):
        table.add_column(header, justify="right", no_wrap=True)
    for change in changes:
        for name, before, after in _rows(change):
            figures = (_rate(before), _rate(after), _difference(before.share, after.share))
            table.add_row(Text(visible(name)), *figures, style=None if name.startswith("  ") else "bold")
    return table


def _header(word: str, trial: Trial | None) -> str:
    return word if trial is None else f"{word} (step {trial.evaluation.step})"


@dataclass(frozen=True, slots=True)
class _Rate:
    share: float | None
    interval: Interval | None = None


def _rows(change: Change) -> Iterator[tuple[str, _Rate, _Rate]]:
    """The mode's rows: all questions, each kind, pass@k."""
    before, after = change.before, change.after
    metrics = before.evaluation.metrics
    size = f", n = {metrics['num_questions']:.0f}" if "num_questions" in metrics else ""
    yield change.mode + size, _overall(before), _overall(after)
    for kind in sorted(kinds_of(metrics)):
        yield f"  {kind}", _of_kind(before, kind), _of_kind(after, kind)
    for name in sorted(name for name in metrics if name.startswith("pass@")):
        yield f"  {name}", _Rate(_metrics(before).get(name)), _Rate(_metrics(after).get(name))


def _overall(trial: Trial | None) -> _Rate:
    return _Rate(_metrics(trial).get("success"), interval_of(_metrics(trial)))


def _of_kind(trial: Trial | None, kind: str) -> _Rate:
    return _Rate(None) if trial is None else _Rate(kinds_of(_metrics(trial)).get(kind), kind_interval(trial, kind))


def _metrics(trial: Trial | None) -> Mapping[str, float]:
    return {} if trial is None else trial.evaluation.metrics


def _rate(rate: _Rate) -> Text:
    text = Text(percent(rate.share))
    return text if rate.interval is None else text.append(f" ({percent_range(*rate.interval)})", "not bold dim")


def _difference(before: float | None, after: float | None) -> Text:
    if before is None or after is None:
        return Text(MISSING, "dim")
    points = 100 * (after - before)
    return Text(f"{points:+.1f} points", "green" if points > 0 else "red" if points < 0 else "dim")


def _flip_lines(changes: Sequence[Change]) -> Iterator[Text]:
    yield Text("in brackets: 95 % confidence intervals", style="dim")
    for change in changes:
        flipped = flips(change)
        if flipped is not None:
            words = f"{flipped.num_gained} gained, {flipped.num_lost} lost of {flipped.num_questions} questions"
            yield Text(f"{change.mode}: {words} (exact McNemar test, {p_value(flipped.p)})", style="dim")


def _example(example: Example, command: str) -> Iterator[RenderableType]:
    for title, stored in (("one held-out question, before", example.before), ("the same, after", example.after)):
        place = f"--phase {stored.summary.phase} --step {stored.summary.step} --trajectory {stored.summary.k}"
        yield Text()
        yield Rule(Text(title, "bold"), align="left", style="dim")
        yield trajectory_view(stored.scored, _EXAMPLE_LINES)
        yield Text(f"{command} {place}", style="dim", no_wrap=True, overflow="ignore")
    yield legend()
