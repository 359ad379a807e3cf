"""A comparison in the terminal, as Markdown, LaTeX, CSV and a page."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rlf.apps.compare.arms import Arm, read_arms
from rlf.apps.compare.comparison import (
    Comparison,
    ComparisonExample,
    FlipRow,
    KindRows,
    compare_arms,
    first_of_each,
    flip_matrix,
    read_examples,
    title_of,
    turn_words,
)
from rlf.apps.compare.outcomes import Basis, ReachedStep
from rlf.cli.board import sparkline
from rlf.lineage.reader import Reader
from rlf.reports.pages.chart import ArmCurve, Chart, charts_svg, draw, further_curves, main_curves
from rlf.reports.pages.render import render_page
from rlf.reports.paired import power_words
from rlf.reports.report import judge_totals, sheet_markdown
from rlf.reports.sheets import (
    MISSING,
    Sheet,
    count,
    decimal,
    dollars,
    duration,
    latency,
    percent,
    rate,
    sheet_table,
    sheet_tex,
    text_table,
    visible,
)
from rlf.reports.statistics import Estimate
from rlf.reports.trajectory import ReadOpening, no_opening, trajectory_view
from rlf.runs.trajectories import Openings

# A comparison as tables of text, the same for the terminal, Markdown and the page.

_METRICS = (
    ("reward/mean", "reward"),
    ("reward/std", "reward, std"),
    ("groups/dead_share", "dead groups"),
    ("unscorable", "unscorable"),
    ("turns/mean", "turns"),
    ("tokens/sampled", "sampled tokens"),
    ("tokens/total", "tokens"),
    ("tools/calls_per_trajectory", "tool calls"),
    ("tools/wait_share", "waiting for tools"),
    ("policy/entropy", "entropy, nats"),
    ("policy/kl_ref", "KL to the reference"),
    ("policy/kl_old", "KL to the old policy"),
    ("policy/mismatch_kl", "KL to the sampler"),
    ("policy/clip_fraction", "clipped"),
    ("policy/grad_norm", "gradient norm"),
    ("loss/policy", "policy loss"),
    ("time/step_s", "seconds a step"),
)
"""Step metrics of every comparison, in this order, where a run has them."""
_FAMILIES = {
    "rewards/": "reward",
    "tools/outcome/": "calls that ended as",
    "tools/parse_failure/": "parse failures",
    "stop/": "trajectories that stopped for",
}
"""Metrics that have a name of the run in theirs, and the words that go before it."""
_OF_TERMS = {"cost_usd": "cost, US dollars", "cached": "cached replies"}


@dataclass(frozen=True, slots=True)
class Sheets:
    """The tables of a comparison."""

    results: list[Sheet]
    origins: list[Sheet]
    """What the arms are made of."""


def sheets(found: Comparison) -> Sheets:
    """Every table of a comparison that has rows, results apart from what the arms are made of."""
    letters = tuple(arm.letter for arm in found.arms)
    over = (
        "of the questions that each run scored; in brackets: 95 % confidence intervals, over seeds where there are "
        "several, else over questions"
    )
    figures = [
        (f"held-out success, {found.mode}", over, _result_rows),
        ("training", "means over the last tenth of the steps", _sheet_rows),
        ("tools", "over training and evaluations", _tool_rows),
        ("judges", "over training and evaluations, mean of the runs", _judge_rows),
    ]
    results = [Sheet(title, note, ("", *letters), tuple(rows(found)), figures=True) for title, note, rows in figures]
    arms = [(arm.letter, visible(arm.label), " ".join(arm.runs)) for arm in found.arms]
    differences = [
        (item.cause, visible(item.what), *(MISSING if value is None else visible(value) for value in item.values))
        for item in found.differences
    ]
    origins = [
        Sheet("what differs", "", ("cause", "what", *letters), tuple(differences)),
        Sheet("arms", "", ("", "name", "runs"), tuple(arms)),
        Sheet(
            f"runs, {found.mode}", "", ("", "seed", "run", "status", "step", "before", "after"), tuple(_run_rows(found))
        ),
    ]
    return Sheets([sheet for sheet in results if sheet.rows], [sheet for sheet in origins if sheet.rows])


def _run_rows(found: Comparison) -> Iterator[tuple[str, ...]]:
    """Each run with its held-out success at the first evaluation and at the last."""
    for arm in found.arms:
        for member in arm.members:
            curve, record = member.curve(found.mode or ""), member.run.record
            ends = (curve[0], curve[-1]) if curve else ()
            rates = [percent(end.metrics["success"]) for end in ends] or [MISSING] * 2
            yield arm.letter, str(record.seed), record.id, member.run.status, str(member.run.last_step), *rates


def _result_rows(found: Comparison) -> Iterator[tuple[str, ...]]:
    if found.mode is None:
        return
    outcomes = found.outcomes
    yield "at the end", *(_show_figure(item.final) for item in outcomes)
    yield from _shared_rows(found)
    yield "best", *(_show_figure(item.best) for item in outcomes)
    yield "area under the curve", *(_show_figure(item.area) for item in outcomes)
    level = percent(found.threshold)
    reached = [item.reached for item in outcomes]
    runs = [len(arm.members) for arm in found.arms]
    yield f"steps to {level}", *(_show_steps(item, n) for item, n in zip(reached, runs, strict=True))
    yield f"tokens to {level}", *(MISSING if item is None else count(item.tokens) for item in reached)
    yield f"tool calls to {level}", *(MISSING if item is None else count(item.tool_calls) for item in reached)
    yield f"time to {level}", *(MISSING if item is None else duration(item.wall_s) for item in reached)


def _shared_rows(found: Comparison) -> Iterator[tuple[str, ...]]:
    """What each verdict compares, where that is not all that the runs scored."""
    for place, one in enumerate(found.contrasts, 1):
        if one is not None and one.num_not_shared and one.basis is not Basis.UNPAIRED:
            cells = [MISSING] * len(found.arms)
            cells[0], cells[place] = map(percent, one.means)
            yield f"{found.arms[0].letter} and {found.arms[place].letter} on {one.num_questions} shared", *cells


def _show_figure(figure: Estimate | None) -> str:
    return MISSING if figure is None else rate(figure.value, figure.interval)


def _show_steps(reached: ReachedStep | None, num_runs: int) -> str:
    if reached is None:
        return "never"
    whole = f"{reached.step:.0f}" if reached.step == int(reached.step) else f"{reached.step:.1f}"
    return whole if reached.num_runs == num_runs else f"{whole} ({reached.num_runs} of {num_runs} runs)"


def _sheet_rows(found: Comparison) -> Iterator[tuple[str, ...]]:
    by_arm = [item.metrics for item in found.outcomes]
    present = list(dict.fromkeys(name for metrics in by_arm for name in metrics))
    named = [(name, label) for name, label in _METRICS if name in present]
    named += [
        (name, _metric_label(name, family)) for family in _FAMILIES for name in present if name.startswith(family)
    ]
    for name, label in named:
        yield visible(label), *(decimal(metrics.get(name)) for metrics in by_arm)


def _metric_label(metric: str, family: str) -> str:
    """A metric of a family in words: `rewards/right/mean` is "reward right, mean"."""
    name = metric.removeprefix(family)
    if family != "rewards/":
        return f"{_FAMILIES[family]} {name.replace('_', ' ')}"
    term, _, figure = name.rpartition("/")
    return f"{_FAMILIES[family]} {term}, {_OF_TERMS.get(figure, figure)}"


def _tool_rows(found: Comparison) -> Iterator[tuple[str, ...]]:
    totals = [{tool.name: tool for member in arm.members for tool in member.tools} for arm in found.arms]
    for name in dict.fromkeys(name for tools in totals for name in tools):
        calls = [sum(t.num_calls for m in arm.members for t in m.tools if t.name == name) for arm in found.arms]
        yield f"{visible(name)}: calls", *(count(number) for number in calls)
        yield f"{visible(name)}: mean time", *(latency(t[name].mean_run_s) if name in t else MISSING for t in totals)


def _judge_rows(found: Comparison) -> Iterator[tuple[str, ...]]:
    runs = [[judge_totals(member.steps, member.evaluations) for member in arm.members] for arm in found.arms]
    judges = [[judge for member in members for judge in member] for members in runs]
    for term in dict.fromkeys(judge.term for arm in judges for judge in arm):
        taken = [[judge for judge in arm if judge.term == term] for arm in judges]
        yield (
            f"{visible(term)}: tokens",
            *(count(fmean(j.num_tokens for j in arm)) if arm else MISSING for arm in taken),
        )
        yield f"{visible(term)}: cost", *(dollars(fmean(j.cost_usd for j in arm)) if arm else MISSING for arm in taken)


def markdown(found: Comparison) -> str:
    """The comparison as Markdown."""
    parts = [f"# {' against '.join(arm.label for arm in found.arms)}", *(f"**{words}**" for words in found.verdicts)]
    if found.power is not None:
        parts.append(power_words(found.power))
    tables = sheets(found)
    parts += [sheet_markdown(sheet) for sheet in (*tables.results, *tables.origins)]
    return "\n\n".join(parts) + "\n"


def tex(found: Comparison) -> str:
    """The tables of its results for LaTeX, below the verdicts as comments."""
    verdicts = [f"% {' '.join(words.split())}" for words in found.verdicts]
    arms = [f"% {arm.letter}: {visible(arm.label)} ({' '.join(arm.runs)})" for arm in found.arms]
    return "\n".join([*verdicts, *arms, *map(sheet_tex, sheets(found).results)]) + "\n"


_CURVE_WIDTH = 48
_EXAMPLE_LINES = 8
_MAX_QUESTIONS = 20
"""Rows of questions in the terminal, over all kinds; the page has every one."""


def comparison_view(
    found: Comparison,
    examples: Sequence[ComparisonExample] = (),
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
        parts += [sheet_table(sheet), Text()]
    parts += _show_curves(found)
    parts += _show_questions(found, examples)
    for example in first_of_each(examples, num_shown):
        parts += [_show_example(example, openings or {}), Text()]
    for sheet in tables.origins:
        parts += [sheet_table(sheet), Text()]
    return Group(*parts[:-1])


def _show_questions(found: Comparison, examples: Sequence[ComparisonExample]) -> Iterator[RenderableType]:
    """The flips by kind, then by question; nothing where there are none."""
    kinds = [one for one in flip_matrix(found, examples) if any((*one.gained, *one.lost))]
    if not kinds:
        return
    first, last = "kind and question", "first difference"
    header = (first, *(arm.letter for arm in found.arms), last)
    table = text_table(header, left=(first, last), title="questions with different outcomes")
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


def _show_example(example: ComparisonExample, openings: Mapping[str, ReadOpening]) -> RenderableType:
    pair, panels = Table.grid(padding=(0, 1), expand=True), list[Panel]()
    for letter, stored in ((example.left_letter, example.left), (example.right_letter, example.right)):
        opening = openings.get(letter, no_opening)(stored.scored.trajectory)
        view = trajectory_view(stored.scored, _EXAMPLE_LINES, opening=opening)
        panels.append(Panel(view, title=letter, title_align="left", border_style="dim"))
        pair.add_column(ratio=1)
    pair.add_row(*panels)
    return pair


# A comparison as one self-contained page: verdicts, results, curves, questions, and what the arms are made of.

_MAX_FLIPS = 100
"""Questions of each arm that the page holds turn by turn."""


def comparison_page(
    found: Comparison, examples: Sequence[ComparisonExample], openings: Mapping[str, ReadOpening] | None = None
) -> str:
    """The page as HTML; it loads nothing, and what models and tools wrote stays text in it."""
    return render_page("apps/compare/compare.html", **page_values(found, examples, openings, draw))


def figures(found: Comparison) -> dict[str, str]:
    """The page's charts as SVG, by the name of a file."""
    charts = [chart for some in _charts_of(found) for chart in some]
    return {f"{re.sub(r'[^.A-Za-z0-9_-]+', '-', chart.name)}.svg": charts_svg([draw(chart)]) for chart in charts}


