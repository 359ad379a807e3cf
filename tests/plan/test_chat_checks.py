"""Penalised failures need a term that counts them."""

from pathlib import Path

import pytest

from rlf.core import SpecError
from rlf.runs.plans import check_spec

SPEC = Path(__file__).parents[2] / "specs" / "search.yaml"


def test_penalising_without_a_term_that_counts_is_a_fault():
    with pytest.raises(SpecError, match=r"chat\.failures\.bad_json: got penalise; no reward term counts"):
        check_spec([SPEC], ["chat.failures={bad_json: penalise}"])


def test_an_unknown_class_is_a_fault():
    with pytest.raises(SpecError, match=r"chat\.failures\.bad_jso"):
        check_spec([SPEC], ["chat.failures={bad_jso: end}"])
