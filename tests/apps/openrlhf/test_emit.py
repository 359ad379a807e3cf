"""The job folder holds all that the job needs, and no secret."""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
from collections import Counter
from datetime import date

import pytest

from rlf.apps.openrlhf.argv import argv
from rlf.apps.openrlhf.dataset import JobRow, Purpose, evaluation_rows, read_label, training_rows, write_row
from rlf.apps.openrlhf.emit import launch_script, write_job
from rlf.apps.openrlhf.job import Job
from rlf.core import RlfError
from rlf.plan import compile as compile_plan
from rlf.plan import plan_from_json
from rlf.spec.models import EvalSpec
from rlf.types import Message, Task

from .conftest import JOB

TASKS = [
    Task(
        id=f"q{number}",
        messages=(Message("system", "Be brief."), Message("user", f"Who is <|im_end|> {number}, „Ä“ \ud800?")),
        answer=["Ann", "Bo"],
        kind="one_hop",
        columns={"id": f"q{number}", "deep": {"score": 0.1, "tags": ["a", None]}, "bad": float("inf")},
        tools=("search",) if number % 2 else None,
    )
    for number in range(5)
]


def rows_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def written(load, tmp_path, *overrides):
    plan = compile_plan(load(*overrides))
    job = Job(tmp_path / "job", tmp_path / "job")
    write_job(plan, TASKS, TASKS[:2], job)
    return plan, job


def test_a_row_travels_to_the_agent_and_back_unchanged():
    for row in evaluation_rows(TASKS, _evaluation(samples=2, greedy=True)):
        values = json.loads(write_row(row))
        assert read_label(values["label"], JOB.folder) == row
        assert (values["input"], values["datasource"]) == (row.name, row.purpose)


def test_a_run_has_as_many_rows_as_it_draws_and_each_task_as_often(load):
    spec = load("train.steps=3", "train.prompts_per_step=4", "eval.every=3").spec
    rows = list(training_rows(TASKS, spec))
    counts = Counter(row.task.id.partition("#")[0] for row in rows)
    assert [row.index for row in rows] == list(range(12))
    assert sorted(counts.values()) == [2, 2, 2, 3, 3]
    assert Counter(row.task.id for row in rows[:5]) == Counter(task.id for task in TASKS), "a pass is a pass"
    assert len({row.task.id for row in rows}) == len(rows), "the same task of two passes is two groups"
    assert rows == list(training_rows(TASKS, spec))


def test_an_evaluation_has_a_row_for_each_sample_and_a_greedy_one():
    rows = list(evaluation_rows(TASKS[:2], _evaluation(samples=2, greedy=True)))
    assert [(row.purpose, row.index, row.task.id) for row in rows] == [
        (Purpose.SAMPLED, 0, "q0"),
        (Purpose.SAMPLED, 1, "q0"),
        (Purpose.SAMPLED, 0, "q1"),
        (Purpose.SAMPLED, 1, "q1"),
        (Purpose.GREEDY, 0, "q0"),
        (Purpose.GREEDY, 0, "q1"),
    ]
    assert len({row.name for row in rows}) == len(rows)


def _evaluation(*, samples, greedy):
    return EvalSpec(num_samples=samples, greedy=greedy)


def test_a_column_that_json_does_not_know_is_reported_by_name():
    task = Task("q9", (Message("user", "When?"),), columns={"asked": date(2024, 1, 1), "id": "q9"})
    rows = evaluation_rows([task], _evaluation(samples=1, greedy=False))
    with pytest.raises(RlfError, match=r"row 'q9': .* the columns asked need"):
        write_row(next(rows))