def _charts_of(found: Comparison) -> tuple[list[Chart], list[Chart]]:
    """The main charts of the arms' runs, and the further ones."""
    courses = [
        ArmCurve(arm.letter, [m.steps for m in arm.members], [m.evaluations for m in arm.members]) for arm in found.arms
    ]
    return main_curves(courses), further_curves(courses)


def page_values(
    found: Comparison,
    examples: Sequence[ComparisonExample],
    openings: Mapping[str, ReadOpening] | None,
    show_chart: Callable[[Chart], Any],
) -> dict[str, Any]:
    """Values of the template.

    Args:
        examples: Questions that came out differently, whole; those that an arm lost first.
        openings: Reads what an arm's policy saw before the question, by the arm's letter.
        show_chart: Makes of a chart what the template shows.
    """
    tables, (charts, more_charts) = sheets(found), _charts_of(found)
    flips = [(example, example.pair(openings or {})) for example in first_of_each(examples, _MAX_FLIPS)]
    num_flips = sum(len(contrast.flips) for contrast in found.contrasts if contrast is not None)
    return {
        "title": title_of(found),
        "verdicts": found.verdicts,
        "power": None if found.power is None else power_words(found.power),
        "arms": found.arms,
        "charts": list(map(show_chart, charts)),
        "more_charts": list(map(show_chart, more_charts)),
        "results": tables.results,
        "origins": tables.origins,
        "kinds": flip_matrix(found, examples),
        "turn_words": turn_words,
        "shown": {(flip.right_letter, flip.task_id) for flip, _ in flips},
        "flips": flips,
        "questions_note": "a mark for each question, by the first runs of the arms at their last evaluation",
        "flips_note": f"{len(flips)} of {num_flips}, those that an arm lost first",
    }


