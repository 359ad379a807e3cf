"""Evaluations: the results of each target, side by side."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from rlf.core.plain_json import Jsonable
from rlf.lineage.calls import read_costs
from rlf.lineage.records import EVALUATION, Evaluation, Run, TrajectoryFilter, TrajectorySummary
from rlf.reports.sheets import count, decimal, dollars, duration, letters_for, rate, text_table, visible
from rlf.reports.statistics import find_spread, wilson_interval
from rlf.reports.success import interval_of, success_by_task
from rlf.types.tool import Outcome

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader


_SOLVE = "solve/"


@dataclass(frozen=True, slots=True)
class KindRate:
    """Success on the questions of one kind."""

    kind: str
    num_questions: int
    success: float
    low: float
    """Of the 95 % Wilson interval."""
    high: float


@dataclass(frozen=True, slots=True)
class EvaluationRow(Jsonable):
    """One target, tried in one mode."""

    run_id: str
    target: str
    mode: str
    num_questions: int
    """Those with a value."""
    num_clusters: int | None
    """Documents, worlds or templates of these, which the intervals count; None where the data names none."""
    num_samples: int
    """Trajectories in all."""
    num_failed: int
    """Trajectories that broke: they have no value and are in no mean."""
    causes: dict[str, int]
    """What broke those, in words, with how many."""
    failed_calls: dict[str, int]
    """Calls of tools that did not end well, by outcome; the model read why, so that they count."""
    success: float | None
    low: float | None
    """Of the 95 % Wilson interval over questions."""
    high: float | None
    pass_at: dict[int, float]
    """The unbiased chance that one of k samples succeeds, by k; empty for one sample."""
    pass_all: dict[int, float]
    """The unbiased chance that all of k samples succeed, by k: pass^k."""
    reward: float | None
    terms: dict[str, float]
    """Mean value of each reward term."""
    kinds: tuple[KindRate, ...]
    solves: dict[str, float]
    """Of rows with sub-questions: `p`, `r` and `f1` of those solved, and each by kind, as `f1/multi`."""
    num_calls: float
    """Per trajectory, as are the next three."""
    num_turns: float
    num_tokens: float
    """Sampled; of a model behind a server those that it counted."""
    seconds: float
    total_s: float | None
    """Of the process that ended the evaluation."""
    cost_usd: float
    """Of tools, judges, and the model where its server names a price."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """How a repeated evaluation stands to the one that it repeats."""

    run_id: str
    original: str
    num_compared: int
    """Trajectories of both."""
    num_same: int
    """Those with the same tokens; of a model behind a server, with the same texts."""
    metrics_differ: tuple[str, ...]
    """Metrics with another value, times left out."""


@dataclass(frozen=True, slots=True)
class EvaluationReport(Jsonable):
    """Every target that was tried, with its results."""

    rows: tuple[EvaluationRow, ...]
    repeats: tuple[Repeat, ...] = ()


def is_evaluation(run: Run) -> bool:
    """Whether a run is an evaluation of its own."""
    return run.record.engine == EVALUATION


def read_evaluations(
    reader: Reader, run_ids: Sequence[str], original_by_id: Mapping[str, str] = MappingProxyType({})
) -> EvaluationReport:
    """The report of evaluations in the lineage.

    Args:
        original_by_id: of those that repeat a run's evaluation, or another one, that run.
    """
    rows = [row for run_id in run_ids for row in _iterate_rows(reader, run_id)]
    repeats = [_read_repeat(reader, run_id, original) for run_id, original in original_by_id.items()]
    return EvaluationReport(tuple(rows), tuple(repeat for repeat in repeats if repeat.num_compared))


def _iterate_rows(reader: Reader, run_id: str) -> Iterator[EvaluationRow]:
    run = reader.get_run(run_id)
    cost_usd: dict[str, float] = defaultdict(float)
    for cost in read_costs(reader, run_id):
        for phase, value in cost.cost_usd_by_phase.items():
            cost_usd[phase] += value
    for found in sorted(reader.evaluations(run_id), key=lambda item: (item.mode != "sampled", item.mode)):
        tries = reader.trajectories(run_id, TrajectoryFilter(phase=found.mode, step=found.step))
        yield _make_evaluation_row(run, found, tries, reader.clusters(run, found.mode), cost_usd[found.mode])


def _make_evaluation_row(
    run: Run, found: Evaluation, tries: Sequence[TrajectorySummary], clusters: Mapping[str, str], cost_usd: float
) -> EvaluationRow:
    metrics, broken = found.metrics, [item for item in tries if item.reward is None]
    low, high = interval_of(metrics) or (None, None)
    served = metrics.get("endpoint/completion_tokens")
    means = {
        name.removeprefix("rewards/").removesuffix("/mean"): value
        for name, value in metrics.items()
        if name.startswith("rewards/") and name.endswith("/mean")
    }
    return EvaluationRow(
        run_id=run.record.id,
        target=run.record.plan["evaluation"]["target"],
        mode=found.mode,
        num_questions=int(metrics.get("num_questions", 0)),
        num_clusters=int(found.metrics["num_clusters"]) if "num_clusters" in metrics else None,
        num_samples=len(tries),
        num_failed=len(broken),
        causes=dict(Counter((item.error or "a reward term").split("\n")[0][:120] for item in broken)),
        failed_calls=_failed_calls(metrics),
        success=metrics.get("success"),
        low=low,
        high=high,
        pass_at=_by_k(metrics, "pass@"),
        pass_all=_by_k(metrics, "pass^"),
        reward=metrics.get("reward/mean"),
        terms=means,
        kinds=tuple(_rate_kinds(tries, clusters)),
        solves={name.removeprefix(_SOLVE): value for name, value in metrics.items() if name.startswith(_SOLVE)},
        num_calls=fmean(item.num_calls for item in tries) if tries else 0.0,
        num_turns=fmean(item.num_turns for item in tries) if tries else 0.0,
        num_tokens=_mean_tokens(tries, served),
        seconds=fmean(item.duration_s for item in tries) if tries else 0.0,
        total_s=metrics.get("time/total_s"),
        cost_usd=cost_usd + metrics.get("endpoint/cost_usd", 0.0),
    )


def _mean_tokens(tries: Sequence[TrajectorySummary], served: float | None) -> float:
    if not tries:
        return 0.0
    return fmean(item.num_sampled for item in tries) if served is None else served / len(tries)


_OUTCOME = "tools/outcome/"


def _failed_calls(metrics: Mapping[str, float]) -> dict[str, int]:
    found = {name.removeprefix(_OUTCOME): int(value) for name, value in metrics.items() if name.startswith(_OUTCOME)}
    return {outcome: number for outcome, number in found.items() if outcome != Outcome.OK}


def _by_k(metrics: dict[str, float], prefix: str) -> dict[int, float]:
    return {int(name.removeprefix(prefix)): value for name, value in metrics.items() if name.startswith(prefix)}


def _rate_kinds(tries: Sequence[TrajectorySummary], clusters: Mapping[str, str]) -> Iterator[KindRate]:
    kind_by_task = {item.task_id: item.kind for item in tries}
    rates: dict[str, dict[str, float]] = defaultdict(dict)
    for task, success in success_by_task(tries).items():
        if (kind := kind_by_task[task]) is not None:
            rates[kind][task] = success
    for kind, values in sorted(rates.items()):
        successes = list(values.values())
        interval = wilson_interval(
            sum(successes), len(successes), spread=find_spread(values, clusters, are_shares=True)
        )
        yield KindRate(kind, len(successes), fmean(successes), interval.low, interval.high)


def _read_repeat(reader: Reader, run_id: str, original: str) -> Repeat:
    """Holds an evaluation against the one that it repeats: trajectory by trajectory, metric by metric."""
    num_compared = num_same = 0
    differ: list[str] = []
    before = {(item.step, item.mode): item for item in reader.evaluations(original)}
    for found in reader.evaluations(run_id):
        other = before.get((found.step, found.mode))
        if other is None:
            continue
        names = sorted(name for name in other.metrics if not name.startswith(("time/", "throughput/")))
        differ += [f"{found.mode} {name}" for name in names if found.metrics.get(name) != other.metrics[name]]
        wanted = TrajectoryFilter(phase=found.mode, step=found.step)
        mine, theirs = (_read_contents(reader, each, wanted) for each in (run_id, original))
        shared = mine.keys() & theirs.keys()
        num_compared += len(shared)
        num_same += sum(mine[key] == theirs[key] for key in shared)
    return Repeat(run_id, original, num_compared, num_same, tuple(differ))


def _read_contents(reader: Reader, run_id: str, wanted: TrajectoryFilter) -> dict[tuple[str, int], object]:
    """The content of each trajectory: its tokens, or its texts where it has none."""
    found: dict[tuple[str, int], object] = {}
    for summary in reader.trajectories(run_id, wanted):
        stored = reader.whole(run_id, summary)
        if stored is not None:
            trajectory = stored.scored.trajectory
            texts = [turn.text for turn in trajectory.turns]
            found[summary.task_id, summary.sample_index] = list(trajectory.tokens) if trajectory.tokens else texts
    return found


def evaluations_view(report: EvaluationReport) -> Group:
    """The report for people: targets, each with a letter, then tables of their results, by kind and by term."""
    run_ids = list(dict.fromkeys(row.run_id for row in report.rows))
    letters = dict(zip(run_ids, letters_for(len(run_ids)), strict=True)) if len(run_ids) > 1 else {}
    parts: list[Table | Text] = []
    for run_id, target in {row.run_id: row.target for row in report.rows}.items():
        before = f"{letters[run_id]}  " if run_id in letters else ""
        parts.append(Text(f"{before}{visible(target)}  ", "bold").append(f"evaluation {run_id}", "dim not bold"))
    label = [("", [letters[row.run_id] for row in report.rows])] if letters else []
    label.append(("mode", [row.mode for row in report.rows]))
    for list_columns in (_list_figures, _list_kinds, _list_solves, _list_terms):
        if columns := list_columns(report.rows):
            names, values = zip(*label, *columns.items(), strict=True)
            parts += [Text(), text_table(names, zip(*values, strict=True), left=("", "mode"))]
    lines = [*_failure_lines(report.rows), *map(_repeat_line, report.repeats)]
    return Group(*parts, *([Text()] if lines else []), *map(Text, lines))


def _list_figures(rows: Sequence[EvaluationRow]) -> dict[str, list[str]]:
    intervals = [None if row.low is None or row.high is None else (row.low, row.high) for row in rows]
    columns = {"success (95 % CI)": [rate(row.success, each) for row, each in zip(rows, intervals, strict=True)]}
    for k in sorted({k for row in rows for k in row.pass_at if k > 1}):
        columns[f"pass@{k}"] = [rate(row.pass_at.get(k), None) for row in rows]
    for k in sorted({k for row in rows for k in row.pass_all if k > 1}):
        columns[f"pass^{k}"] = [rate(row.pass_all.get(k), None) for row in rows]
    columns["reward"] = [decimal(row.reward) for row in rows]
    columns["questions"] = [str(row.num_questions) for row in rows]
    if any(row.num_clusters for row in rows):
        columns["clusters"] = ["–" if row.num_clusters is None else str(row.num_clusters) for row in rows]
    columns |= {
        "failed": [str(row.num_failed) for row in rows],
        "calls": [f"{row.num_calls:.2f}" for row in rows],
        "turns": [f"{row.num_turns:.2f}" for row in rows],
        "tokens": [count(row.num_tokens) for row in rows],
        "s each": [f"{row.seconds:.2f}" for row in rows],
        "time": [duration(row.total_s) for row in rows],
    }
    return columns | ({"cost": [dollars(row.cost_usd) for row in rows]} if any(row.cost_usd for row in rows) else {})


def _list_kinds(rows: Sequence[EvaluationRow]) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {}
    for name in sorted({kind.kind for row in rows for kind in row.kinds}):
        found = [next((kind for kind in row.kinds if kind.kind == name), None) for row in rows]
        most = max(kind.num_questions for kind in found if kind is not None)
        columns[f"{visible(name)} ({most})"] = [
            "–" if kind is None else rate(kind.success, (kind.low, kind.high)) for kind in found
        ]
    return columns


def _list_solves(rows: Sequence[EvaluationRow]) -> dict[str, list[str]]:
    """Solve-F1 with precision and recall, over all and by kind: precision never stands alone."""
    names = sorted({name.removeprefix("f1") for row in rows for name in row.solves if name.startswith("f1")})
    return {
        visible(name.removeprefix("/")) or "Solve-F1 (P, R)": [
            f"{row.solves['f1' + name]:.3f} ({row.solves['p' + name]:.2f}, {row.solves['r' + name]:.2f})"
            if "f1" + name in row.solves
            else "–"
            for row in rows
        ]
        for name in names
    }


def _list_terms(rows: Sequence[EvaluationRow]) -> dict[str, list[str]]:
    """Each term's mean, where there are several."""
    terms = dict.fromkeys(term for row in rows for term in row.terms)
    several = any(len(row.terms) > 1 for row in rows)
    return {visible(term): [decimal(row.terms.get(term)) for row in rows] for term in terms} if several else {}


def _failure_lines(rows: Sequence[EvaluationRow]) -> Iterator[str]:
    """Trajectories that broke, and calls that failed: a tool that is slow or down must not pass for a bad model."""
    for row in rows:
        name = f"{visible(row.target)}, {row.mode}"
        for cause, number in row.causes.items():
            yield f"{name}: {number} of {row.num_samples} broke and have no value: {visible(cause)}"
        if row.failed_calls:
            outcomes = ", ".join(f"{number} {outcome}" for outcome, number in row.failed_calls.items())
            yield f"{name}: calls that failed: {outcomes} (rlf trace {row.run_id} --outcome failed)"


def _repeat_line(repeat: Repeat) -> str:
    """`the same as in run X: 16 of 16 trajectories token for token, every metric`."""
    same = f"{repeat.num_same} of {repeat.num_compared} trajectories are the same, token for token"
    if repeat.num_same == repeat.num_compared and not repeat.metrics_differ:
        return f"as in run {repeat.original}: {same}, and every metric"
    differ = ", ".join(repeat.metrics_differ[:6]) or "none"
    return f"against run {repeat.original}: {same}; metrics that differ: {differ}"
