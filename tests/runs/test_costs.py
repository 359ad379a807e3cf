"""What models behind tools and judges cost: recorded whatever comes of a call, shown, and bounded by `limits`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlf.cli import app
from rlf.core import RunError, SpecError
from rlf.lineage.calls import read_costs
from rlf.lineage.reader import Reader
from rlf.runs.place import open_lineage
from rlf.runs.resume import resume
from rlf.runs.sink import Budget
from rlf.runs.start import run
from rlf.types import EvaluationFinished, Notice, RunStatus

from ..lineage.builders import step
from ..lineage.test_agents_inside import with_an_agent
from ..rewards.judges import judging
from .test_runs import Watch

SPEC = """\
name: judged
model: {{path: builtin:tiny}}
data:
  train: {{path: builtin:encyclopedia/train, prompt: question, answer: answer}}
  eval: {{path: builtin:encyclopedia/heldout, prompt: question, answer: answer, limit: 12}}
rewards:
  - kind: judge
    name: good
    endpoints: [{{url: "{url}", model: judge, max_concurrency: 1, prices: {{prompt_usd: 1.0e6}}}}]
rollout: {{num_generations: 2, max_turns: 1, max_total_tokens: 160, max_new_tokens: 16}}
train: {{algorithm: grpo, steps: 2, prompts_per_step: 2}}
eval: {{greedy: false}}
limits: {limits}
"""


def pleased(body: Mapping[str, Any]) -> str:
    return '{"score": 10}'


def shown(folder: Path, *arguments: str) -> str:
    options = ["--runs", str(folder / "runs")]
    result = CliRunner().invoke(app, ["runs", "show", *arguments, *options], env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    return result.stdout


def started(folder: Path, url: str, limits: str, *overrides: str) -> Watch:
    watch = Watch()
    (folder / "run.yaml").write_text(SPEC.format(url=url, limits=limits))
    run([folder / "run.yaml"], overrides, runs_folder=folder / "runs", view=watch, command=["rlf", "run"])
    return watch


def test_a_spent_budget_stops_the_run_as_a_person_would_and_a_larger_one_lets_it_resume(tmp_path: Path) -> None:
    with judging(pleased) as judge:
        started(tmp_path, judge.url, "{max_usd: 500}")
        with open_lineage(tmp_path / "runs") as store:
            stopped = Reader(store).get_run("latest")
            spent_usd = sum(cost.cost_usd for cost in read_costs(Reader(store), stopped.record.id))
        assert (stopped.status, stopped.error is not None and "limits.max_usd: $" in stopped.error) == (
            RunStatus.INTERRUPTED,
            True,
        )
        assert spent_usd >= 500
        keys = {"runs_folder": tmp_path / "runs", "command": ["rlf", "resume"]}
        before = len(judge.asked)
        assert resume("latest", view=Watch(), **keys).status is RunStatus.INTERRUPTED
        assert len(judge.asked) == before
        watch = Watch()
        assert resume("latest", view=watch, max_usd=1e9, **keys).status is RunStatus.FINISHED
        assert sum(watch.info.costs_usd.values()) == spent_usd
    report = json.loads(shown(tmp_path, "latest", "--json"))["data"]
    assert sum(cost["num_requests"] for cost in report["costs"]) == len(judge.asked)
    assert report["cost_usd"] > spent_usd
    table = shown(tmp_path, "latest")
    assert "spent on" in table and "judge good" in table


def test_a_spent_budget_is_named_and_stops_no_other_run_of_a_sweep(tmp_path: Path) -> None:
    with judging(pleased) as judge:
        (tmp_path / "run.yaml").write_text(SPEC.format(url=judge.url, limits="{max_usd: 100}"))
        words = ["run", str(tmp_path / "run.yaml"), "--runs", str(tmp_path / "runs")]
        alone = CliRunner().invoke(app, words)
        sweep = CliRunner().invoke(app, [*words, "seed=1,2", "--multirun"])
    assert (alone.exit_code, sweep.exit_code) == (130, 130)
    assert "limits.max_usd: $" in alone.stdout and " --max-usd N" in alone.stdout
    assert [line[:31] for line in sweep.stderr.splitlines() if "max_usd" in line] == [
        "member 1 interrupted: limits.ma",
        "member 2 interrupted: limits.ma",
    ]
    with open_lineage(tmp_path / "runs") as store:
        errors = {run.error for run in Reader(store).list_runs()}
    assert "limits.max_usd is spent in 2 of 2 runs" in errors


def test_where_tools_run_in_other_processes_a_step_that_is_reported_spends_the_budget() -> None:
    done = replace(step(1, 1), trajectories=[with_an_agent()], advantages=[0.5])  # $0.25 of a tool, $0.5 of a judge
    budget, stops = Budget(1.5, counts_events=True), list[float]()
    with budget.watched(lambda: stops.append(budget.meter.cost_usd)):
        budget.note(done)
        assert not stops
        budget.note(done)
    assert (stops, budget.unrecorded()) == ([1.5], {})
    played = Budget(None, is_played=True)
    played.note(done)
    assert played.recorded.cost_usd == 0.5


def test_an_evaluation_ends_with_what_it_has_when_its_budget_is_spent(tmp_path: Path) -> None:
    with judging(pleased) as judge:
        watch = started(tmp_path, judge.url, "{max_usd_per_evaluation: 300}")
    evaluations = [event for event in watch.events if isinstance(event, EvaluationFinished)]
    assert len(evaluations) == 2
    assert all(0 < len(event.trajectories) < 12 for event in evaluations)
    words = [event.text for event in watch.events if isinstance(event, Notice) and "max_usd_per" in event.text]
    assert len(words) == 2 and "is spent; it ends with" in words[0]


def test_openrlhf_refuses_a_budget_that_it_cannot_keep(tmp_path: Path) -> None:
    from rlf.runs.plans import check_spec

    (tmp_path / "run.yaml").write_text(SPEC.format(url="http://h/v1", limits="{max_usd_per_evaluation: 1}"))
    with pytest.raises(SpecError, match="max_usd_per_evaluation: got 1; OpenRLHF evaluates in processes"):
        check_spec([tmp_path / "run.yaml"], ["engine=openrlhf"])


def test_requests_to_a_judge_that_fails_are_counted(tmp_path: Path) -> None:
    down = "engine={kind: local, outage_s: 1}"
    with judging(lambda body: {"status": 422}) as judge, suppress(RunError):  # one that stays down stops the run
        started(tmp_path, judge.url, "{}", down)
    (cost,) = json.loads(shown(tmp_path, "latest", "--json"))["data"]["costs"]
    assert (cost["kind"], cost["name"], cost["cost_usd"]) == ("judge", "good", 0.0)
    assert cost["num_requests"] == len(judge.asked) > 0
