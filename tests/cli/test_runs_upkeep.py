"""`rlf runs` beyond list and show: finding, marking, moving, cleaning, walking back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest
from typer.testing import Result

from rlf.types.written import from_row

from .conftest import RUN

Rlf = Callable[..., Result]


def read_data(result: Result) -> object:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["data"]


def test_runs_are_found_by_a_filter_and_by_tags(recorded: Rlf) -> None:
    assert recorded("runs", "tag", "latest", "best").stdout == f"{RUN}: best\n"
    assert len(read_data(recorded("runs", "list", "success > 0.5 and 'best' in tags", "--json"))) == 1
    assert recorded("runs", "list", "success < 0.5").stdout == "no run matches.\n"
    assert recorded("runs", "list", "succes < 0.5").exit_code == 2
    assert recorded("runs", "list", "--sort", "succes").exit_code == 2
    assert "best" in recorded("runs", "list", "--sort", "success").stdout


def test_a_note_is_shown_with_the_run(recorded: Rlf) -> None:
    recorded("runs", "note", "latest", "the one in the paper")
    assert "the one in the paper" in recorded("runs", "show", "latest").stdout


def test_a_run_moves_to_another_folder(recorded: Rlf) -> None:
    assert recorded("runs", "export", "latest", "-o", "one.db").exit_code == 0
    assert recorded("runs", "import", "one.db", "--runs", "elsewhere").stdout.startswith("1 run imported, 0 were")
    assert recorded("runs", "import", "one.db", "--runs", "elsewhere").stdout.startswith("0 runs imported, 1 were")
    assert RUN in recorded("runs", "list", "--runs", "elsewhere").stdout
    assert recorded("runs", "export", "latest", "-o", "one.db").exit_code == 2


@pytest.mark.parametrize("format_", ["jsonl", "parquet"])
def test_tables_hold_every_row(recorded: Rlf, format_: str) -> None:
    assert recorded("runs", "export", "latest", "-o", "tables", "--format", format_).exit_code == 0

    def rows(name: str) -> list[dict[str, object]]:
        path = Path("tables") / f"{name}.{format_}"
        if format_ == "parquet":
            return pyarrow.parquet.read_table(path).to_pylist()
        return [json.loads(line) for line in path.read_text().splitlines()]

    trajectories = rows("trajectories")
    assert len(trajectories) == 12 * 2 + 2 * 4 * 30  # steps, and evaluations in two modes
    assert all(len(row["tokens"]) == row["num_tokens"] for row in trajectories)
    assert {row["phase"] for row in rows("evaluations")} == {"sampled", "greedy"}
    assert rows("runs")[0]["run_id"] == RUN
    assert rows("tool_calls") and rows("scores") and rows("steps")
    scored = from_row(trajectories[0])
    assert (scored.trajectory.id, scored.reward) == (trajectories[0]["trajectory_id"], trajectories[0]["reward"])


def test_thinning_and_removing_leave_a_sound_lineage(recorded: Rlf) -> None:
    assert recorded("runs", "gc", "latest").exit_code == 2
    assert recorded("runs", "gc", "latest", "--keep", "last:2").stdout.startswith("20 trajectories thinned")
    verified = recorded("runs", "verify")  # the synthetic run names checkpoints that nobody wrote
    assert verified.exit_code == 3
    assert verified.stdout.endswith("1 run, 3 faults\n")
    assert "the checkpoint of step 12 is damaged: /runs/synthetic/checkpoints/12: leads out of" in verified.stdout
    assert recorded("runs", "show", "latest").exit_code == 0
    assert recorded("runs", "rm", "latest", "--yes").stdout.startswith(f"removed {RUN}")
    assert "dropped" in recorded("runs", "gc").stdout
    assert recorded("runs", "list").stdout.startswith("no runs yet")


def test_removing_asks_first(recorded: Rlf) -> None:
    assert recorded("runs", "rm", "latest").exit_code == 1
    assert RUN in recorded("runs", "list").stdout


def test_a_checkpoint_is_walked_back(recorded: Rlf) -> None:
    nodes = read_data(recorded("runs", "whence", "/runs/synthetic/checkpoints/8", "--json"))
    assert isinstance(nodes, list)
    assert [nodes[-1]["kind"], nodes[-1]["name"]] == ["checkpoint", "/runs/synthetic/checkpoints/8"]
    assert {"plan", "rlf", "run", "step"} <= {node["kind"] for node in nodes}
    assert recorded("runs", "whence", "nowhere").exit_code == 2


def test_the_graph_is_drawn_and_a_run_differs_from_itself_in_nothing(recorded: Rlf) -> None:
    assert "made of" in recorded("runs", "show", "latest", "--lineage").stdout
    assert recorded("runs", "diff", RUN, "latest").stdout == "no node differs\n"


def test_another_database_is_named_by_a_variable(recorded: Rlf, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded("runs", "export", "latest", "-o", "one.db")
    monkeypatch.setenv("RLF_DB", "sqlite:///one.db")
    assert RUN in recorded("runs", "list", "--runs", "empty").stdout
