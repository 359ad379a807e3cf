"""`rlf trace` and `rlf runs tail`: finding trajectories, telling one, following a run."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from typer.testing import Result

from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.types import RunFinished, RunStatus

from ..reports.synthetic import events, run_record
from .conftest import RUN

Rlf = Callable[..., Result]


def found(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    return [match["summary"] for match in json.loads(result.stdout)["data"]]


def test_one_trajectory_is_reported_turn_by_turn(recorded: Rlf) -> None:
    result = recorded("trace", "latest", "0")
    assert f"run {RUN} · train step 12 · trajectory 0 · advantage +0.500" in result.stdout
    assert "▌ Fenpus<|im_end|>" in result.stdout


def test_trajectories_are_found_by_what_they_are(recorded: Rlf) -> None:
    assert {item["success"] for item in found(recorded("trace", "latest", "--failed", "--json"))} <= {0.0, None}
    best = found(recorded("trace", "latest", "--best", "--json"))
    assert [item["advantage"] for item in best] == [0.5] * 12
    broken = found(recorded("trace", "latest", "--failure", "bad_json", "--limit", "99", "--json"))
    assert {(item["phase"], item["k"]) for item in broken} == {("train", 1)} and len(broken) == 12
    said = found(recorded("trace", "latest", "--text", "NOT MARKUP", "--limit", "99", "--json"))
    assert [item["k"] for item in said] == [1] * 12
    assert recorded("trace", "latest", "--text", "nowhere said").stdout == "no trajectory matches.\n"


def test_the_list_ends_with_the_command_that_shows_its_first(recorded: Rlf) -> None:
    last = recorded("trace", "latest", "--failed", "--limit", "2").stdout.splitlines()[-1]
    command = last.removeprefix("the first, turn by turn: rlf ").removesuffix("; --limit lists more")
    assert "turn 1" in recorded(*command.split()).stdout


def test_flipped_questions_are_those_of_the_last_evaluation(recorded: Rlf) -> None:
    flipped = found(recorded("trace", "latest", "--flipped", "--json"))
    assert flipped and {item["step"] for item in flipped} == {12}


def test_a_class_that_there_is_not_names_the_nearest(recorded: Rlf) -> None:
    result = recorded("trace", "latest", "--failure", "bad_jason")
    assert result.exit_code == 2 and "did you mean 'bad_json'" in result.stderr


def test_tail_tells_the_last_lines(recorded: Rlf) -> None:
    lines = recorded("runs", "tail", "latest", "-n", "3").stdout.splitlines()
    assert len(lines) == 4
    assert lines[-1] == f"{RUN} finished at step 12"
    assert lines[0].startswith("step 12/") or "eval after step 12" in lines[0]


@pytest.mark.parametrize("command", [("runs", "tail", "latest"), ("trace", "latest", "--follow", "--failed")])
def test_a_run_is_followed_to_its_end(rlf: Rlf, tmp_path, command: tuple[str, ...]) -> None:
    whole = list(events(num_steps=3, num_questions=6))
    with open_store(tmp_path / "runs" / "rlf.db") as store, Recorder(store, RUN) as recorder:
        start_run(store, replace(run_record(), plan={"spec": {"train": {"steps": 3}}}))
        recorder(whole[0])

        def goes_on() -> None:
            time.sleep(1.0)
            for event in [*whole[1:-1], RunFinished(RunStatus.FINISHED, 3)]:
                recorder(event)
            recorder.flush()

        writer = threading.Thread(target=goes_on)
        writer.start()
        result = rlf(*command)
        writer.join()
    assert result.exit_code == 0
    assert ("step 3/3" if command[0] == "runs" else "train step 3 · trajectory 1") in result.stdout
