"""A sweep of seeds alone is its members, their mean and its interval."""

from types import SimpleNamespace

import pytest
from rich.console import Console

from rlf.lineage.records import SWEEP, Step
from rlf.reports import sweep as module
from rlf.reports.comparison_views import seeds_markdown, seeds_page
from rlf.reports.sweep import SweepReport, SweepRow, read_seeds, seeds_view
from rlf.types import RunStatus


def reader(monkeypatch, *members):
    rows = tuple(
        SweepRow(overrides, f"run-{at}", RunStatus.FINISHED, 4, 0.1, after)
        for at, (overrides, after) in enumerate(members)
    )
    report = SweepReport("sweep-1", "search", RunStatus.FINISHED, None, rows)
    monkeypatch.setattr(module, "read_sweep", lambda reader, run_id: report)
    return SimpleNamespace(get_run=lambda name: SimpleNamespace(record=SimpleNamespace(engine=SWEEP, id="sweep-1")))


def test_the_mean_of_seeds_has_an_interval(monkeypatch):
    found = read_seeds(reader(monkeypatch, (("seed=0",), 0.4), (("seed=1",), 0.5), (("seed=2",), 0.6)), ["sweep-1"])
    assert found is not None and found.interval is not None
    assert found.mean == pytest.approx(0.5)
    # s = 0.1, t(2; 0.975) = 4.3027: 0.5 -+ 4.3027 * 0.1 / sqrt(3)
    assert found.interval == pytest.approx((0.2516, 0.7484), abs=1e-4)
    console = Console(width=100)
    with console.capture() as shown:
        console.print(seeds_view(found))
    assert all(f"run-{at}" in shown.get() for at in range(3))
    assert "mean of 3 seeds 50.0 %, 95 % interval 25.2–74.8 %" in shown.get()


def test_an_interval_of_shares_stays_within_them_and_markdown_has_the_mean(monkeypatch):
    found = read_seeds(reader(monkeypatch, (("seed=0",), 0.0), (("seed=1",), 0.9)), ["sweep-1"])
    assert found is not None and found.interval == (0.0, 1.0)
    text = seeds_markdown(found)
    assert "mean of 2 seeds 45.0 %, 95 % interval 0.0–100.0 %" in text
    assert "| seed=1 | run-1 | finished | 4 | 10.0 % | 90.0 % |" in text


def test_a_page_of_seeds_has_the_members_their_mean_and_their_curves(monkeypatch):
    found = read_seeds(reader(monkeypatch, (("seed=0",), 0.4), (("seed=1",), 0.5)), ["sweep-1"])
    steps = [Step(step, {"reward/mean": step / 2}, 0.0) for step in (1, 2)]
    member = SimpleNamespace(steps=steps, evaluations=[])
    text = seeds_page(found, [SimpleNamespace(letter="A", members=[member, member])])
    assert "mean of 2 seeds 45.0 %" in text and "run-1" in text and "<svg" in text


def test_a_sweep_of_more_than_seeds_is_compared_by_setting(monkeypatch):
    members = ((("seed=0", "train.steps=1"), 0.4), (("seed=0", "train.steps=2"), 0.5))
    assert read_seeds(reader(monkeypatch, *members), ["sweep-1"]) is None
    assert read_seeds(reader(monkeypatch, (("seed=0",), 0.4)), ["a", "b"]) is None
