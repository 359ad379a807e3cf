"""The live view: events change the state, a thread of its own draws it, so that the run never waits for the screen."""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from rlf.cli.live import cost_parts, header_lines
from rlf.cli.output import Parts
from rlf.reports.progress import Progress
from rlf.reports.sheets import count, decimal, duration, label_grid, percent, percent_range, visible
from rlf.reports.success import interval_of
from rlf.types.events import EvaluationFinished, RunEvent

if TYPE_CHECKING:
    from rlf.runs.sink import RunInfo

_LABEL_WIDTH = 9

_FIGURE_WIDTH = 8

_MAX_CURVE_WIDTH = 60

_POLICY_METRICS = {
    "loss/policy": "loss",
    "policy/entropy": "entropy",
    "policy/clip_fraction": "clipped",
    "policy/mismatch_kl": "mismatch KL",
    "policy/kl_ref": "reference KL",
    "policy/grad_norm": "gradient",
    "policy/learning_rate": "lr",
}

_NOTICE_STYLES = {"warning": "yellow", "error": "red"}


def board(info: RunInfo, progress: Progress, now_s: float, elapsed_s: float, width: int) -> RenderableType:
    """Draws a run as it stands.

    Args:
        now_s: Time on the clock of `progress`.
        elapsed_s: Seconds since this process began the run.
        width: Columns of the terminal.
    """
    curve_width = max(8, min(_MAX_CURVE_WIDTH, width - _LABEL_WIDTH - _FIGURE_WIDTH - 14))
    grid = label_grid(_list_lines(progress, curve_width), _LABEL_WIDTH)
    return Group(*_show_header(info), _show_bar(progress, now_s, elapsed_s), grid)


def _show_header(info: RunInfo) -> Iterator[RenderableType]:
    title, facts = header_lines(info)
    yield Rule(Text(title, "bold"), align="left", style="dim")
    yield Text(facts, "dim", overflow="ellipsis", no_wrap=True)


def _show_bar(progress: Progress, now_s: float, elapsed_s: float) -> RenderableType:
    grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
    grid.add_column(width=_LABEL_WIDTH, style="dim")
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True)
    steps = Text(f"{progress.step}/{progress.total_steps}", "bold")
    grid.add_row(
        "step", steps, ProgressBar(progress.total_steps, progress.step), _show_clock(progress, now_s, elapsed_s)
    )
    return grid


def _show_clock(progress: Progress, now_s: float, elapsed_s: float) -> Text:
    text = Text(duration(elapsed_s))
    if progress.finished is not None:
        return text.append(f" · {progress.finished.status}", "bold")
    left = progress.time_left_s(now_s)
    return text if left is None else text.append(f" · {duration(left)} left", "dim")


