"""The live view: events change the state, a thread of its own draws it, so that the run never waits for the screen."""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.constrain import Constrain
from rich.live import Live

from rlf.cli.board import board
from rlf.reports.progress import Progress
from rlf.types.events import RunEvent

if TYPE_CHECKING:
    from rlf.api.running.drive import RunInfo

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
