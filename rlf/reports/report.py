"""One run in full: what it was made from, its curves, its tools, its evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rlf.core.plain_json import Jsonable
from rlf.lineage.calls import read_costs, tool_call_summary
from rlf.lineage.records import Evaluation, TrainingStep
from rlf.reports.overview import elapsed_s
from rlf.reports.sheets import Sheet, count, decimal, dollars, duration, latency, percent, visible
from rlf.reports.summary import Summary, read_changes, summarize
from rlf.reports.verdict import RunVerdict, judge_record

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader
    from rlf.lineage.records import AcceptedChange, Checkpoint, Cost, LoggedEvent, Note, Run, ToolCallSummary

# The costs of a run for people: by tool and judged term, from the sums that the lineage keeps.


def cost_rows(costs: Sequence[Cost]) -> list[tuple[str, ...]]:
    """A row for each name, then the sum where there are several."""
    rows: list[tuple[str, ...]] = [
        (
            f"{cost.kind} {visible(cost.name)}",
            f"{cost.num_requests:,}",
            f"{cost.num_without_usage:,}",
            count(cost.num_tokens),
            count(cost.num_cached_tokens),
            dollars(cost.cost_usd),
        )
        for cost in costs
    ]
    if len(costs) > 1:
        sums = [sum(cost.num_requests for cost in costs), sum(cost.num_without_usage for cost in costs)]
        tokens = [sum(cost.num_tokens for cost in costs), sum(cost.num_cached_tokens for cost in costs)]
        total = dollars(sum(cost.cost_usd for cost in costs))
        rows.append(("all", *(f"{number:,}" for number in sums), *map(count, tokens), total))
    return rows


# Usage of the judges of a run, from the metrics of its steps and evaluations.


@dataclass(frozen=True, slots=True)
class JudgeTotals:
    """One term's judges, over training and evaluations."""

    term: str
    num_tokens: float
    """Prompt and completion; of replies from the cache none."""
    cost_usd: float
    tokens_per_step: float | None
    """Mean over the steps; None before the first."""
    cost_usd_per_step: float | None
    cached: float | None
    """Share of the replies that were given before, mean over steps; None where no judge was asked."""
    kappa: float | None
    """Of judge and sentinels, the latest; None where there is none."""


def judge_totals(steps: Sequence[TrainingStep], evaluations: Sequence[Evaluation]) -> list[JudgeTotals]:
    """A row for each term that asked a judge."""
    trained = [step.metrics for step in steps]
    every = [*trained, *(evaluation.metrics for evaluation in evaluations)]
    terms = dict.fromkeys(
        name.split("/")[1]
        for metrics in every
        for name in metrics
        if name.startswith("rewards/") and name.endswith("/cost_usd")
    )
    found = []
    for term in terms:
        tokens, cost, cached, kappa = (f"rewards/{term}/{name}" for name in ("tokens", "cost_usd", "cached", "kappa"))
        kappas = [metrics[kappa] for metrics in trained if kappa in metrics]
        found.append(
            JudgeTotals(
                term,
                sum(metrics.get(tokens, 0.0) for metrics in every),
                sum(metrics.get(cost, 0.0) for metrics in every),
                _mean_or_none(metrics.get(tokens, 0.0) for metrics in trained),
                _mean_or_none(metrics.get(cost, 0.0) for metrics in trained),
                _mean_or_none(metrics[cached] for metrics in trained if cached in metrics),
                kappas[-1] if kappas else None,
            )
        )
    return found


def judge_rows(judges: Sequence[JudgeTotals]) -> Iterator[tuple[str, ...]]:
    """The totals for people."""
    for judge in judges:
        yield (
            visible(judge.term),
            count(judge.num_tokens),
            dollars(judge.cost_usd),
            count(judge.tokens_per_step),
            dollars(judge.cost_usd_per_step),
            percent(judge.cached),
            decimal(judge.kappa),
        )


