"""The page of one run, and the parts that pages share."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlf.cli.main import app
from rlf.lineage.reader import Reader
from rlf.lineage.records import TrainingStep
from rlf.reports.pages.chart import ArmCurve, Chart, Line, draw, further_curves, main_curves, ticks
from rlf.reports.pages.render import beside, run_page, side
from rlf.reports.report import read_report
from rlf.reports.summary import read_summary

from .synthetic import run_record

RUN = run_record().id


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.5, 1]), (0, 5, [0, 2, 4]), (1, 40, [10, 20, 30, 40]), (-0.3, 0.3, [-0.2, 0, 0.2]), (3, 3, [3])],
)
def test_ticks_are_round_numbers_within_the_ends(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_a_share_is_drawn_from_0_to_1_and_a_band_joins_only_what_was_measured() -> None:
    line = Line("A", 0, ((0, 0.0), (4, 1.0)), ((0, 0.0, 0.2), (4, 0.8, 1.0)))
    drawn = draw(Chart("success", (line,), share=True))
    many = Line("A", 0, ((0, 0.0), (4, 1.0)), tuple((step, 0.0, 0.2) for step in range(30)))
    assert draw(Chart("success", (many,), share=True)).lines[0].band.count("M") == 1
    assert drawn.lines[0].path == "M48.0 164.0L318.0 10.0"  # from the lower left corner to the upper right one
    assert drawn.lines[0].band == "M46.5 133.2h3V164.0h-3ZM316.5 10.0h3V40.8h-3Z"
    assert [word for _, word in drawn.y_ticks] == ["0 %", "50 %", "100 %"]
    assert drawn.summary == "A 0.0 % at step 0, 100.0 % at step 4"


def test_a_curve_of_one_point_and_one_value_can_be_drawn() -> None:
    drawn = draw(Chart("loss", (Line("", 0, ((3, 0.0),)),), share=False))
    assert drawn.lines[0].band == "" and drawn.x_ticks[0][1] == "3"


def test_two_sides_are_laid_beside_each_other_by_turn(reader: Reader) -> None:
    example = read_summary(reader, RUN).example
    assert example is not None
    left, right = side("before", example.before, "Tools: search"), side("after", example.after, "Tools: search")
    pair = beside(left, right)
    assert [(both.number, both.differs) for both in pair.turns] == [(1, True), (2, True)]
    assert pair.turns[1].left is None and pair.first_difference == 1
    assert beside(left, left).first_difference is None
    assert left.opening == "Tools: search" and left.turns[0].sampled == "Zuller<|im_end|>"


def test_each_part_of_two_sides_names_its_side_where_they_stand_below_each_other(reader: Reader) -> None:
    page = run_page(read_report(reader, RUN), reader.evaluations(RUN), lambda _: "")
    assert re.findall(r'data-side="(.*?)"', page)[:2] == ["step 0", "step 12"]


def test_the_page_of_a_run_begins_with_its_result_and_loads_nothing(reader: Reader) -> None:
    text = unescape(run_page(read_report(reader, RUN), reader.evaluations(RUN), lambda _: "Tools: search, calculator"))
    words = ["sampled: success rose by 90.0 points", "held-out success", "one held-out question", "outcomes", "command"]
    body = text[text.index("<main>") :]
    assert [body.index(one) for one in words] == sorted(body.index(one) for one in words)
    assert "Tools: search, calculator" in body and "the first that differs" in body
    assert not re.findall(r"""(?:src|href)=["'](?!#)|url\(|@import|https?://""", text)


def test_the_command_writes_the_page_of_a_run(reader: Reader, tmp_path: Path) -> None:
    folder, file = str(Path(reader.store.place).parent), tmp_path / "run.html"
    done = CliRunner().invoke(app, ["runs", "show", RUN, "--runs", folder, "--html", str(file)])
    assert done.exit_code == 0, done.output
    assert file.read_text().startswith("<!doctype html>") and "finished at step 12" in done.output
    refused = CliRunner().invoke(app, ["runs", "show", RUN, "--runs", folder, "--html", str(file), "--lineage"])
    assert refused.exit_code != 0


def test_the_gap_to_a_hidden_term_is_a_main_curve_with_its_bounds() -> None:
    name = "gap/gold/right"
    steps = [TrainingStep(n, {name: 0.1 * n, f"{name}/low": 0.05 * n, f"{name}/high": 0.3}, 0.0) for n in (1, 2)]
    courses = [ArmCurve("", [steps], [[]])]
    (chart,) = main_curves(courses)
    assert (chart.title, chart.share) == ("share of what right pays that hidden gold refuses", True)
    assert chart.lines[0].points == ((1, 0.1), (2, 0.2))
    assert chart.lines[0].band == ((1, 0.05, 0.3), (2, 0.1, 0.3))
    assert further_curves(courses) == []
