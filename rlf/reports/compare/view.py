"""A comparison in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rlf.reports.compare.arms import Arm
from rlf.reports.compare.comparison import Comparison
from rlf.reports.compare.examples import Example
from rlf.reports.compare.sheets import Sheet, sheets
from rlf.reports.power import power_words
from rlf.reports.quantities import percent
from rlf.reports.sparkline import sparkline
from rlf.reports.trajectory import trajectory_view

_CURVE_WIDTH = 48
_EXAMPLE_LINES = 8


def comparison_view(found: Comparison, examples: Sequence[Example] = ()) -> RenderableType:
    """Renders a comparison: verdicts, results, curves, then what the arms are made of and what came out differently."""
    parts: list[RenderableType] = [Text(words, "bold") for words in found.verdicts]
    if found.power is not None:
        parts.append(Text(power_words(found.power), "dim"))
    parts.append(Text())
    for sheet in sheets(found):
        parts += [_table(sheet), Text()]
    parts += _curves(found)
    for example in examples:
        parts += [Text(), _example(example)]
    return Group(*parts)


def _table(sheet: Sheet) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", title=sheet.title, title_justify="left")
    table.title_style = "bold"
    if sheet.note:
        table.caption, table.caption_style, table.caption_justify = sheet.note, "dim", "left"
    for header in sheet.header:
        table.add_column(header, overflow="fold")
    for row in sheet.rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _curves(found: Comparison) -> Iterator[RenderableType]:
    lines = [line for arm in found.arms for line in _curve(arm, "success")]
    if lines:
        yield Text("success in training, from 0 to 1", "bold")
        yield from lines
        yield Text()


def _curve(arm: Arm, name: str) -> Iterator[Text]:
    for member in arm.members:
        values = [step.metrics[name] for step in member.steps if name in step.metrics]
        if values:
            text = Text(f"{arm.letter} {percent(values[0]):>7} ", no_wrap=True)
            text.append(sparkline(values, _CURVE_WIDTH, 0.0, 1.0), "green")
            yield text.append(f" {percent(values[-1])}", "bold").append(f"  seed {member.run.record.seed}", "dim")


def _example(example: Example) -> RenderableType:
    sides = ((example.left_letter, example.left), (example.right_letter, example.right))
    pair = Table.grid(padding=(0, 1), expand=True)
    for _ in sides:
        pair.add_column(ratio=1)
    pair.add_row(
        *(
            Panel(trajectory_view(stored.scored, _EXAMPLE_LINES), title=letter, title_align="left", border_style="dim")
            for letter, stored in sides
        )
    )
    return pair
