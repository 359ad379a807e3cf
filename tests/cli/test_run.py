"""`rlf run` and `rlf resume`, from arguments to exit code."""

from __future__ import annotations

import errno
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from rlf.cli.arguments import split_arguments
from rlf.core import RlfError, RunError
from rlf.runs import start
from rlf.types import RunStatus

from .conftest import RUN, run_info

Rlf = Callable[..., Result]
SPEC = Path(__file__).parents[2] / "specs" / "search.yaml"
UseEngine = Callable[..., None]


def test_a_finished_run_prints_its_steps_its_summary_and_what_to_do_next(rlf: Rlf, engine: UseEngine) -> None:
    engine()
    result = rlf("run", "search.yaml", "train.steps=12")
    assert result.exit_code == 0, result.output
    assert f"search · {RUN}" in result.stdout
    assert "eval after step 0, sampled: success 3.3 % (0.6–16.7 %)" in result.stdout
    assert "step  1/12  success" in result.stdout
    assert "warning: the group of one question is dead" in result.stdout
    assert "+90.0 points" in result.stdout
    assert f"  rlf runs show {RUN}\n" in result.stdout
    assert "rlf resume" not in result.stdout
    assert result.stderr == ""


def test_the_last_line_of_a_run_is_its_verdict_which_is_said_once(rlf: Rlf, engine: UseEngine) -> None:
    engine()
    stdout = rlf("run", "search.yaml").stdout
    last = stdout.splitlines()[-1]
    assert last.startswith("verdict: learned: ")
    assert stdout.count("verdict:") == stdout.count(last.removeprefix("verdict: learned: ")) == 1


def test_an_interrupted_run_exits_with_130_and_says_how_to_go_on(rlf: Rlf, engine: UseEngine) -> None:
    engine(RunStatus.INTERRUPTED)
    result = rlf("run", "search.yaml")
    assert result.exit_code == 130
    assert f"run {RUN} interrupted at step 4" in result.stdout
    assert f"  rlf resume {RUN}\n" in result.stdout


def test_every_command_shown_finds_the_run_in_its_folder(rlf: Rlf, engine: UseEngine) -> None:
    engine()
    result = rlf("run", "search.yaml", "--runs", "my runs")
    commands = [line.split("rlf ")[1] for line in result.stdout.splitlines() if "rlf runs show" in line]
    assert len(commands) == 4
    for command in commands:
        assert rlf(*shlex.split(command)).exit_code == 0, command


def test_resume_shows_and_ends_like_run(rlf: Rlf, engine: UseEngine) -> None:
    engine()
    result = rlf("resume", "latest")
    assert result.exit_code == 0
    assert "+90.0 points" in result.stdout


