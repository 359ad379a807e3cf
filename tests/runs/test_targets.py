"""A target is a model with the tools, rewards, limits and format that it was trained with."""

import asyncio
import shutil
from pathlib import Path

import pytest

from rlf.apps.keep.export import export_model
from rlf.core import RlfError, SpecError
from rlf.engines.engine import HostSettings
from rlf.runs.targets import endpoint_of, open_target
from rlf.spec.models import Schedule
from rlf.types.policy import Sampling

from .conftest import ROOT, SPEC, TOOL

SEARCH = ROOT / "specs" / "search.yaml"


def opened(name, *rest, **keys):
    with open_target(name, *rest, **keys) as target:
        return target


def test_a_run_is_its_newest_model_with_its_own_spec(trained):
    runs, run_id = trained
    target = opened(run_id, runs_folder=runs)
    assert (target.name, target.step) == (f"{run_id}@2", 2)
    assert target.model == str(runs / run_id / "model")
    assert [tool.name for tool in target.spec.tools] == ["search", "calculator"]
    assert target.spec.eval.limit == 8 and target.sha256


def test_a_step_of_a_run_is_the_model_of_its_checkpoint(trained):
    runs, run_id = trained
    with open_target(f"{run_id}@1", runs_folder=runs) as target:
        assert (Path(target.model) / "config.json").is_file() and target.step == 1
        first = target.sha256
    assert not Path(target.model).exists()
    assert first != opened(run_id, runs_folder=runs).sha256


def test_a_host_samples_from_a_target(trained):
    runs, run_id = trained

    async def sample():
        settings = HostSettings(schedule=Schedule.LOGICAL, max_tokens=64)
        host, tokenizer = opened(run_id, runs_folder=runs).load_host(settings)
        async with host:
            return await host.complete(tokenizer.encode("Where"), 4, Sampling(temperature=0.0), seed=0)

    assert asyncio.run(sample()).tokens == asyncio.run(sample()).tokens


def test_a_folder_with_weights_that_are_cut_off_is_refused_before_anything_is_written(trained, tmp_path):
    runs, run_id = trained
    export_model(run_id, tmp_path / "model", runs_folder=runs)
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(RlfError, match=r"model: its weights are damaged: model.safetensors has \d+ bytes; its header"):
        opened(str(tmp_path / "model"), runs_folder=runs)
    weights.write_bytes(b"")
    with pytest.raises(RlfError, match="has no header that can be read"):
        opened(str(tmp_path / "model"), runs_folder=runs)


def test_an_exported_folder_knows_the_run_that_it_is_of(trained, tmp_path):
    runs, run_id = trained
    export_model(run_id, tmp_path / "model", runs_folder=runs, step="1")
    target = opened(str(tmp_path / "model"), runs_folder=runs)
    assert (target.record.id, target.step) == (run_id, 1)
    assert len(target.spec.tools) == 2
    elsewhere = opened(str(tmp_path / "model"), runs_folder=tmp_path / "none")
    assert elsewhere.plan is None and elsewhere.spec.tools == ()


def test_a_model_alone_takes_what_a_spec_says(tmp_path):
    alone, used = opened("builtin:tiny", runs_folder=tmp_path), opened("builtin:tiny", [SEARCH], runs_folder=tmp_path)
    assert alone.plan is None and alone.sha256 == used.sha256
    assert len(used.spec.tools) == 2 and used.plan.origins["model.path"] == "override"


def test_overrides_change_how_a_run_is_used(trained):
    runs, run_id = trained
    assert opened(run_id, (), ["rollout.max_turns=2"], runs_folder=runs).spec.rollout.max_turns == 2


def test_an_endpoint_is_used_as_a_spec_says(tmp_path):
    endpoint = endpoint_of("http://127.0.0.1:1/v1", "gpt")
    target = opened(None, [SEARCH], endpoint=endpoint, runs_folder=tmp_path)
    assert (target.name, target.model) == ("gpt at http://127.0.0.1:1/v1", None)
    assert len(target.spec.tools) == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "names no model: there is no such folder here, and .*no lineage yet"),
        ("./nothing", "no model: it is not there"),
        (".", "no model: it has no config.json"),
        ("builtin:none", "unknown builtin 'none'"),
        ("builtin:encyclopedia/train", "no model, but data"),
    ],
)
def test_what_is_no_model_is_refused_in_words(name, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RlfError, match=words):
        opened(name, runs_folder=tmp_path / "runs")


def test_a_run_without_that_step_names_those_it_has(trained):
    runs, run_id = trained
    with pytest.raises(RlfError, match=rf"{run_id}@9: got '9'; .* has models of steps 1, 2"):
        opened(f"{run_id}@9", runs_folder=runs)
    with pytest.raises(RlfError, match=r"names no model.*no such run"):
        opened("nothing@1", runs_folder=runs)


@pytest.mark.parametrize(
    ("url", "model", "words"), [("ftp://x", "m", "--endpoint: got"), ("http://x/v1", "", "--model")]
)
def test_what_cannot_be_an_endpoint_is_refused(url, model, words):
    with pytest.raises(RlfError, match=words):
        endpoint_of(url, model)


def test_a_spec_that_does_not_fit_the_model_is_a_fault_with_its_place(trained):
    runs, run_id = trained
    with pytest.raises(SpecError, match=r"override chat\.format: .*the model's chat template is not of that format"):
        opened(run_id, (), ["chat.format=mistral"], runs_folder=runs)


def test_tools_that_are_gone_are_a_fault_with_their_place(tmp_path):
    from rlf.runs.start import run

    from .test_runs import Watch

    (tmp_path / "train.jsonl").write_text('{"question": "Where?", "answer": "Here", "kind": "one"}\n')
    (tmp_path / "search.py").write_text("def search(query):\n    return query\n")
    (tmp_path / "search.yaml").write_text(TOOL)
    (tmp_path / "spec.yaml").write_text(
        SPEC.replace("steps: 2", "steps: 1").replace("prompts_per_step: 2", "prompts_per_step: 1")
    )
    runs = tmp_path / "runs"
    run([tmp_path / "spec.yaml"], ["eval.limit=1"], runs_folder=runs, view=Watch(), command=["rlf"])
    (tmp_path / "search.py").unlink()
    with pytest.raises(SpecError, match=r"search.yaml:4.* tools\[0\].*search.py") as fault:
        opened("latest", runs_folder=runs)
    assert "/tmp/tmp" not in str(fault.value)
    shutil.move(tmp_path / "train.jsonl", tmp_path / "moved.jsonl")
    (tmp_path / "search.py").write_text("def search(query):\n    return query\n")
    with pytest.raises(SpecError, match=r"data\.train\.path"):
        opened("latest", runs_folder=runs)
    assert opened("latest", runs_folder=runs, needs_data=False).spec.tools