def _mean_or_none(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None


_NUM_NOTICES = 8


@dataclass(frozen=True, slots=True)
class Report(Jsonable):
    """Everything that is shown of a run."""

    run: Run
    steps: Sequence[TrainingStep]
    tools: Sequence[ToolCallSummary]
    judges: Sequence[JudgeTotals]
    costs: Sequence[Cost]
    """By tool and judged term, the dearest first."""
    cost_usd: float
    """Their sum."""
    checkpoints: Sequence[Checkpoint]
    changes: Sequence[AcceptedChange]
    """Inputs that were replaced, and accepted, when the run was resumed."""
    events: Sequence[LoggedEvent]
    notes: Sequence[Note]
    summary: Summary
    verdict: RunVerdict


def read_report(reader: Reader, run_id: str) -> Report:
    """Reads a run from the lineage."""
    run, steps, events = reader.get_run(run_id), reader.steps(run_id), reader.events(run_id)
    costs, rates = read_costs(reader, run_id), read_changes(reader, run_id)
    return Report(
        run=run,
        steps=steps,
        tools=tool_call_summary(reader, run_id),
        judges=judge_totals(steps, reader.evaluations(run_id)),
        costs=costs,
        cost_usd=sum(cost.cost_usd for cost in costs),
        checkpoints=reader.checkpoints(run_id),
        changes=reader.changes(run_id),
        events=events,
        notes=reader.notes(run_id),
        summary=summarize(reader, run_id, rates),
        verdict=judge_record(reader, run, steps, rates, events),
    )


def status_words(run: Run) -> str:
    """`finished at step 40, took 0:52`, and what went wrong where something did."""
    words = f"{run.status} at step {run.last_step}, took "
    words += duration(elapsed_s(run.record.started, run.finished, run.status, run.idle_s))
    gone = ", its process is gone" if run.process_gone else ""
    return f"{words}{gone}" if run.error is None else f"{words}{gone}\n{run.error}"


def origin_facts(run: Run) -> Iterator[tuple[str, str]]:
    """When, by what and from what plan a run was made, by label."""
    record = run.record
    yield "started", f"{datetime.fromtimestamp(record.started).astimezone():%Y-%m-%d %H:%M:%S %Z}"
    if record.parent_id is not None:
        step = "" if record.parent_step is None else f"@{record.parent_step}"
        yield "parent", f"{record.parent_id}{step} ({record.parent_kind})"
    yield "engine", f"{record.engine}, seed {record.seed}, code {record.code_version}"
    yield "command", record.command
    yield "folder", record.folder
    yield "plan", record.plan_hash[:12]


def shown_events(events: Sequence[LoggedEvent]) -> list[LoggedEvent]:
    """The few worth reading beside the result: of diagnoses of a missing signal the newest, and no verdict.

    Where there are more, warnings stay before others, stages of the start go first, and older ones before newer.
    """
    diagnoses = [event for event in events if "signal" in event.data]
    worth = [event for event in events if "verdict" not in event.data and event not in diagnoses[:-1]]
    places = sorted(range(len(worth)), key=lambda at: ("stage" in worth[at].data, worth[at].level == "info", -at))
    return [worth[at] for at in sorted(places[:_NUM_NOTICES])]


def tool_rows(tools: Sequence[ToolCallSummary]) -> Iterator[tuple[str, ...]]:
    """Outcomes of each tool's calls."""
    for tool in tools:
        times = (latency(tool.mean_run_s), latency(tool.max_run_s), latency(tool.mean_queue_s))
        outcomes = " · ".join(f"{outcome} {number:,}" for outcome, number in tool.num_by_outcome.items())
        counts = (f"{tool.num_cached:,}", f"{tool.num_truncated:,}")
        yield visible(tool.name), f"{tool.num_calls:,}", *times, *counts, outcomes


_OF_TOOLS = ("tool", "calls", "mean", "longest", "queued", "cached", "cut", "outcomes")
_OF_JUDGES = ("judge", "tokens", "cost", "tokens a step", "cost a step", "cached", "kappa")
_OF_COSTS = ("spent on", "requests", "without usage", "tokens", "cached", "cost")


def usage_sheets(report: Report) -> list[Sheet]:
    """Tables of tools, judges and costs over the whole run, of those that it has."""
    used = "over training and evaluations"
    sheets = (
        Sheet("tools", used, _OF_TOOLS, tuple(tool_rows(report.tools)), figures=True),
        Sheet("judges", used, _OF_JUDGES, tuple(judge_rows(report.judges)), figures=True),
        Sheet("costs", "of all that the run did", _OF_COSTS, tuple(cost_rows(report.costs)), figures=True),
    )
    return [sheet for sheet in sheets if sheet.rows]


def sheet_markdown(sheet: Sheet) -> str:
    """One table with its title and note."""
    head = [f"## {sheet.title}", *([sheet.note] if sheet.note else [])]
    rule = ("---", *("---:" if sheet.figures else "---" for _ in sheet.header[1:]))
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in (sheet.header, rule, *sheet.rows)]
    return "\n\n".join([*head, "\n".join(f"| {' | '.join(row)} |" for row in cells)])
