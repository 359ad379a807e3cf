"""What a run looks like while it runs."""

from __future__ import annotations

import io
import logging
import re
import sys
import threading
import time
from itertools import pairwise

import pytest
from rich.console import Console
from rich.text import Text

from rlf.cli.board import LiveView, board
from rlf.cli.envelope import JsonLines, prints_aside
from rlf.cli.live import PlainView
from rlf.cli.output import Parts
from rlf.cli.run import choose_view
from rlf.core.process import configure
from rlf.reports.progress import Progress
from rlf.types import EvaluationFinished, Notice, RunEvent, RunFinished, RunStatus, StepFinished

from ..reports.rendering import rendered
from ..reports.synthetic import events
from .conftest import run_info


def terminal(width: int = 80, height: int = 40) -> Console:
    options = {"markup": False, "highlight": False, "emoji": False}
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=height, **options)  # type: ignore[arg-type]


def pipe() -> Console:
    return Console(file=io.StringIO(), width=80, markup=False, highlight=False, emoji=False)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def after(num_events: int) -> Progress:
    progress = Progress(12)
    for number, event in enumerate(list(events())[:num_events]):
        progress = progress.after(event, 1.5 * number)
    return progress


@pytest.mark.parametrize("width", [80, 120])
def test_the_board_tells_everything_a_run_reports(width: int) -> None:
    text = rendered(board(run_info(), after(15), 20.0, 22.0, width), width)
    flowed = " ".join(text.split())
    for fact in (
        "search · 20260102-030405-abcd",
        "builtin:tiny on cpu · seed 0 · plan cdcdcdcdcdcd · specs/search.yaml",
        "step 8/12",
        "0:22 ·",
        "left",
        "success 69.5 % ▃▃▄▄▅▅▆▆",
        "reward 0.795",
        "exact_match 0.695 · well_formed 0.980",
        "1.42 calls per trajectory · ok 178 · timeout 3 · unknown_tool 1",
        "parsing bad_json 2 · truncated 1",
        "2.31 turns · 88 tokens (31 sampled)",
        "generation 12.3k tokens/s (0.61 s) · update 8.1k tokens/s (0.88 s)",
        "in tools 2.1 %",
        "sampled 73.3 %",
        "was 3.3 %",
        "checkpoint of step 4",
        "warning the group of one question is dead",
    ):
        assert fact in flowed, fact


def test_facts_break_between_and_never_within() -> None:
    assert rendered(Parts(["2.31 turns", "answered 97.0 %"], ["length 3.0 %"]), 28) == (
        "2.31 turns · answered 97.0 %\nlength 3.0 %"
    )
    assert not Parts([])


def test_the_picture_leaves_room_for_the_terminals_echo() -> None:
    console = terminal()
    view = LiveView(console)
    view.open(run_info())
    view.close()
    lines = [Text.from_ansi(line).plain.rstrip("\n") for line in written(console).splitlines()]
    assert max(len(line) for line in lines) <= 76


def test_the_board_before_anything_happened_is_whole() -> None:
    text = rendered(board(run_info(), Progress(12), 0.0, 0.0, 80))
    assert "0/12" in text
    assert "nothing has finished yet" in text


def test_any_metric_may_be_missing_or_not_finite() -> None:
    progress = Progress(12).after(StepFinished(1, {"success": float("nan"), "tools/wait_share": 0.1}, (), ()), 0.0)
    progress = progress.after(EvaluationFinished(1, "sampled", {}, ()), 1.0)
    text = rendered(board(run_info(), progress, 1.0, 1.0, 80))
    assert "in tools 10.0 %" in text
    assert "left" not in text


def test_the_end_is_on_the_board() -> None:
    assert "· interrupted" in rendered(
        board(run_info(), after(4).after(RunFinished(RunStatus.INTERRUPTED, 1), 9), 9, 9, 80)
    )


def test_a_resumed_run_says_where_it_resumes() -> None:
    assert "resumed at step 5" in rendered(board(run_info(resumed=True, first_step=5), Progress(12, 5, 4), 0, 0, 80))


def test_hostile_names_and_notices_are_shown_as_they_are() -> None:
    progress = Progress(12).after(Notice("warning", "\x1b[2J[red]x[/] :smile:", {}), 0.0)
    assert "\\x1b[2J[red]x[/] :smile:" in rendered(board(run_info(), progress, 0, 0, 80))


