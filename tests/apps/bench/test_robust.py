"""`rlf bench robust`: the run's own tasks under each class of disturbance."""

from pathlib import Path

import pytest

from rlf.apps.bench.robust import CLASSES, UNDISTURBED, robust, robust_table
from rlf.apps.bench.run import TrialOptions
from rlf.core.errors import RlfError
from rlf.runs.place import open_reader
from rlf.tools.kind import Faults

SEARCH = Path(__file__).parents[3] / "specs" / "search.yaml"


def test_success_by_class_stands_beside_the_undisturbed_with_intervals_and_is_found_again(tmp_path):
    asked = TrialOptions(tmp_path / "runs", lambda event: None, limit=4)
    rows = robust(["builtin:tiny"], [SEARCH], [], "errors,renamed", asked)
    assert [row.disturbance for row in rows] == [UNDISTURBED, "errors", "renamed"]
    assert all(row.num_questions == 4 and row.low is not None and row.high is not None for row in rows)
    assert rows[0].difference is None and all(row.difference_low is not None for row in rows[1:])
    heads, lines = robust_table(rows)
    assert all(len(line) == len(heads) for line in lines)
    with open_reader(tmp_path / "runs") as reader:
        faults = [reader.get_run(row.run_id).record.plan["spec"]["eval"].get("faults") for row in rows]
    assert faults[0] is None and faults[1]["errors"] == 0.3 and faults[2]["renamed"] == 1.0


def test_every_disturbance_of_a_spec_is_of_a_class():
    assert {name for faults in CLASSES.values() for name in faults} == set(Faults.model_fields)
    assert all(Faults.model_validate(faults) for faults in CLASSES.values())


def test_a_spec_without_tools_and_an_unknown_class_are_faults(tmp_path):
    asked = TrialOptions(tmp_path / "runs", lambda event: None)
    with pytest.raises(RlfError, match=r"got the class 'slow'.*latency"):
        robust(["builtin:tiny"], [SEARCH], [], "slow", asked)
    with pytest.raises(RlfError, match="neither tools nor a world"):
        robust(["builtin:tiny"], [SEARCH], ["~tools"], None, asked)
    with pytest.raises(RlfError, match="has no tasks of its own"):
        robust(["builtin:tiny"], [], [], None, asked)
