"""A comparison as tables of text, the same for the terminal, Markdown and the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from rlf.reports.compare.comparison import Comparison
from rlf.reports.compare.outcomes import Reached
from rlf.reports.judges import judge_totals
from rlf.reports.power import power_words
from rlf.reports.quantities import MISSING, count, decimal, dollars, duration, latency, percent, rate, visible
from rlf.reports.sheets import Sheet, sheet_markdown
from rlf.reports.statistics import Estimate

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
    over = "in brackets: 95 % confidence intervals, over seeds where there are several, else over questions"
    figures = [
        (f"held-out success, {found.mode}", over, _result_rows),
        ("training", "means over the last tenth of the steps", _sheet_rows),
        ("tools", "over training and evaluations", _tool_rows),
        ("judges", "over training and evaluations, mean of the runs", _judge_rows),
    ]
    results = [Sheet(title, note, ("", *letters), tuple(rows(found)), figures=True) for title, note, rows in figures]
    origins = [
        Sheet("what differs", "", ("cause", "what", *letters), tuple(_difference_rows(found))),
        Sheet("arms", "", ("", "name", "seeds", "runs", "status", "steps"), tuple(_arm_rows(found))),
    ]
    return Sheets([sheet for sheet in results if sheet.rows], [sheet for sheet in origins if sheet.rows])


def _arm_rows(found: Comparison) -> Iterator[tuple[str, ...]]:
    for arm in found.arms:
        records = [member.run.record for member in arm.members]
        yield (
            arm.letter,
            visible(arm.label),
            " ".join(str(record.seed) for record in records),
            " ".join(record.id for record in records),
            _join_distinct(str(member.run.status) for member in arm.members),
            _join_distinct(str(member.run.last_step) for member in arm.members),
        )


def _join_distinct(words: Iterator[str]) -> str:
    return " ".join(dict.fromkeys(words))


def _difference_rows(found: Comparison) -> Iterator[tuple[str, ...]]:
    for item in found.differences:
        yield item.cause, visible(item.what), *(MISSING if value is None else visible(value) for value in item.values)


def _result_rows(found: Comparison) -> Iterator[tuple[str, ...]]:
    if found.mode is None:
        return
    outcomes = found.outcomes
    yield "at the end", *(_show_figure(item.final) for item in outcomes)
    yield "best", *(_show_figure(item.best) for item in outcomes)
    yield "area under the curve", *(_show_figure(item.area) for item in outcomes)
    level = percent(found.threshold)
    reached = [item.reached for item in outcomes]
    runs = [len(arm.members) for arm in found.arms]
    yield f"steps to {level}", *(_show_steps(item, n) for item, n in zip(reached, runs, strict=True))
    yield f"tokens to {level}", *(MISSING if item is None else count(item.tokens) for item in reached)
    yield f"tool calls to {level}", *(MISSING if item is None else count(item.tool_calls) for item in reached)
    yield f"time to {level}", *(MISSING if item is None else duration(item.wall_s) for item in reached)


def _show_figure(figure: Estimate | None) -> str:
    return MISSING if figure is None else rate(figure.value, figure.interval)


def _show_steps(reached: Reached | None, num_runs: int) -> str:
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