def _list_lines(progress: Progress, curve_width: int) -> Iterator[tuple[str, RenderableType]]:
    metrics = progress.metrics
    policy = [f"{word} {decimal(metrics[name])}" for name, word in _POLICY_METRICS.items() if name in metrics]
    if "success" in metrics:
        yield "success", _show_curve(percent(metrics["success"]), progress, "success", curve_width, unit=True)
    if "reward/mean" in metrics:
        yield "reward", _show_curve(decimal(metrics["reward/mean"]), progress, "reward/mean", curve_width, unit=False)
    names = [name for name in metrics if name.startswith("rewards/") and name.endswith("/mean")]
    pairs = [(name.removeprefix("rewards/").removesuffix("/mean"), decimal(metrics[name])) for name in sorted(names)]
    for label, content in (
        ("terms", Parts([f"{visible(name)} {value}" for name, value in pairs])),
        ("tools", _tool_parts(metrics)),
        ("parsing", Parts((), alarms=_show_counts(metrics, "tools/parse_failure/"))),
        ("rollouts", _rollout_parts(metrics)),
        ("speed", _show_speed(metrics)),
        ("policy", Parts(policy)),
        ("cost", cost_parts(progress.costs_usd)),
    ):
        if content:
            yield label, content
    for mode in dict.fromkeys(evaluation.mode for evaluation in progress.evaluations):
        yield mode, _show_evaluations([item for item in progress.evaluations if item.mode == mode], curve_width // 3)
    if not metrics and not progress.evaluations:
        yield "", Text("nothing has finished yet", "dim")
    if progress.checkpoint_step is not None:
        yield "saved", Text(f"checkpoint of step {progress.checkpoint_step}")
    for notice in progress.notices:
        yield notice.level, Text(visible(notice.text), _NOTICE_STYLES.get(notice.level, "none"))


def _show_curve(figure: str, progress: Progress, name: str, width: int, *, unit: bool) -> Text:
    """A figure and its curve over the steps; `unit` curves span 0 to 1, others what they reach."""
    curve = progress.curves.get(name, ())
    low, high = (0.0, 1.0) if unit else (None, None)
    text = Text(f"{figure:<{_FIGURE_WIDTH}} ", "bold", no_wrap=True).append(
        sparkline(curve, width, low, high), "not bold green"
    )
    std = progress.metrics.get(name.replace("/mean", "/std")) if not unit else None
    return text if std is None else text.append(f"  std {decimal(std)}", "not bold dim")


def _tool_parts(metrics: Mapping[str, float]) -> Parts:
    parts = []
    if "tools/calls_per_trajectory" in metrics:
        parts.append(f"{metrics['tools/calls_per_trajectory']:.2f} calls per trajectory")
    outcomes = _show_counts(metrics, "tools/outcome/")
    fine = [outcome for outcome in outcomes if outcome.startswith("ok ")]
    return Parts([*parts, *fine], alarms=[outcome for outcome in outcomes if outcome not in fine])


def _rollout_parts(metrics: Mapping[str, float]) -> Parts:
    parts = []
    if "turns/mean" in metrics:
        parts.append(f"{metrics['turns/mean']:.2f} turns")
    if "tokens/total" in metrics:
        parts.append(f"{metrics['tokens/total']:,.0f} tokens ({decimal(metrics.get('tokens/sampled'), 0)} sampled)")
    stops = [(name.removeprefix("stop/"), metrics[name]) for name in metrics if name.startswith("stop/")]
    parts += [f"{name} {percent(share)}" for name, share in sorted(stops, key=lambda stop: -stop[1]) if share]
    if metrics.get("unscorable"):
        parts.append(f"unscorable {metrics['unscorable']:.0f}")
    if metrics.get("groups/dead_share"):
        parts.append(f"dead groups {percent(metrics['groups/dead_share'])}")
    return Parts(parts)


def _show_speed(metrics: Mapping[str, float]) -> Parts:
    parts = []
    for name, unit in (("generate", "generation"), ("update", "update")):
        rate, seconds = metrics.get(f"throughput/{name}_tokens_per_s"), metrics.get(f"time/{name}_s")
        if rate is not None:
            parts.append(f"{unit} {count(rate)} tokens/s" + ("" if seconds is None else f" ({seconds:.2f} s)"))
    if "tools/wait_share" in metrics:
        parts.append(f"in tools {percent(metrics['tools/wait_share'])}")
    if "memory/peak_bytes" in metrics:
        parts.append(f"{metrics['memory/peak_bytes'] / 2**30:.1f} GiB")
    return Parts(parts)


def _show_counts(metrics: Mapping[str, float], prefix: str) -> list[str]:
    found = [(name.removeprefix(prefix), metrics[name]) for name in metrics if name.startswith(prefix)]
    return [f"{name} {number:.0f}" for name, number in sorted(found, key=lambda pair: -pair[1]) if number]


def _show_evaluations(evaluations: Sequence[EvaluationFinished], curve_width: int) -> Text:
    first, last = evaluations[0], evaluations[-1]
    curve = sparkline([item.metrics.get("success", math.nan) for item in evaluations], curve_width, 0.0, 1.0)
    text = Text(f"{percent(last.metrics.get('success')):<{_FIGURE_WIDTH}} ", "bold").append(curve, "not bold cyan")
    interval = interval_of(last.metrics)
    text.append(f"  step {last.step}" + ("" if interval is None else f" ({percent_range(*interval)})"), "not bold")
    if last is not first:
        text.append(f", was {percent(first.metrics.get('success'))}", "not bold dim")
    return text


_ECHO_WIDTH = 4
"""Columns left free at the right: the terminal's `^C` would else wrap and shift the frame by a line."""

_MIN_PAUSE_S = 0.25
"""Between two frames, at least."""

_PAUSE_PER_DRAWING = 150
"""Pauses last at least this many times what drawing took: drawing costs under 1 % of the time on any machine."""

_CLOCK_S = 1.0
"""Between two frames when only the clock moves."""


class LiveView:
    """Draws a run in place on a terminal.

    The run's thread only replaces `_progress`, a frozen value, and sets `_news`; the drawing thread only reads.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._news = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self, info: RunInfo) -> LiveView:
        """Takes the terminal over and draws the first frame."""
        self._info = info
        self._progress = Progress(info.total_steps, info.first_step, step=info.first_step - 1, costs_usd=info.costs_usd)
        self._started_s = time.monotonic()
        stderr = sys.stderr
        self._live = Live(console=self._console, auto_refresh=False, redirect_stderr=stderr.isatty())
        self._live.start()
        _move_logs(stderr, sys.stderr)
        self._draw_board()
        self._thread = threading.Thread(target=self._keep_drawing, name="rlf-live-view", daemon=True)
        self._thread.start()
        return self

    def __call__(self, event: RunEvent) -> None:
        """Takes one event; costs microseconds."""
        self._progress = self._progress.after(event, time.monotonic())
        self._news.set()

    def close(self) -> None:
        """Draws the last frame and leaves it on the screen."""
        if self._thread is None:
            return
        self._closing.set()
        self._news.set()
        self._thread.join()
        self._thread = None
        self._draw_board()
        stderr = sys.stderr
        self._live.stop()
        _move_logs(stderr, sys.stderr)

    def _keep_drawing(self) -> None:
        pause_s = _MIN_PAUSE_S
        while not self._closing.wait(pause_s):
            self._news.wait(max(0.0, _CLOCK_S - pause_s))
            self._news.clear()
            if not self._closing.is_set():
                pause_s = max(_MIN_PAUSE_S, _PAUSE_PER_DRAWING * self._draw_board())

    def _draw_board(self) -> float:
        """Draws the present state; returns the seconds it took."""
        now_s = time.monotonic()
        width = max(1, self._console.width - _ECHO_WIDTH)
        frame = board(self._info, self._progress, now_s, now_s - self._started_s, width)
        self._live.update(Constrain(frame, width), refresh=True)
        return time.monotonic() - now_s


def _move_logs(old: TextIO, new: TextIO) -> None:
    """Points rlf's log from one stderr at another: while there is a frame, lines go above it."""
    for handler in logging.getLogger("rlf").handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is old:
            handler.setStream(new)


_LEVELS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int, low: float | None = None, high: float | None = None) -> str:
    """One character per value; more values than `width` are averaged into `width` equal segments.

    Args:
        values: The curve; a value that is not finite leaves a gap.
        width: Most characters to use.
        low: Value of the lowest level; None takes the smallest value shown.
        high: Value of the highest level; None takes the largest value shown.
    """
    shown = _squeeze_values(values, width)
    finite = [value for value in shown if math.isfinite(value)]
    if not finite:
        return " " * len(shown)
    bottom = min(finite) if low is None else low
    top = max(finite) if high is None else high
    return "".join(_draw_level(value, bottom, top) for value in shown)


def _draw_level(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return " "
    # Halves, because the difference of two huge values may overflow.
    share = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.0
    return _LEVELS[min(len(_LEVELS) - 1, max(0, int(share * len(_LEVELS))))]


def _squeeze_values(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        return list(values)
    edges = [len(values) * i // width for i in range(width + 1)]
    parts = ([value for value in values[start:end] if math.isfinite(value)] for start, end in pairwise(edges))
    return [sum(value / len(part) for value in part) if part else math.nan for part in parts]
