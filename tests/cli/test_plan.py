"""`rlf plan`: what a run will be."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import Result

from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.runs.plans import check_spec
from rlf.types import EvaluationFinished, RunFinished, RunStatus, StepFinished

from ..reports.synthetic import run_record

Rlf = Callable[..., Result]
REPOSITORY = Path(__file__).parents[2]
SPEC = REPOSITORY / "specs" / "search.yaml"


def test_values_files_work_and_memory_are_reported(rlf: Rlf) -> None:
    result = rlf("plan", SPEC, "train.steps=2")
    assert result.exit_code == 0, result.output
    for words in (
        "train.steps",
        "override",
        "spec",
        "256",
        "keys and values",
        "this machine's memory",
        "fits what is free",
    ):
        assert words in result.stdout
    assert "unknown until a run of this plan has made a step" in " ".join(result.stdout.split())


def test_json_has_the_same_and_a_gpu_is_held_against_the_sum(rlf: Rlf) -> None:
    data = json.loads(rlf("plan", SPEC, "--gpu", "100MB", "--json").stdout)["data"]
    assert data["plan_hash"] == json.loads(rlf("check", SPEC, "--json").stdout)["data"]["plan_hash"]
    assert data["memory"]["total_bytes"] == sum(part["size_bytes"] for part in data["memory"]["parts"])
    assert data["fit"] == {"where": "a GPU of 100MB", "size_bytes": 10**8, "fits": False}
    assert {value["source"] for value in data["values"]} == {"file", "default"}


def test_what_seeds_separate_and_cost_is_known_from_runs_of_the_plan(rlf: Rlf, tmp_path: Path) -> None:
    runs = ("--runs", tmp_path)
    assumed = " ".join(rlf("plan", SPEC, *runs).stdout.split())
    assert "3 seeds x 512 questions a side separate 8.3 points" in assumed
    assert "Assumed: seeds differ by 2.0 points (standard deviation; no two seeds have finished)" in assumed
    plan = check_spec([SPEC], []).plan
    with open_store(tmp_path / "rlf.db") as store:
        for seed, success in ((0, 0.5), (1, 0.6)):
            spec = {**plan.model_dump(mode="json", by_alias=True)["spec"], "seed": seed}
            record = run_record(f"20260102-03040{seed}-abcd")
            start_run(store, replace(record, name="search", seed=seed, plan={"spec": spec}, plan_hash=str(seed)))
            with Recorder(store, record.id) as recorder:
                recorder(EvaluationFinished(60, "sampled", {"success": success}, []))
                recorder(RunFinished(RunStatus.FINISHED, 60))
    known = json.loads(rlf("plan", SPEC, "--json", *runs).stdout)["data"]
    assert len(known["earlier"]["run_ids"]) == 2 and known["earlier"]["cost_usd"] == 0
    assert known["earlier"]["seed_spread"] == pytest.approx(0.1 / 2**0.5)
    assert [one["num_seeds"] for one in known["seeds"]] == [3, 5]
    assert "From 2 runs of this plan: seeds differ by 7.1 points" in " ".join(rlf("plan", SPEC, *runs).stdout.split())
    others = json.loads(rlf("plan", SPEC, "train.steps=3", "--json", *runs).stdout)["data"]
    assert others["earlier"]["run_ids"] == []


def test_a_model_that_is_not_here_has_no_memory_estimate(
    rlf: Rlf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    result = rlf("plan", SPEC, "model.path=some/model")
    assert "memory   unknown: some/model is not on this machine" in result.stdout


def test_a_job_of_openrlhf_is_reported_with_its_options_and_each_kind_of_gpu(rlf: Rlf) -> None:
    overrides = ("engine.kind=openrlhf", "+engine.colocate=none", "+engine.vllm.engines=2", "--gpu", "80GB")
    result = rlf("plan", SPEC, *overrides)
    assert result.exit_code == 0, result.output
    for words in (
        "--actor.adam.lr 0.0003",
        "policy: 1 GPU\n",
        "vLLM: each of 2 GPUs\n",
        "3 GPUs, the fullest 72.00 GB",
    ):
        assert words in result.stdout
    data = json.loads(rlf("plan", SPEC, *overrides, "--json").stdout)["data"]
    assert [group["holds"] for group in data["gpus"]] == ["policy", "vLLM"]
    assert (data["num_gpus"], data["gpus"][1]["peak_bytes"], data["fit"]["fits"]) == (3, 72 * 10**9, True)
    assert data["argv"][data["argv"].index("--vllm.num_engines") + 1] == "2"


def test_the_time_is_what_runs_of_the_same_plan_took(rlf: Rlf, tmp_path: Path) -> None:
    record = run_record()
    object.__setattr__(record, "plan_hash", check_spec([SPEC], []).plan.plan_hash)
    (tmp_path / "runs").mkdir()
    with open_store(tmp_path / "runs/rlf.db") as store, Recorder(store, record.id) as recorder:
        start_run(store, record)
        for step, seconds in enumerate((1.0, 2.0, 9.0), start=1):
            recorder(StepFinished(step, {"time/step_s": seconds}, [], []))
    said = " ".join(rlf("plan", SPEC).stdout.split())
    # 40 steps x 2 s
    assert "1:20 for the steps: 2.00 s each, median of 3 steps of 1 run" in said
    assert "unknown until" in rlf("plan", SPEC, "seed=5").stdout


def test_a_difference_shows_only_what_differs(rlf: Rlf) -> None:
    other = REPOSITORY / "specs" / "search_no_tool.yaml"
    result = rlf("plan", "--diff", SPEC, other)
    assert result.exit_code == 0, result.output
    assert "target.callable" in result.stdout and "learning_rate" not in result.stdout
    assert "no value differs" in rlf("plan", "--diff", SPEC, SPEC).stdout
    assert json.loads(rlf("plan", "--diff", SPEC, other, "--json").stdout)["data"]["differences"]


def test_a_difference_needs_two_specs(rlf: Rlf) -> None:
    result = rlf("plan", "--diff", SPEC)
    assert result.exit_code == 2
    assert "got 1 specs; expected two" in result.stderr


def test_faults_are_reported_as_check_reports_them(rlf: Rlf) -> None:
    assert rlf("plan", SPEC, "train.stepz=1").stderr == rlf("check", SPEC, "train.stepz=1").stderr


def test_it_loads_no_torch() -> None:
    code = (
        "import sys; from pathlib import Path; from rlf.runs.planning import report_plan; "
        f"report_plan([Path({str(SPEC)!r})], [], gpu='24GB', runs_folder=Path('none')); "
        "print({'torch', 'transformers', 'sqlalchemy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