# Runs by name, from a lineage.


def compare_runs(
    reader: Reader,
    names: Sequence[str],
    mode: str | None = None,
    threshold: float | None = None,
    *,
    at_ends: bool = False,
) -> Comparison:
    """Compares runs; of one arm, such as a sweep of seeds alone, what chance does to it."""
    found = compare_arms(read_arms(reader, names), mode, threshold, at_ends=at_ends)
    return replace(found, markdown=markdown(found))


def openings_of(found: Comparison) -> dict[str, Openings]:
    """The openings of each arm's first run, by the arm's letter."""
    return {arm.letter: Openings(arm.members[0].run) for arm in found.arms}


def page_of_runs(reader: Reader, names: Sequence[str]) -> str:
    """The page that compares runs, with every question that came out differently."""
    found = compare_runs(reader, names)
    return comparison_page(found, read_examples(reader, found), openings_of(found))


# Every curve of arms as CSV, one value a line, for tools of the reader's own.

HEADER = ("arm", "run", "seed", "phase", "step", "metric", "value")


def csv_text(arms: Sequence[Arm]) -> str:
    """Step metrics (phase `train`) and evaluations (phase: their mode) of every run."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(HEADER)
    for arm in arms:
        for member in arm.members:
            place = (arm.letter, member.run.record.id, member.run.record.seed)
            points = [("train", step.step, step.metrics) for step in member.steps]
            points += [(e.mode, e.step, e.metrics) for e in member.evaluations]
            for phase, step, metrics in points:
                rows.writerows((*place, phase, step, name, repr(value)) for name, value in metrics.items())
    return text.getvalue()
