"""Runs: the list, and one run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from rlf.apps.web.jobs import talk_commands
from rlf.apps.web.pages.shared import lineage, page, site_of
from rlf.apps.web.plan_values import parse_plans, plan_leaves, read_key, read_plans, varied_keys
from rlf.apps.web.run_views import (
    DEAD,
    NAMED,
    PINNED,
    OverviewPage,
    dead_words,
    now_words,
    page_overviews,
    pick_spread,
    plain_tags,
    run_title,
)
from rlf.apps.web.site import Site
from rlf.apps.web.trajectories import TrajectoryOrder, read_page
from rlf.core.errors import RlfError
from rlf.lineage.graph import whence
from rlf.lineage.reader import Reader
from rlf.lineage.records import TRAIN, Run, TrajectoryFilter
from rlf.reports.overview import NAMES, Overview, elapsed_s
from rlf.reports.pages.chart import ArmCurve, further_curves, main_curves
from rlf.reports.report import Report, origin_facts, read_report, shown_events, status_words, usage_sheets
from rlf.reports.sheets import decimal, percent
from rlf.reports.summary import difference_words, rate_rows
from rlf.reports.sweep import is_sweep, read_sweep

router = APIRouter(include_in_schema=False)

_PER_PAGE, _MAX_ROWS = 50, 500
_MAX_COLUMNS = 12
_NUM_NEWEST, _MAX_LOOKED = 6, 512
_MAX_POINTS = 36
"""Of a small curve, of twice as many at most."""
_HEALTH = {
    DEAD: "dead groups",
    "unscorable": "unscorable trajectories",
    "policy/entropy": "entropy, nats",
    "policy/clip_fraction": "clipped tokens",
    "policy/mismatch_kl": "sampler against trainer, KL",
    "policy/grad_norm": "gradient norm",
    "tools/wait_share": "time waiting for tools",
    "throughput/generate_tokens_per_s": "sampled tokens a second",
}


@dataclass(frozen=True, slots=True)
class RunRow:
    """One line of the list."""

    overview: Overview
    differs: str
    """The overrides of its command: what it was started with beside its files."""
    elapsed_s: float | None
    training: tuple[float, ...]
    """Success of its training steps."""
    num_steps: int | None
    """Steps of its plan."""
    cells: Mapping[str, str]
    """The further columns, and what the list is grouped by."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Lines of the list that have a value in common."""

    value: str
    """Empty: the list has no groups, or these are pinned."""
    rows: tuple[RunRow, ...]

    @property
    def mean(self) -> float | None:
        """Held-out success, over the runs that have one."""
        found = [row.overview.evaluation.metrics.get("success") for row in self.rows if row.overview.evaluation]
        known = [value for value in found if value is not None]
        return fmean(known) if known else None


@router.get("/")
def show_start() -> RedirectResponse:
    """The first page is the list of runs."""
    return RedirectResponse("/runs")


@router.get("/runs")
def show_runs(
    request: Request,
    q: str = "",
    sort: str = "",
    after: str = "",
    only: str = "",
    rows: int = 0,
    cols: str = "",
    group: str = "",
) -> HTMLResponse:
    """Runs that a filter wants, 50 at a time.

    Args:
        sort: a name of the filter's, or a further column; `-` before it: lowest first.
        after: the run behind which the next ones are wanted.
        only: `rows`: without the page around them.
        rows: how many are shown already.
        cols: names of further columns, with commas: metrics, or keys of the plans.
        group: such a name, by whose values the runs stand together.
    """
    fault, shown, found, known = "", list[RowGroup](), OverviewPage((), 0, 0, None), list[str]()
    columns = tuple(dict.fromkeys(word.strip() for word in cols.split(",") if word.strip()))[:_MAX_COLUMNS]
    limit = max(_PER_PAGE, min(rows, _MAX_ROWS))
    if site_of(request).has_lineage:
        try:
            with lineage(request) as reader:
                by = sort.removeprefix("-")
                value_of = partial(_column_value, site_of(request), reader, by) if by in columns else None
                found = page_overviews(reader, q or None, sort or None, after or None, limit, value_of)
                pinned = _read_pinned(reader) if not (q or after) else ()
                names = (*columns, *([group] if group else []))
                ids = {item.run_id for item in pinned}
                of = [*pinned, *(item for item in found.runs if item.run_id not in ids)]
                made = _lead_with_differences([_run_row(site_of(request), reader, item, names) for item in of])
                shown = _group_rows(made, group)
                known = _known_columns(reader, found.runs) if not only else []
        except RlfError as error:
            fault = str(error)
    asked = {"q": q, "sort": sort, "cols": ",".join(columns), "group": group}
    values = {"groups": shown, "found": found, "fault": fault, "names": NAMES, "columns": columns, "known": known}
    values["sorted_by"] = "/runs?" + urlencode({name: text for name, text in asked.items() if text and name != "sort"})
    values |= asked | {"address": "/runs?" + urlencode({name: text for name, text in asked.items() if text})}
    template = "runs_rows.html" if only == "rows" else "runs.html"
    return page(request, template, "Runs", place="runs", **values)


