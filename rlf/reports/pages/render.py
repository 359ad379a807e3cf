"""Templates filled in: pure, from values; what models and tools wrote is escaped, and control characters are shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import zip_longest
from typing import TYPE_CHECKING

from markupsafe import Markup

from rlf.lineage.records import Evaluation, StoredTrajectory
from rlf.reports.pages.chart import ArmCurve, draw, further_curves, main_curves
from rlf.reports.report import Report, origin_facts, shown_events, status_words, usage_sheets
from rlf.reports.sheets import Sheet, decimal, visible
from rlf.reports.summary import change_sheet, shift_lines, shifts
from rlf.reports.trajectory import ReadOpening, show_links
from rlf.types.task import Message
from rlf.types.trajectory import Turn

if TYPE_CHECKING:
    from jinja2 import Environment


def render_page(template: str, **values: object) -> str:
    """A template as one page that loads nothing: its style and its script stand in it.

    Args:
        template: a file of this folder, or one of an app by its place in rlf.
    """
    # Both are files of this package, without any text of a run.
    style, script = (Markup(_read_text(name)) for name in ("report.css", "report.js"))
    return (
        _make_page_environment().get_template(template).render(layout="base.html", style=style, script=script, **values)
    )


def _read_text(name: str) -> str:
    return files("rlf").joinpath(name if "/" in name else f"reports/pages/{name}").read_text(encoding="utf-8")


@cache
def _make_page_environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_read_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    return environment


# A trajectory as the parts of a page: what the policy saw, what it sampled, turn beside turn.


@dataclass(frozen=True, slots=True)
class Part:
    """One text."""

    label: str
    """Role, tool with arguments and outcome, or class of failure."""
    text: str
    fed: bool
    """Whether the policy saw it; what ended a trajectory it did not."""


@dataclass(frozen=True, slots=True)
class TurnParts:
    """One turn."""

    number: int
    link: str
    """What it continues; empty where that is the turn before it."""
    before: tuple[Part, ...]
    """What an agent sent since the turn that it continues, or in a new context."""
    sampled: str
    after: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """One trajectory."""

    name: str
    opening: str
    """System text and declarations of tools; empty where they are not known."""
    messages: tuple[Part, ...]
    turns: tuple[TurnParts, ...]
    end: str
    scores: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TurnPair:
    """The same turn of two trajectories; None behind the end of one."""

    number: int
    left: TurnParts | None
    right: TurnParts | None

    @property
    def differs(self) -> bool:
        """Whether the two did or got different things."""
        return self.left != self.right


@dataclass(frozen=True, slots=True)
class SidePair:
    """Two trajectories of one question, turn beside turn."""

    left: Side
    right: Side
    turns: tuple[TurnPair, ...]

    @property
    def first_difference(self) -> int | None:
        """The first turn, from 1, that was sampled differently or had another result; None where none is."""
        return next((pair.number for pair in self.turns if pair.differs), None)


def side(name: str, stored: StoredTrajectory, opening: str) -> Side:
    """A trajectory as parts; with an opening the system message is in it and not repeated."""
    trajectory, reward = stored.scored.trajectory, stored.summary.reward
    messages = (m for m in trajectory.messages if not (opening and m.role == "system"))
    ended = f"{trajectory.stop}, {'unscorable' if reward is None else f'reward {decimal(reward)}'}"
    return Side(
        name,
        opening,
        _parts_of(messages),
        tuple(
            TurnParts(
                number,
                link,
                _parts_of(turn.asked if number > 1 else ()),
                turn.text.removesuffix("\n") or "(no token)",
                tuple(_parts_after(turn)),
            )
            for number, (turn, link) in enumerate(zip(trajectory.turns, show_links(trajectory), strict=True), start=1)
        ),
        ended if trajectory.error is None else f"{ended}: {trajectory.error}",
        tuple(
            f"{score.term} {decimal(score.value)} × {score.weight:g}{f'  {score.reason}' if score.reason else ''}"
            for score in stored.scored.scores
        ),
    )


def _parts_of(messages: Iterable[Message]) -> tuple[Part, ...]:
    return tuple(Part(message.role, message.content, True) for message in messages)


def _parts_after(turn: Turn) -> Iterator[Part]:
    fed = turn.observation_end > turn.end
    for record in turn.calls:
        arguments = json.dumps(dict(record.call.arguments), ensure_ascii=False, default=str)
        yield Part(f"{record.call.name}({arguments}) → {record.result.outcome}", record.result.text, fed)
    for failure in turn.failures:
        yield Part(f"parse failure: {failure.kind}", failure.message, fed)


def beside(left: Side, right: Side) -> SidePair:
    """Two trajectories turn by turn."""
    pairs = enumerate(zip_longest(left.turns, right.turns), start=1)
    return SidePair(left, right, tuple(TurnPair(number, one, other) for number, (one, other) in pairs))


# One run as one page: its result, its curves, a question before and after, and at the end what it was made from.


def run_page(report: Report, evaluations: Sequence[Evaluation], opening: ReadOpening) -> str:
    """The page as HTML; it loads nothing."""
    record, changes, verdict = report.run.record, report.summary.changes, report.verdict.line
    lines = [line for line in shift_lines(changes, shifts(changes)) if line not in verdict]
    courses = [ArmCurve("", [report.steps], [evaluations])]
    files = ((file.role, visible(file.path), file.sha256[:12]) for file in record.files)
    ends = () if (found := report.summary.example) is None else (found.before, found.after)
    sides = [side(f"step {one.summary.step}", one, opening(one.scored.trajectory)) for one in ends]
    return render_page(
        "run.html",
        title=f"{visible(record.name)} · {record.id}",
        verdicts=[verdict, *lines],
        status=status_words(report.run),
        notices=[f"{event.level}: {event.text}" for event in shown_events(report.events)]
        + [f"note: {note.text}" for note in report.notes],
        results=[*([change_sheet(changes)] if changes else []), *usage_sheets(report)],
        charts=list(map(draw, main_curves(courses))),
        more_charts=list(map(draw, further_curves(courses))),
        example=beside(*sides) if sides else None,
        facts=list(origin_facts(report.run)),
        files=Sheet("files", "", ("role", "path", "sha256"), tuple(files)),
    )