def test_json_is_one_object_per_event_and_the_outcome_last(
    rlf: Rlf, engine: UseEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine()
    work = start.run

    def run_noisily(*arguments: Any, **options: Any) -> Any:
        print("what a tool prints")
        return work(*arguments, **options)

    monkeypatch.setattr(start, "run", run_noisily)
    result = rlf("run", "search.yaml", "--json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert "what a tool prints" in result.stderr
    assert {(line["rlf"], line["command"]) for line in lines} == {("1", "run")}
    assert [line.get("event") for line in lines[:3]] == ["started", "evaluation", "evaluation"]
    assert lines[0]["data"]["run_id"] == RUN
    steps = [line["data"] for line in lines if line.get("event") == "step"]
    assert [step["step"] for step in steps] == list(range(1, 13))
    assert steps[0]["num_trajectories"] == 2
    verdict = lines[-1]["data"].pop("verdict")
    assert verdict["kind"] == "learned" and "success rose by 90.0 points" in verdict["reason"]
    assert lines[-1] == {
        "rlf": "1",
        "command": "run",
        "data": {"run_id": RUN, "status": "finished", "step": 12, "spent": None},
    }


@pytest.mark.parametrize(
    ("raised", "exit_code", "said"),
    [
        (RlfError("a.yaml:1:1: wrong"), 2, "a.yaml:1:1: wrong\n"),
        (RunError("port 80 is in use"), 1, "port 80 is in use\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (OSError(errno.ENOSPC, "No space left on device", "runs/x"), 1, "runs/x: the disk is full. Make room; "),
    ],
)
def test_what_the_user_can_fix_is_reported_without_a_traceback(
    rlf: Rlf, monkeypatch: pytest.MonkeyPatch, raised: BaseException, exit_code: int, said: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr("rlf.runs.start.run", fail)
    result = rlf("run", "search.yaml")
    assert result.exit_code == exit_code
    assert result.stderr.startswith(said)
    assert "Traceback" not in result.output


def test_a_defect_keeps_its_traceback(rlf: Rlf, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("rlf.runs.start.run", fail)
    assert isinstance(rlf("run", "search.yaml").exception, ZeroDivisionError)


def test_arguments_with_an_equals_sign_or_a_tilde_are_overrides() -> None:
    files, overrides = split_arguments(["a.yaml", "train.x=b.yaml", "dir/b.yaml", "~eval", "+k=1", "~/c.yaml"])
    assert files == [Path("a.yaml"), Path("dir/b.yaml"), Path("~/c.yaml")]
    assert overrides == ["train.x=b.yaml", "~eval", "+k=1"]


def test_overrides_alone_are_refused(rlf: Rlf) -> None:
    result = rlf("run", "train.steps=3")
    assert result.exit_code == 2
    assert "expected a spec file" in result.stderr


def test_a_key_without_its_value_is_not_taken_for_a_file(rlf: Rlf) -> None:
    result = rlf("run", "search.yaml", "train.steps")
    assert (result.exit_code, "Write e.g. `train.steps=VALUE`." in result.stderr) == (2, True)


@pytest.mark.parametrize(
    "command",
    [
        ("check",),
        ("run",),
        ("resume",),
        ("runs",),
        ("runs", "list"),
        ("runs", "show"),
        ("tools", "list"),
        ("tools", "test"),
    ],
)
def test_every_command_has_help(rlf: Rlf, command: tuple[str, ...]) -> None:
    result = rlf(*command, "--help")
    assert result.exit_code == 0
    assert f"Usage: rlf {' '.join(command)}" in result.stdout
    assert len(result.stdout.split()) > 20


def test_a_sweep_runs_every_member_and_ends_with_a_table(rlf: Rlf) -> None:
    tiny = ["train.steps=1", "train.prompts_per_step=1", "rollout.n=4", "eval.limit=2", "eval.greedy=false"]
    result = rlf("run", SPEC, "-m", *tiny, "seed=0,1")
    assert result.exit_code == 0, result.output
    assert "member 1 of 2: seed=0\n" in result.stdout and "member 2 of 2: seed=1\n" in result.stdout
    lines = result.stdout.splitlines()
    *table, following = lines[next(i for i, line in enumerate(lines) if line.startswith("member  ")) :]
    assert [line.split()[0] for line in table] == ["member", "seed=0", "seed=1"]
    sweep_id = next(line for line in lines if line.startswith("search-sweep · ")).split()[2]
    assert f"search-sweep · {sweep_id} finished" in rlf("runs", "show", sweep_id).stdout
    listed = json.loads(rlf("runs", "list", "--json").stdout)["data"]
    assert [run["parent_id"] for run in listed] == [sweep_id, sweep_id, None]
    assert following == f"  rlf runs compare {sweep_id}" and rlf(*following.split()[1:]).exit_code == 0
    assert rlf("resume", sweep_id).exit_code == 2


def test_a_sweep_over_nothing_is_refused(rlf: Rlf) -> None:
    result = rlf("run", SPEC, "-m", "seed=0")
    assert (result.exit_code, result.stderr) == (
        2,
        "got -m and no value with a comma; there is nothing to sweep over. Write e.g. -m seed=0,1,2.\n",
    )


def test_a_run_that_fails_after_its_start_says_how_it_continues(rlf: Rlf, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, view: Callable[..., object], **_options: object) -> None:
        view(run_info())
        raise RunError("the process that samples died")

    monkeypatch.setattr("rlf.runs.start.run", fail)
    result = rlf("run", "search.yaml")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"the process that samples died\nContinue it: rlf resume {RUN}")