def _read_pinned(reader: Reader) -> Sequence[Overview]:
    """Runs that stand above the others."""
    if not any(PINNED in tags for tags in reader.tags().values()):
        return ()
    return page_overviews(reader, f"{PINNED!r} in tags", None, None, _PER_PAGE).runs


def _group_rows(rows: Sequence[RunRow], name: str) -> list[RowGroup]:
    if not name:
        return [RowGroup("", tuple(rows))] if rows else []
    by_value: dict[str, list[RunRow]] = {}
    for row in rows:
        by_value.setdefault(row.cells[name], []).append(row)
    return [RowGroup(value, tuple(of)) for value, of in by_value.items()]


def _known_columns(reader: Reader, runs: Sequence[Overview]) -> list[str]:
    """Names of columns: keys in which the runs differ, then metrics of the newest one that has any."""
    newest = next((metrics for item in runs[:_NUM_NEWEST] if (metrics := _last_metrics(reader, item))), {})
    return [*sorted(varied_keys(parse_plans(reader, [item.run_id for item in runs]))), *sorted(newest)]


def _last_metrics(reader: Reader, item: Overview) -> dict[str, float]:
    """Of a run's newest step, which alone is read."""
    steps = reader.steps(item.run_id, stride=item.step) if item.step else []
    return steps[-1].metrics if steps else {}


def _lead_with_differences(rows: Sequence[RunRow]) -> list[RunRow]:
    """Overrides that not all runs of a spec have come first: the column has room for a few."""
    words = [re.split(r" (?=[\w.~+@-]+=)", row.differs) for row in rows]
    specs = [row.overview.name for row in rows]
    of_spec = {spec: [set(own) for own, at in zip(words, specs, strict=True) if at == spec] for spec in specs}
    shared = {spec: set.intersection(*own) if len(own) > 1 else set() for spec, own in of_spec.items()}
    leading = [sorted(own, key=shared[spec].__contains__) for own, spec in zip(words, specs, strict=True)]
    return [replace(row, differs=" ".join(own)) for row, own in zip(rows, leading, strict=True)]


def _run_row(site: Site, reader: Reader, item: Overview, names: tuple[str, ...]) -> RunRow:
    """A line; what needs the plan and the steps is read again when the run has moved on."""
    key = ("row", item.run_id, item.step, item.status, item.finished, names)
    differs, planned, training, cells = site.keep(key, lambda: _read_course(reader, item, names))
    taken = elapsed_s(item.started, item.finished, item.status, item.idle_s)
    named = replace(item, name=run_title(item.name, item.tags))
    return RunRow(named, differs, taken, training, planned, cells)


