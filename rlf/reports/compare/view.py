"""A comparison in the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rlf.lineage.records import StoredTrajectory
from rlf.reports.compare.arms import Arm
from rlf.reports.compare.comparison import Comparison, title_of
from rlf.reports.compare.examples import Example, first_of_each
from rlf.reports.compare.flips import FlipRow, KindRows, flip_matrix, turn_words
from rlf.reports.compare.sheets import sheets
from rlf.reports.opening import ReadOpening, no_opening
from rlf.reports.power import power_words
from rlf.reports.quantities import percent, visible
from rlf.reports.sheets import Sheet, plain_table
from rlf.reports.sparkline import sparkline
from rlf.reports.trajectory import trajectory_view

_CURVE_WIDTH = 48
_EXAMPLE_LINES = 8
_MAX_QUESTIONS = 20
"""Rows of questions in the terminal, over all kinds; the page has every one."""
_MAX_CELL = 72
"""Characters of a cell."""


def comparison_view(
    found: Comparison,
    examples: Sequence[Example] = (),
    num_shown: int = 0,
    openings: Mapping[str, ReadOpening] | None = None,
) -> RenderableType:
    """Renders a comparison: verdicts, results, curves, questions, and last what the arms are made of.

    Args:
        examples: Questions that came out differently, whole.
        num_shown: Of these for each arm, those shown turn by turn.
        openings: Reads what an arm's policy saw before the question, by the arm's letter.
    """
    tables = sheets(found)
    parts: list[RenderableType] = [Text(title_of(found), "dim")]
    parts += [Text(words, "bold") for words in found.verdicts]
    if found.power is not None:
        parts.append(Text(power_words(found.power), "dim"))
    parts.append(Text())
    for sheet in tables.results:
        parts += [_show_table(sheet), Text()]
    parts += _show_curves(found)
    parts += _show_questions(found, examples)
    for example in first_of_each(examples, num_shown):
        parts += [_show_example(example, openings or {}), Text()]
    for sheet in tables.origins:
        parts += [_show_table(sheet), Text()]
    return Group(*parts[:-1])


def _show_questions(found: Comparison, examples: Sequence[Example]) -> Iterator[RenderableType]:
    """The flips by kind, then by question; nothing where there are none."""
    kinds = [one for one in flip_matrix(found, examples) if any((*one.gained, *one.lost))]
    if not kinds:
        return
    first, last = "kind and question", "first difference"
    header = (first, *(arm.letter for arm in found.arms), last)
    table = plain_table(header, left=(first, last), title="questions with different outcomes")
    table.columns[0].ratio = 1
    num_rows = max(3, _MAX_QUESTIONS // len(kinds))
    for one in kinds:
        table.add_row(*_kind_cells(one), style="bold")
        flipped = [row for row in one.rows if row.flipped]
        for row in flipped[:num_rows]:
            table.add_row(*_row_cells(row))
        if len(flipped) > num_rows:
            table.add_row(f"  … {len(flipped) - num_rows} more", style="dim")
    yield table
    yield Text()


def _kind_cells(one: KindRows) -> Iterator[Text]:
    yield Text(f"{visible(one.kind) or 'all'}, {len(one.rows)} questions")
    pairs = zip(one.gained, one.lost, strict=True)
    yield from (Text("" if place == 0 else f"+{gained} -{lost}") for place, (gained, lost) in enumerate(pairs))
    yield Text(turn_words(sum(one.first_turns, Counter())))


def _row_cells(row: FlipRow) -> Iterator[Text]:
    yield Text(f"  {row.question or row.task_id}")
    for value in row.successes:
        mark, style = ("·", "dim") if value is None else ("●", "green") if value >= 1 else ("○", "red")
        yield Text("◐" if value is not None and 0 < value < 1 else mark, style)
    yield Text(", ".join(dict.fromkeys(f"turn {turn}" for turn in row.turns if turn is not None)))


def _show_table(sheet: Sheet) -> RenderableType:
    left = sheet.header[:1] if sheet.figures else sheet.header
    rows = ((Text(_shorten_cell(cell)) for cell in row) for row in sheet.rows)
    table = plain_table(sheet.header, rows, left=left, wraps=sheet.header, title=sheet.title)
    if sheet.note:
        table.caption, table.caption_style, table.caption_justify = sheet.note, "dim", "left"
    return table


def _shorten_cell(cell: str) -> str:
    """A long value of a plan says little in a column; `--json` and the page have all of it."""
    return cell if len(cell) <= _MAX_CELL else f"{cell[: _MAX_CELL - 1]}…"


def _show_curves(found: Comparison) -> Iterator[RenderableType]:
    lines = [line for arm in found.arms for line in _show_curves_of(arm, "success")]
    if lines:
        yield Text("success in training, from 0 to 1", "bold")
        yield from lines
        yield Text()


def _show_curves_of(arm: Arm, name: str) -> Iterator[Text]:
    for member in arm.members:
        values = [step.metrics[name] for step in member.steps if name in step.metrics]
        if values:
            text = Text(f"{arm.letter} {percent(values[0]):>7} ", no_wrap=True)
            text.append(sparkline(values, _CURVE_WIDTH, 0.0, 1.0), "green")
            yield text.append(f" {percent(values[-1])}", "bold").append(f"  seed {member.run.record.seed}", "dim")


def _show_example(example: Example, openings: Mapping[str, ReadOpening]) -> RenderableType:
    sides = ((example.left_letter, example.left), (example.right_letter, example.right))
    pair = Table.grid(padding=(0, 1), expand=True)
    for _ in sides:
        pair.add_column(ratio=1)
    pair.add_row(*(_show_panel(letter, stored, openings.get(letter, no_opening)) for letter, stored in sides))
    return pair


def _show_panel(letter: str, stored: StoredTrajectory, opening: ReadOpening) -> Panel:
    view = trajectory_view(stored.scored, _EXAMPLE_LINES, opening=opening(stored.scored.trajectory))
    return Panel(view, title=letter, title_align="left", border_style="dim")
