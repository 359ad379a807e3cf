"""The table over algorithms of `benchmarks/learning.py`: which units there are, in which order, and what a row says."""

from __future__ import annotations

from benchmarks.learning import Curve, Unit, list_units, write_row


def test_units_run_in_the_order_in_which_they_are_asked_for() -> None:
    units = list_units(quick=False, only=["bisect, turn credit", "compose, rloo", "compose", "no task"])
    assert [unit.label for unit in units[:3]] == ["bisect, turn credit", "compose, rloo", "compose, dr_grpo"]
    assert len({unit.folder for unit in units}) == len(units)


def test_the_complete_table_has_every_unit_of_the_quick_one() -> None:
    quick, complete = (list_units(quick=quick, only=[]) for quick in (True, False))
    assert {unit.folder for unit in quick} < {unit.folder for unit in complete}


def test_a_row_compares_areas_seed_by_seed() -> None:
    curves = {0: Curve(0.5, 4, 4000.0, 0.9), 1: Curve(0.65, None, None, 0.7)}
    base = {0: Curve(0.25, 8, 8000.0, 0.8), 1: Curve(0.5, 8, 8000.0, 0.8), 2: Curve(1.0, 1, 1.0, 1.0)}
    row = write_row(Unit("compose", "rloo", 5), curves, base)
    assert row == "| compose | rloo | 2 | 0.57 [0.00, 1.00] | 0.20 [-0.44, 0.84] | 4 (1 of 2) | 4 | 0.80 [0.00, 1.00] |"