def _read_course(
    reader: Reader, item: Overview, names: Sequence[str]
) -> tuple[str, int | None, tuple[float, ...], dict[str, str]]:
    """Overrides, steps of the plan, success of some training steps, and values by name."""
    run = reader.get_run(item.run_id)
    cells = dict.fromkeys(names, "–")
    if names:
        facts = _column_values(reader, item, run)
        cells = {name: _show_cell(facts.get(name)) for name in names}
    steps = reader.steps(item.run_id, stride=max(1, item.step // _MAX_POINTS)) if item.step else []
    return (
        overrides_of(run),
        num_steps(run),
        tuple(step.metrics["success"] for step in steps if "success" in step.metrics),
        cells,
    )


def _column_values(reader: Reader, item: Overview, run: Run) -> dict[str, Any]:
    """What may stand in further columns: facts, keys of the plan, metrics of the last evaluation and step."""
    facts: dict[str, Any] = {"name": item.name, "status": item.status, "engine": item.engine, "seed": item.seed}
    facts |= plan_leaves(run) | (item.evaluation.metrics if item.evaluation else {})
    return facts | _last_metrics(reader, item)


def _column_value(site: Site, reader: Reader, name: str, item: Overview) -> Any:
    """One of them, read again when the run has moved on."""
    key = ("column", name, item.run_id, item.step, item.status, item.finished)
    return site.keep(key, lambda: _column_values(reader, item, reader.get_run(item.run_id)).get(name))


def _show_cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def overrides_of(run: Run) -> str:
    """The overrides of the command that started a run."""
    words = shlex.split(run.record.command)
    return " ".join(word for word in words if "=" in word and not word.startswith("-"))


def num_steps(run: Run) -> int | None:
    """Steps that the plan of a run has; None for what does not train."""
    steps = run.record.plan.get("spec", {}).get("train", {}).get("steps")
    return int(steps) if steps is not None and run.record.engine not in ("sweep", "evaluation") else None


@router.get("/runs/{name}")
def show_run(request: Request, name: str) -> HTMLResponse:
    """One run: result, curves, tools, health, newest trajectories, and what it was made from."""
    with lineage(request) as reader:
        run_id = reader.get_run(name).record.id
        report = read_report(reader, run_id)
        evaluations = reader.evaluations(run_id)
        newest_step = report.steps[-1].step if report.steps else None
        wanted = TrajectoryFilter(phase=TRAIN, step=newest_step)
        first = (wanted, TrajectoryOrder.PLACE, None, _MAX_LOOKED)
        newest = pick_spread(read_page(reader, run_id, *first), _NUM_NEWEST) if newest_step is not None else []
        tags, talk = reader.tags().get(run_id, ()), talk_commands(reader, run_id)
        children = reader.run_lines(parent_id=run_id)
        sweep = read_sweep(reader, run_id) if is_sweep(report.run) else None
    courses = [ArmCurve("", [report.steps], [evaluations])]
    values = {
        "run": report.run,
        "report": report,
        "tags": plain_tags(tags),
        "name_tags": [tag for tag in tags if tag.startswith(NAMED)],
        "talk": talk,
        "children": children,
        "sweep": sweep,
        "overrides": overrides_of(report.run),
        "num_steps": num_steps(report.run),
        "status_words": status_words(report.run),
        "now": now_words(site_of(request).runs_folder, run_id),
        "notices": shown_events(report.events),
        "held_out": [
            (name, left, right, difference_words(left.value, right.value))
            for change in report.summary.changes
            for name, left, right in rate_rows(change)
        ],
        "sheets": usage_sheets(report),
        "health": _health(report),
        "curves": [asdict(chart) | {"note": _note(chart.title, report)} for chart in main_curves(courses)],
        "more_curves": [asdict(chart) for chart in further_curves(courses)],
        "newest": newest,
        "facts": list(origin_facts(report.run)),
    }
    name = run_title(report.run.record.name, tags)
    return page(request, "run_page.html", f"{name} · {run_id}", place="runs", **values)


def _health(report: Report) -> list[tuple[str, str, list[float], str]]:
    """Figures of the newest step that say whether training is sound, each with its course and what it means."""
    courses = {name: [step.metrics[name] for step in report.steps if name in step.metrics] for name in _HEALTH}
    return [
        (words, _show_health(name, values[-1]), values, _note(words, report))
        for name, words in _HEALTH.items()
        if (values := courses[name])
    ]


def _note(title: str, report: Report) -> str:
    """What a figure of the newest step means, where its number alone does not say it."""
    return dead_words(report.steps[-1].metrics) if title == _HEALTH[DEAD] and report.steps else ""


def _show_health(name: str, value: float) -> str:
    if name.endswith(("_share", "_fraction")):
        return percent(value)
    return str(int(value)) if name == "unscorable" else decimal(value)


@router.get("/runs/{name}/files")
def show_files(request: Request, name: str) -> HTMLResponse:
    """The inputs of a run, and the graph of what it made."""
    with lineage(request) as reader:
        run = reader.get_run(name)
        nodes = whence(reader, run.record.id)
        checkpoints = reader.checkpoints(run.record.id)
    values = {"run": run, "nodes": nodes, "checkpoints": checkpoints}
    return page(request, "files.html", f"files · {run.record.id}", place="runs", **values)


@router.get("/runs/{name}/plan")
def show_plan(request: Request, name: str) -> HTMLResponse:
    """The plan of a run, value by value."""
    with lineage(request) as reader:
        run = reader.get_run(name)
    values = plan_leaves(run).items()
    return page(request, "plan.html", f"plan · {run.record.id}", place="runs", run=run, values=values)


@router.get("/keys")
def show_keys(request: Request, spec: str, key: str = "") -> HTMLResponse:
    """Results of a spec's runs with other values of a key; without one the keys that have several values."""
    with lineage(request) as reader:
        plans = read_plans(reader, spec)
        found = read_key(reader, plans, spec, key) if key else None
    values = {"spec": spec, "varied": varied_keys(plans), "found": found}
    return page(request, "keys.html", f"{key or 'keys'} · {spec}", place="runs", **values)
