"""The plain view of a run, one line per step and evaluation, for logs and pipes; and what both views say."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rich.console import Console

from rlf.cli.output import Parts
from rlf.reports.progress import Progress
from rlf.reports.sheets import count, decimal, dollars, duration, percent, visible
from rlf.reports.success import kinds_of, success_words
from rlf.types.events import EvaluationFinished, Interrupted, Notice, RunEvent, RunFinished, StepFinished
from rlf.types.score import costs_by_name
from rlf.types.tool import Outcome

if TYPE_CHECKING:
    from rlf.runs.sink import RunInfo


def header_lines(info: RunInfo) -> tuple[str, str]:
    """Names a run in two lines."""
    first = f"{info.name} · {info.run_id}" + (f" · resumed at step {info.first_step}" if info.resumed else "")
    specs = " ".join(info.specs)
    return visible(first), visible(
        f"{info.model} on {info.device} · seed {info.seed} · plan {info.plan_hash[:12]} · {specs}"
    )


def cost_parts(costs_usd: Mapping[str, float]) -> Parts:
    """The sum, then each tool and judged term, the dearest first; nothing where nothing was spent."""
    if not costs_usd:
        return Parts(())
    named = sorted(costs_usd.items(), key=lambda pair: -pair[1])
    return Parts([dollars(sum(costs_usd.values())), *(f"{visible(name)} {dollars(cost)}" for name, cost in named)])


class PlainView:
    """Prints what happens as it happens."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def open(self, info: RunInfo) -> PlainView:
        """Prints what is about to run."""
        self._progress = Progress(info.total_steps, info.first_step, step=info.first_step - 1)
        for line in header_lines(info):
            self._print_line(line)
        return self

    def __call__(self, event: RunEvent) -> None:
        """Prints one line with the time for a step, an evaluation, a notice or the end."""
        now_s = time.monotonic()
        self._progress = self._progress.after(event, now_s)
        line = event_line(event, self._progress.total_steps, self._progress.time_left_s(now_s))
        if line is not None:
            self._print_line(f"{time.strftime('%H:%M:%S')}  {line}")

    def close(self) -> None:
        """Does nothing."""

    def _print_line(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def event_line(event: RunEvent, total_steps: int, left_s: float | None = None) -> str | None:
    """One line for a step, an evaluation, a notice or the end; None for what needs none."""
    match event:
        case StepFinished():
            return step_line(event, total_steps, left_s)
        case EvaluationFinished():
            return evaluation_line(event)
        case Interrupted():
            return interruption_line(event)
        case Notice():
            return f"{event.level}: {visible(event.text)}"
        case RunFinished():
            return f"{event.status} at step {event.step}"
    return None


def interruption_line(event: Interrupted) -> str:
    """`step 12 was cut off: 16 trajectories under way or over, 3 calls of tools cancelled`."""
    calls = [record for scored in event.trajectories for record in scored.trajectory.calls]
    num_cancelled = sum(record.result.outcome is Outcome.CANCELLED for record in calls)
    trajectories = f"{len(event.trajectories)} trajectories under way or over"
    return f"step {event.step} was cut off: {trajectories}, {num_cancelled} calls of tools cancelled"


def step_line(event: StepFinished, total_steps: int, left_s: float | None) -> str:
    """`step 12/60  success 71.4 %  reward 0.731  ...`."""
    figures = [words(event.metrics[name]) for name, words in _FIGURES.items() if name in event.metrics]
    parts = [f"step {event.step:>{len(str(total_steps))}}/{total_steps}", *figures]
    parts += _show_unscorable(event.metrics)
    cost_usd = sum(costs_by_name(event.trajectories).values())
    if cost_usd:
        parts.append(f"cost {dollars(cost_usd)}")
    if left_s is not None:
        parts.append(f"{duration(left_s)} left")
    return "  ".join(parts)


def _show_unscorable(metrics: Mapping[str, float]) -> list[str]:
    """The trajectories that are left out, where there are any."""
    return [f"{metrics['unscorable']:.0f} unscorable"] if metrics.get("unscorable") else []


_FIGURES: dict[str, Callable[[float], str]] = {
    "success": lambda value: f"success {percent(value):>7}",
    "reward/mean": lambda value: f"reward {decimal(value)}",
    "tools/calls_per_trajectory": lambda value: f"calls {value:.2f}",
    "throughput/generate_tokens_per_s": lambda value: f"generation {count(value)} tok/s",
    "throughput/update_tokens_per_s": lambda value: f"update {count(value)} tok/s",
    "tools/wait_share": lambda value: f"in tools {percent(value)}",
    "time/step_s": lambda value: f"{value:.2f} s",
}


def evaluation_line(event: EvaluationFinished) -> str:
    """`eval after step 20, sampled: success 61.0 % (95 % CI 54.9–66.8 %)  ...`."""
    metrics = event.metrics
    parts = [f"eval after step {event.step}, {event.mode}: success {success_words(metrics)}"]
    parts += [f"{visible(kind)} {percent(rate)}" for kind, rate in sorted(kinds_of(metrics).items())]
    parts += [f"{name} {percent(metrics[name])}" for name in sorted(metrics) if name.startswith("pass@")]
    if "num_questions" in metrics:
        clusters = f" in {metrics['num_clusters']:.0f} clusters" if "num_clusters" in metrics else ""
        parts.append(f"{metrics['num_questions']:.0f} questions{clusters}")
    parts += _show_unscorable(metrics)
    cost_usd = sum(costs_by_name(event.trajectories).values())
    if cost_usd:
        parts.append(f"cost {dollars(cost_usd)}")
    if "time/total_s" in metrics:
        parts.append(f"{metrics['time/total_s']:.1f} s")
    return "  ".join(parts)
