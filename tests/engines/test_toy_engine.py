"""An engine of sixty lines, which an installed package adds, goes through every command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ..processes import Process, call_rlf

TOY = Path(__file__).with_name("toy_engine.py")
SPEC = """\
name: toy
model: {path: builtin:tiny}
data: {train: {path: builtin:encyclopedia/train, prompt: question, answer: answer}}
rewards: [{kind: rule, name: right, rule: exact_match}]
rollout: {num_generations: 2, max_total_tokens: 200}
train: {algorithm: grpo, steps: 4, prompts_per_step: 2}
engine: {kind: toy}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A spec of the engine, which is installed as pip leaves it."""
    folder = tmp_path_factory.mktemp("toy")
    info = folder / "site" / "rlf_toy-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "site" / "rlf_toy.py").write_text(TOY.read_text())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rlf-toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rlf.engines]\ntoy = rlf_toy:Toy\n")
    (folder / "toy.yaml").write_text(SPEC)
    return folder


def call_with_toy(site, *arguments):
    sys.path.insert(0, site)
    call_rlf(*arguments)


def rlf(project, *arguments):
    with Process(call_with_toy, str(project / "site"), *arguments, folder=project) as process:
        out, errors = process.communicate(timeout=120)
        return subprocess.CompletedProcess(arguments, process.wait(), out, errors)


def answer(project, *arguments):
    done = rlf(project, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])["data"]


@pytest.fixture(scope="module")
def runs(project):
    """A run that was killed after its second step and resumed, and one that was left alone."""
    killed = rlf(project, "run", "toy.yaml", "engine.dies_at=2")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = rlf(project, "resume", "latest", "--take-over")
    assert resumed.returncode == 0, resumed.stderr
    first = answer(project, "runs", "show", "latest")["run"]["record"]["run_id"]
    whole = rlf(project, "run", "toy.yaml")
    assert whole.returncode == 0, whole.stderr
    return first, answer(project, "runs", "show", "latest")["run"]["record"]["run_id"]


def test_it_has_at_most_sixty_lines():
    assert len(TOY.read_text().splitlines()) <= 60


def test_it_is_checked_with_what_it_lacks_and_its_own_keys(project):
    assert answer(project, "check", "toy.yaml")["faults"] == []
    told = rlf(project, "check", "toy.yaml", "+model.lora={rank: 4}", "+engine.dies=3").stderr
    assert "model.lora: got adapters; the toy only counts. Remove it, or write engine: local" in told
    assert "unknown key 'dies'; did you mean 'dies_at'?" in told


def test_its_plan_has_work_and_says_that_there_are_no_formulas(project):
    planned = answer(project, "plan", "toy.yaml")
    assert (planned["work"]["num_steps"], planned["memory"]) == (4, None)
    assert planned["memory_unknown"] == "there are no formulas for engine toy"


def test_a_killed_run_is_resumed_to_the_numbers_of_one_that_was_left_alone(project, runs):
    steps = []
    for run in runs:
        shown = answer(project, "runs", "show", run)
        assert (shown["run"]["record"]["engine"], shown["run"]["status"]) == ("toy", "finished")
        steps.append([{k: v for k, v in s["metrics"].items() if not k.startswith("time/")} for s in shown["steps"]])
    assert [step["toy"] for step in steps[0]] == [1, 2, 3, 4]
    assert steps[0] == steps[1]


def test_its_runs_are_compared_and_verified(project, runs):
    assert answer(project, "runs", "compare", *runs)
    assert rlf(project, "runs", "verify").returncode == 0


def test_its_keys_are_in_the_schema(project):
    assert "The step after which it kills itself." in rlf(project, "schema", "spec").stdout


@pytest.mark.parametrize(
    "command", [("runs", "fork", "latest@2"), ("run", "toy.yaml", "--record"), ("rehearse", "toy.yaml")]
)
def test_a_command_that_it_lacks_is_refused_with_the_reason(project, runs, command):
    refused = rlf(project, *command)
    assert refused.returncode == 2, refused.stderr
    assert "the toy only counts" in refused.stderr or "only the engine" in refused.stderr
