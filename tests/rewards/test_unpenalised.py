"""1 / (1 + penalised failures)."""

from dataclasses import replace

import pytest

from rlf.rewards.rules.unpenalised import Unpenalised
from rlf.types import Turn


@pytest.mark.parametrize(("number", "value"), [(0, 1.0), (1, 0.5), (3, 0.25)])
def test_each_penalised_failure_costs(trajectory, number, value):
    turn = Turn(0, 1, 1, text="a", num_penalised=number)
    played = replace(trajectory("42", "42"), turns=(turn,))
    assert Unpenalised(name="unpenalised").judge(played).value == value
