"""The shipped specs of the OpenRLHF engine are right once the data and the server that they name are there."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from rlf.api.specs.plans import check_spec
from rlf.core import SpecError
from rlf.engines.openrlhf.layout import Layout
from rlf.spec import load_spec

from .conftest import SHIPPED, SPECS

REPOSITORY = Path(__file__).parents[3]
GPUS = dict(zip(SHIPPED, (2, 1, 8, 16), strict=True))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The shipped specs beside rows in the shape that Search-R1 publishes."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in ("specs", "tool_specs", "reward_specs"):
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    (tmp_path / "data/nq").mkdir(parents=True)
    for split in ("train", "test"):
        rows = [row(split, index) for index in range(8)]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / f"data/nq/{split}.parquet")
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
def test_it_is_right_and_warns_at_most_of_a_model_that_is_not_here_and_a_server_that_nodes_do_not_reach(name, project):
    checked = check_spec([project / "specs" / f"{name}.yaml"], [])
    engine = checked.loaded.spec.engine
    assert Layout.of(checked.loaded.spec).total_gpus(engine) == GPUS[name]
    warned = {warning.path: warning.message for warning in checked.warnings}
    expected = {"model.path"} if "Qwen" in checked.loaded.spec.model.path else set()
    expected |= {"target.url"} if engine.ray_address is not None else set()  # RETRIEVE_URL is not set
    assert set(warned) - {"engine.mode"} == expected
    assert "is not on this machine" in warned.get("model.path", "is not on this machine")


def test_a_column_of_dates_is_told_at_the_dataset(project):
    rows = [{**row("train", index), "asked": date(2024, 1, 1)} for index in range(8)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), project / "data/nq/train.parquet")
    with pytest.raises(SpecError) as error:
        check_spec([project / "specs/search_r1_qwen3_4b.yaml"], [])
    (fault,) = error.value.faults
    assert (fault.path, "the columns asked need" in fault.message) == ("data.train.path", True)


def test_search_r1_has_the_papers_numbers(project):
    """verl's: batch 512, mini-batch 256, 5 rollouts, warm-up ratio 0.285 of 2 x 300 updates, KL 0.001, 500 tokens."""
    spec = load_spec([project / "specs/search_r1_qwen3_4b.yaml"]).spec
    train, rollout = spec.train, spec.rollout
    assert (train.prompts_per_step, train.prompts_per_step / train.mini_batches) == (512, 256)
    assert (rollout.num_generations, rollout.max_new_tokens, rollout.max_total_tokens) == (5, 500, 4096)
    assert (train.warmup_steps, train.learning_rate, train.kl.coef) == (round(0.285 * 2 * 300), 1e-6, 0.001)
    assert (spec.tools[0].limits.max_output_tokens, spec.tools[0].limits.timeout_s) == (500, 30)
    checked = check_spec([project / "specs/search_r1_qwen3_4b.yaml"], [])
    assert (checked.num_train_rows, checked.loaded.spec.data.train.id) == (8, "extra_info.index")
