"""`rlf runs`: reading the lineage from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from typer.testing import Result

from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store

from ..reports.synthetic import events, run_record
from .conftest import RUN

Rlf = Callable[..., Result]


def test_list_has_a_line_per_run(recorded: Rlf) -> None:
    result = recorded("runs", "list")
    assert result.exit_code == 0
    assert RUN in result.stdout
    assert "finished" in result.stdout


def test_show_takes_latest_and_a_unique_beginning(recorded: Rlf) -> None:
    for name in ("latest", RUN[:6], RUN):
        result = recorded("runs", "show", name)
        assert result.exit_code == 0
        assert f"synthetic · {RUN}" in result.stdout


def test_show_trajectory_counts_within_the_latest_step(recorded: Rlf) -> None:
    result = recorded("runs", "show", "latest", "--trajectory", "0")
    assert f"run {RUN} · train step 12 · trajectory 0 · advantage +0.500" in result.stdout
    assert "▌ Fenpus<|im_end|>" in result.stdout
    assert "sampled by the policy" in result.stdout


def test_phase_and_step_choose_where_trajectories_are_counted(recorded: Rlf) -> None:
    result = recorded("runs", "show", "latest", "--trajectory", "0", "--phase", "greedy", "--step", "0")
    assert "greedy step 0 · trajectory 0" in result.stdout


def test_phase_without_trajectory_is_refused(recorded: Rlf) -> None:
    result = recorded("runs", "show", "latest", "--phase", "greedy")
    assert result.exit_code == 2
    assert "--trajectory 0" in result.stderr


def test_a_trajectory_that_is_not_there_is_reported_in_words(recorded: Rlf) -> None:
    result = recorded("runs", "show", "latest", "--trajectory", "99")
    assert result.exit_code == 2
    assert "99" in result.stderr


def test_a_run_that_is_not_there_is_reported_in_words(recorded: Rlf) -> None:
    result = recorded("runs", "show", "19990101")
    assert result.exit_code == 2
    assert "19990101" in result.stderr


def test_json_holds_what_the_screen_shows(recorded: Rlf) -> None:
    listed = json.loads(recorded("runs", "list", "--json").stdout)
    assert listed["command"] == "runs list"
    assert listed["data"][0]["run_id"] == RUN
    shown = json.loads(recorded("runs", "show", RUN, "--json").stdout)["data"]
    assert shown["run"]["status"] == "finished"
    assert len(shown["steps"]) == 12
    assert shown["summary"]["changes"][0]["mode"] == "sampled"
    trajectory = json.loads(recorded("runs", "show", RUN, "--trajectory", "0", "--json").stdout)["data"]
    assert trajectory["scored"]["trajectory"]["turns"][1]["text"] == "Fenpus<|im_end|>"


def test_reading_without_a_lineage_says_so_and_makes_no_folder(rlf: Rlf, tmp_path: Path) -> None:
    result = rlf("runs", "list")
    assert result.exit_code == 2
    assert "rlf run SPEC" in result.stderr
    assert not (tmp_path / "runs").exists()


def test_columns_are_chosen_by_name(recorded: Rlf) -> None:
    result = recorded("runs", "list", "--columns", "run_id,success,engine")
    assert result.stdout.splitlines()[0].split() == ["run", "held-out", "engine"]
    assert result.stdout.splitlines()[1].split()[0] == RUN
    wrong = recorded("runs", "list", "--columns", "run_id,sucess")
    assert wrong.exit_code == 2
    assert "--columns: unknown name 'sucess'; did you mean 'success'?" in wrong.stderr


def test_compare_takes_the_newest_step_that_runs_share_and_with_ends_the_last_of_each(
    recorded: Rlf, tmp_path: Path
) -> None:
    short = replace(run_record(), id="20260103-000000-shrt", folder=str(tmp_path / "runs/20260103-000000-shrt"), seed=1)
    with open_store(tmp_path / "runs" / "rlf.db") as store, Recorder(store, short.id) as recorder:
        start_run(store, short)
        for event in events(num_steps=4):
            recorder(event)
    shared, ends = (recorded("runs", "compare", RUN, short.id, "--md", *more) for more in ((), ("--ends",)))
    assert (shared.exit_code, ends.exit_code) == (0, 0), (shared.output, ends.output)
    tex = recorded("runs", "compare", RUN, short.id, "--tex").stdout
    assert tex.count(r"\begin{tabular}{lrr}") == tex.count(r"\end{table}") > 0
    assert all(line.count(" & ") == 2 and " %" not in line for line in tex.splitlines() if line.endswith(r"\\"))
    after, other = "This is after step 4, the newest that both were evaluated at.", "12 against 4"
    assert after in shared.stdout and f"{other}; `--ends` compares these." in shared.stdout
    assert after not in ends.stdout and "`--ends`" not in ends.stdout
    assert f"They were last evaluated after different numbers of steps: {other}." in ends.stdout