def test_the_folder_holds_every_file_and_the_options_name_them(load, tmp_path):
    plan, job = written(load, tmp_path)
    assert {path.relative_to(job.folder).as_posix() for path in job.folder.rglob("*") if path.is_file()} == {
        "argv.json",
        "launch.sh",
        "agent.py",
        "plan.json",
        "env.json",
        "data/train.jsonl",
        "data/eval.jsonl",
    }
    options = json.loads(job.argv.read_text())
    assert options == argv(plan.spec, job)
    for flag in ("--train.agent_func_path", "--data.prompt_dataset", "--eval.dataset"):
        assert (job.folder / options[options.index(flag) + 1]).is_file()
    assert plan_from_json(job.plan.read_text()).plan_hash == plan.plan_hash
    assert (len(rows_of(job.train)), len(rows_of(job.evaluation))) == (40 * 16, 2 * 2)


def test_without_an_evaluation_set_there_is_no_such_file(load, tmp_path):
    plan = compile_plan(load("~eval", "~data.eval"))
    job = Job(tmp_path / "job", tmp_path / "job")
    write_job(plan, TASKS, [], job)
    assert not job.evaluation.exists()
    assert "--eval.dataset" not in json.loads(job.argv.read_text())


def test_the_agent_is_an_executor_of_openrlhf_that_names_rlfs(load, tmp_path):
    _, job = written(load, tmp_path)
    tree = ast.parse(job.agent.read_text())
    (executor,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert (executor.name, ast.unparse(executor.bases[0])) == ("AgentExecutor", "AgentExecutorBase")
    assert "from rlf.apps.openrlhf.agent import Agent" in job.agent.read_text()


def test_with_adapters_the_agents_module_has_vllm_merge_them(load, tmp_path):
    _, job = written(load, tmp_path, "+model.lora={rank: 16, alpha: 24}")
    last = ast.parse(job.agent.read_text()).body[-1]
    assert ast.unparse(last) == "let_vllm_merge(scale=24 / 16)"


def test_the_script_starts_the_very_options(load, tmp_path):
    plan, job = written(load, tmp_path, "name=it.is-1")
    script = job.launch.read_text()
    subprocess.run(["bash", "-n", str(job.launch)], check=True)
    command = script[script.index("exec ") :].replace("\\\n", " ")
    assert shlex.split(command)[1:] == ["python", "-m", "openrlhf.cli.train_ppo_ray", *argv(plan.spec, job)]


def test_a_cluster_is_given_the_folder(load):
    plan = compile_plan(load("+engine.ray_address=http://head:8265", "+engine.output=/mnt/runs"))
    assert "exec ray job submit --address=http://head:8265 --working-dir=. -- python -m" in launch_script(
        plan, argv(plan.spec, JOB)
    )


def test_secrets_are_named_and_never_written(load, tmp_path, monkeypatch):
    monkeypatch.setenv("LOOKUP_TOKEN", "hush-hush")
    _, job = written(load, tmp_path, "tools.0.description='Find. ${oc.env:LOOKUP_TOKEN}'", "+engine.wandb={}")
    assert json.loads(job.env.read_text())["secrets"] == ["LOOKUP_TOKEN", "WANDB_API_KEY"]
    assert ': "${LOOKUP_TOKEN:?' in job.launch.read_text()
    for path in job.folder.rglob("*"):
        assert path.is_dir() or "hush-hush" not in path.read_text(encoding="utf-8"), path


def test_the_script_stops_without_its_secrets(load, tmp_path):
    _, job = written(load, tmp_path, "+engine.wandb={}")
    done = subprocess.run(["bash", str(job.launch)], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode != 0
    assert "WANDB_API_KEY: set it" in done.stderr


@pytest.mark.parametrize(
    "column", ["Who?", [{"role": "system", "content": "Search."}, {"role": "user", "content": "Who?"}]]
)
def test_a_row_holds_its_prompt_once(column):
    messages = (Message("system", "Search."), Message("user", "Who?"))
    columns = {"first": 1, "prompt": column, "last": None}
    row = JobRow(Purpose.TRAIN, 0, Task("q", messages, answer="Ann", columns=columns))
    label = json.loads(write_row(row))["label"]
    assert label.count("Who?") == 1
    assert read_label(label, JOB.folder) == row
    assert list(read_label(label, JOB.folder).task.columns) == list(columns)