def test_the_live_view_ends_with_the_last_state_and_gives_the_terminal_back() -> None:
    console = terminal()
    view = LiveView(console)
    sink = view.open(run_info())
    for event in events():
        sink(event)
    view.close()
    text = written(console)
    assert "12/12" in text
    assert "· finished" in text
    assert text.rstrip().endswith("\x1b[?25h")
    assert not [thread for thread in threading.enumerate() if thread.name == "rlf-live-view"]
    view.close()


def test_closing_a_view_that_never_opened_does_nothing() -> None:
    LiveView(terminal()).close()


def test_a_step_reaches_the_screen_while_the_run_goes_on() -> None:
    console = terminal()
    view = LiveView(console)
    sink = view.open(run_info())
    try:
        for event in list(events())[:4]:
            sink(event)
        deadline = time.monotonic() + 5
        while "1/12" not in written(console) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert "1/12" in written(console)
    finally:
        view.close()


def test_taking_an_event_costs_a_run_next_to_nothing() -> None:
    view = LiveView(terminal())
    sink = view.open(run_info(total_steps=500))
    steps = list(events(num_steps=500, eval_every=501))
    started = time.thread_time()
    for event in steps:
        sink(event)
    spent = time.thread_time() - started
    view.close()
    assert spent / len(steps) < 0.001


def test_drawing_takes_less_than_a_hundredth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[float] = []
    view = LiveView(terminal())

    def slow_draw() -> float:
        drawn.append(time.monotonic())
        return 0.004

    view.open(run_info())
    monkeypatch.setattr(view, "_draw_board", slow_draw)
    ends = time.monotonic() + 1.6
    while time.monotonic() < ends:
        view(StepFinished(1, {}, (), ()))
        time.sleep(0.01)
    view.close()
    pauses = [later - earlier for earlier, later in pairwise(drawn)][1:-1]
    assert pauses
    assert min(pauses) > 0.5


def test_log_lines_follow_stderr_into_the_view_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    configure()
    console = terminal()
    view = LiveView(console)
    view.open(run_info())
    logging.getLogger("rlf.test").warning("above the picture")
    view.close()
    logging.getLogger("rlf.test").warning("after it")
    assert "above the picture" in written(console)
    assert "above" not in stderr.getvalue()
    assert "after it" in stderr.getvalue()


def test_the_plain_view_prints_one_line_with_its_time_per_event_and_wraps_none() -> None:
    console = pipe()
    view = PlainView(console).open(run_info())
    for event in events():
        view(event)
    lines = written(console).splitlines()
    assert len([line for line in lines if re.match(r"\d\d:\d\d:\d\d  step ", line)]) == 12
    assert len([line for line in lines if re.match(r"\d\d:\d\d:\d\d  eval after step ", line)]) == 8
    assert "pass@4 80.0 %" not in written(console)
    assert any(line.endswith("left") for line in lines)
    assert lines[-1][8:] == "  finished at step 12"


def test_an_evaluation_line_has_kinds_and_pass_at_k() -> None:
    console = pipe()
    metrics = {"success": 0.6, "success/low": 0.5, "success/high": 0.7, "success/single": 0.9, "pass@4": 0.8}
    PlainView(console).open(run_info())(EvaluationFinished(3, "sampled", metrics, ()))
    line = written(console).splitlines()[-1]
    assert line[8:] == "  eval after step 3, sampled: success 60.0 % (50.0–70.0 %)  single 90.0 %  pass@4 80.0 %"


@pytest.mark.parametrize(("num", "words"), [(35.0, "  35 unscorable"), (0.0, "")])
def test_a_step_names_the_trajectories_that_are_left_out(num: float, words: str) -> None:
    console = pipe()
    PlainView(console).open(run_info())(StepFinished(1, {"success": 0.5, "unscorable": num}, (), ()))
    assert f"success  50.0 %{words}" in written(console) and ("unscorable" in written(console)) is bool(num)


def test_json_lines_are_valid_where_a_metric_is_not_finite_and_a_tool_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    event: RunEvent = StepFinished(1, {"loss/policy": float("nan")}, (), ())
    with prints_aside(), prints_aside():
        print("what a tool prints")
        JsonLines("run")(event)
    print("what the command prints")
    written = capsys.readouterr()
    assert '"loss/policy": null' in written.out and written.err == "what a tool prints\n"
    assert "a tool" not in written.out and written.out.endswith("what the command prints\n")


def test_the_view_fits_where_the_output_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TERM", raising=False)
    assert isinstance(choose_view(terminal(), "run", as_json=False), LiveView)
    assert isinstance(choose_view(pipe(), "run", as_json=False), PlainView)
    assert isinstance(choose_view(terminal(), "run", as_json=True), JsonLines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(choose_view(terminal(), "run", as_json=False), PlainView)
