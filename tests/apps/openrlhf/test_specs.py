"""The shipped specs of the OpenRLHF engine are right once the data and the server that they name are there."""

from __future__ import annotations

import json
import shutil
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from rlf.apps.openrlhf.dataset import JobRow, Purpose, read_label, write_row
from rlf.apps.openrlhf.settings import Layout
from rlf.core import SpecError
from rlf.data import load_tasks
from rlf.runs.plans import check_spec
from rlf.spec import load_spec

from .conftest import SHIPPED, SPECS

REPOSITORY = Path(__file__).parents[3]
GPUS = dict(zip(SHIPPED, (2, 1, 8, 8, 8, 16), strict=True))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The shipped specs beside rows in the shape that Search-R1 publishes."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in ("specs", "tool_specs", "reward_specs"):
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    for name in ("nq_search", "nq_rl_factory"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for split in ("train", "test"):
            rows = [row(split, index) for index in range(8)]
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / f"data/{name}/{split}.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def row(split, index):
    return {
        "data_source": "nq",
        "prompt": [{"role": "user", "content": f"Answer the given question. Question: who is {split} {index}?"}],
        "ability": "fact-reasoning",
        "reward_model": {"style": "rule", "ground_truth": {"target": ["Ann", "Ann B."]}},
        "extra_info": {"split": split, "index": index},
    }


def test_there_is_one_for_a_rehearsal_one_gpu_eight_and_two_nodes():
    kinds = {path.stem: load_spec([path]).spec.engine.kind for path in SPECS.glob("*.yaml")}
    assert {name for name, kind in kinds.items() if kind == "openrlhf"} == set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_it_is_right_and_warns_at_most_of_a_model_that_is_not_here(name, project):
    checked = check_spec([project / "specs" / f"{name}.yaml"], [])
    engine = checked.loaded.spec.engine
    assert Layout.of(checked.loaded.spec).total_gpus(engine) == GPUS[name]
    warned = {warning.path: warning.message for warning in checked.warnings}
    expected = {"model.path"} if "Qwen" in checked.loaded.spec.model.path else set()
    # The rows are made up here: a few, and all have one gold.
    assert set(warned) - {"data.train.path", "data.eval.path", "train.prompts_per_step"} == expected
    assert "is not on this machine" in warned.get("model.path", "is not on this machine")


def save_asked(value, project):
    """Rows with a further column of that value."""
    rows = [{**row("train", index), "asked": value} for index in range(8)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), project / "data/nq_search/train.parquet")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (date(2024, 1, 1), "2024-01-01"),
        (datetime(2024, 1, 1, 2), "2024-01-01T02:00:00"),
        (Decimal("1.50"), "1.50"),
        ([{"on": date(2024, 1, 1)}], [{"on": "2024-01-01"}]),
    ],
)
def test_dates_and_decimals_travel_to_the_agents_as_text(value, written, project):
    save_asked(value, project)
    checked = check_spec([project / "specs/search_r1_qwen25_3b.yaml"], [])
    (task, *_) = checked.inputs.train
    sent = read_label(json.loads(write_row(JobRow(Purpose.TRAIN, 0, task)))["label"], project)
    assert sent.task.columns["asked"] == written


@pytest.mark.parametrize("value", [timedelta(seconds=3), float("nan"), {"at": timedelta(1)}])
def test_a_column_that_json_lacks_is_reported_at_its_row_of_the_dataset(value, project):
    save_asked(value, project)
    with pytest.raises(SpecError) as error:
        check_spec([project / "specs/search_r1_qwen25_3b.yaml"], [])
    (fault,) = error.value.faults
    assert (fault.place.line, fault.path) == (1, "asked")
    assert "which JSON does not have" in fault.message


PUBLISHED = {
    # prompts, rollouts, trajectories of an update, learning rate, warm-up, entropy; top_p, temperature, turns, tokens
    "search_r1_qwen25_3b": (512, 5, 256, 1e-6, 2860, 0.001, 0.95, 1.0, 3, 500),
    "rl_factory_qwen3_4b": (128, 4, 32 * 4, 1e-6, 0, 0.0, 0.95, 0.7, 2, 512),
    "ftrl_qwen3_8b": (512, 16, 32 * 16, 1e-6, 0, 0.001, 1.0, 0.7, 20, 1024),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_run_has_the_numbers_of_its_script(name, project):
    checked = check_spec([project / f"specs/{name}.yaml"], [])
    train, rollout = checked.loaded.spec.train, checked.loaded.spec.rollout
    update = train.prompts_per_step * rollout.num_generations // train.mini_batches
    sampling = (rollout.top_p, rollout.temperature, rollout.max_turns, rollout.max_new_tokens)
    steps = (train.prompts_per_step, rollout.num_generations, update, train.learning_rate, train.warmup_steps)
    assert (*steps, train.entropy_coef, *sampling) == PUBLISHED[name]
    assert (train.adam_betas, train.weight_decay, train.max_grad_norm) == ((0.9, 0.999), 0.01, 1.0)
    assert (train.kl.coef, train.kl.kind, train.kl.place) == (0.001, "k3", "loss")


def test_search_r1_evaluates_every_question_greedily_and_reads_500_tokens_of_a_result(project):
    checked = check_spec([project / "specs/search_r1_qwen25_3b.yaml"], [])
    spec = checked.loaded.spec
    assert (spec.eval.limit, spec.eval.greedy, spec.eval.every) == (3610, True, 50)
    assert spec.train.warmup_steps == 10 * int(0.285 * 1005)
    assert (spec.tools[0].limits.max_output_tokens, spec.tools[0].limits.timeout_s) == (500, 30)
    assert (checked.num_train_rows, spec.data.train.id) == (8, "extra_info.index")


def test_the_public_rows_of_nq_are_a_dataset_by_a_template(project):
    """FlashRAG's rows, of which Search-R1 and RL-Factory make theirs."""
    rows = [{"id": f"train_{index}", "question": f"who is {index}", "golden_answers": ["Ann"]} for index in range(8)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), project / "data/nq.parquet")
    source = (
        "{path: data/nq.parquet, template: 'Question: {{ question }}?', answer: golden_answers, kind: null, id: id}"
    )
    loaded = load_spec([project / "specs/search_r1_qwen25_3b.yaml"], [f"data.train={source}"])
    (task, *_) = load_tasks(**loaded.spec.data.train.model_dump())
    assert (task.id, task.messages[0].content, task.answer) == ("train_0", "Question: who is 0?", ["Ann"])
