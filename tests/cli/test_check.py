"""`rlf check`: every fault at once, in words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

Rlf = Callable[..., Result]
SPEC = Path(__file__).parents[2] / "specs" / "search.yaml"


def test_a_right_spec_is_ok(rlf: Rlf) -> None:
    result = rlf("check", SPEC)
    assert result.exit_code == 0, result.output
    assert re.search(r": ok: search, \d+ tools, .* \d+ steps of \d+ trajectories, plan [0-9a-f]{12}$", result.stdout)


def test_all_faults_are_reported_on_stderr(rlf: Rlf) -> None:
    result = rlf("check", SPEC, "train.stepz=1", "rollout.max_turns=many")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "did you mean 'steps'?" in result.stderr
    assert "rollout.max_turns" in result.stderr
    assert len(result.stderr.splitlines()) == 2


def test_faults_of_the_whole_and_of_what_it_names_come_together(rlf: Rlf) -> None:
    result = rlf("check", SPEC, "train.mini_batches=7", "data.train.answer=gold")
    assert "train.mini_batches" in result.stderr
    assert "data.train.answer" in result.stderr


def test_json_lists_the_faults_with_their_places(rlf: Rlf) -> None:
    result = rlf("check", SPEC, "train.stepz=1", "--json")
    assert result.exit_code == 2
    data = json.loads(result.stdout)["data"]
    assert data["ok"] is False
    assert data["faults"][0]["path"] == "train.stepz"
    assert json.loads(rlf("check", SPEC, "--json").stdout)["data"]["ok"] is True


def test_a_missing_file_is_a_fault(rlf: Rlf) -> None:
    result = rlf("check", "nothing.yaml")
    assert result.exit_code == 2
    assert result.stderr == "nothing.yaml: no such file. Check the path.\n"


def test_what_is_unwise_is_reported_on_stderr_and_is_no_failure(rlf: Rlf) -> None:
    result = rlf("check", SPEC, "rollout.temperature=0.7")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{SPEC}: ok:")
    assert result.stderr.startswith("warning: override rollout.temperature: got 0.7;")
    data = json.loads(rlf("check", SPEC, "rollout.temperature=0.7", "--json").stdout)["data"]
    assert (data["ok"], [warning["path"] for warning in data["warnings"]]) == (True, ["rollout.temperature"])


def test_a_sweep_is_checked_member_by_member(rlf: Rlf, tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("grid: {train.learning_rate: [1e-4, 3e-4]}")
    result = rlf("check", SPEC, "-m", "seed=0,1", "--sweep", file)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.partition(": ok:")[0].removeprefix(f"{SPEC} ") for line in lines] == [
        f"train.learning_rate={rate} seed={seed}" for rate in ("0.0001", "0.0003") for seed in (0, 1)
    ]
    members = json.loads(rlf("check", SPEC, "-m", "seed=0,1", "--json").stdout)["data"]["members"]
    assert [member["overrides"] for member in members] == [["seed=0"], ["seed=1"]]
    assert len({member["plan_hash"] for member in members}) == 2


def test_the_faults_of_one_member_are_reported_as_its_own(rlf: Rlf) -> None:
    result = rlf("check", SPEC, "-m", "train.mini_batches=1,7")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "train.mini_batches: with train.mini_batches=7: got 7;" in result.stderr
