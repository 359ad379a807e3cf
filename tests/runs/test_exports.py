"""A run's model is exported whole, with the run that it is of, whichever engine trained it."""

import json
from pathlib import Path

import pytest
import torch

from rlf.apps.keep.export import export_model
from rlf.chat.encoding import load_tokenizer
from rlf.core import RlfError, hash_path
from rlf.engines.local.model import load_model, save_model
from rlf.lineage.graph import read_graph
from rlf.lineage.reader import Reader
from rlf.lineage.run import start_run
from rlf.runs.exports import ORIGIN, PROCESSOR_FILES
from rlf.runs.place import open_lineage
from rlf.spec.model_files import model_location
from rlf.spec.models import LoraSpec

from ..lineage.builders import run_record


def a_run(tmp_path, engine, *models, output=None, model="builtin:tiny"):
    """A run of 4 steps in the lineage, with models in these folders of it."""
    folder = tmp_path / "runs" / "r1"
    for saved in models:
        (folder / saved).mkdir(parents=True)
        (folder / saved / "config.json").write_text(json.dumps({"from": saved}))
    spec = {"model": {"path": model}, "train": {"steps": 4}, "engine": {"kind": engine, "output": output}}
    plan = {"spec": spec}
    with open_lineage(tmp_path / "runs", create=True) as store:
        start_run(store, run_record("r1", engine=engine, plan=plan, folder=str(folder)))
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("engine", "models", "chosen", "step"),
    [
        ("local", ["model"], "model", 4),
        ("openrlhf", ["job/model", "job/ckpt/global_step2_hf"], "job/model", 4),
        ("openrlhf", ["job/ckpt/global_step2_hf", "job/ckpt/global_step10_hf"], "job/ckpt/global_step10_hf", 10),
    ],
)
def test_the_newest_model_is_exported_with_the_run_that_it_is_of(engine, models, chosen, step, tmp_path):
    runs = a_run(tmp_path, engine, *models)
    done = export_model("latest", tmp_path / "out", runs_folder=runs)
    assert (done.run_id, done.step) == ("r1", step)
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == {"from": chosen}
    assert json.loads((tmp_path / "out" / ORIGIN).read_text())["run"] == "r1"
    with open_lineage(runs) as store:
        graph = read_graph(Reader(store), "r1")
    node = graph.node(f"export:{tmp_path / 'out'}")
    assert node is not None and node.sha256 == hash_path(tmp_path / "out")
    assert {"plan", "run"} <= {source.kind for source in graph.ancestors(node.key)}


@pytest.mark.parametrize("engine", ["local", "openrlhf"])
def test_adapters_are_exported_as_a_whole_model(engine, tmp_path):
    path = model_location("builtin:tiny")
    keys = {"dtype": torch.float32, "device": torch.device("cpu")}
    model = load_model(path, lora=LoraSpec(rank=2), **keys)
    for name, weight in model.full.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    runs = a_run(tmp_path, engine)
    save_model(model, load_tokenizer(path), tmp_path / "runs/r1" / ("model" if engine == "local" else "job/model"))
    export_model("r1", tmp_path / "out", runs_folder=runs)
    exported = load_model(str(tmp_path / "out"), frozen=True, **keys)
    tokens_BT = torch.arange(8)[None]
    with torch.no_grad():
        expected, plain = (item.full(tokens_BT).logits for item in (model, load_model(path, frozen=True, **keys)))
        torch.testing.assert_close(exported.full(tokens_BT).logits, expected, rtol=0, atol=1e-4)
    assert (plain - expected).abs().max() > 0.1
    assert {"tokenizer.json", "config.json", ORIGIN} <= {file.name for file in (tmp_path / "out").iterdir()}
    assert not list((tmp_path / "out").glob("adapter_*"))


def test_what_reads_pictures_is_exported_too(tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    for name in ("config.json", "preprocessor_config.json", "processor_config.json"):
        (base / name).write_text(json.dumps({"of": "base"}))
    runs = a_run(tmp_path, "openrlhf", "job/model", model=str(base))
    (tmp_path / "runs/r1/job/model/processor_config.json").write_text(json.dumps({"of": "run"}))
    export_model("r1", tmp_path / "out", runs_folder=runs)
    read = {name: json.loads((tmp_path / "out" / name).read_text()) for name in PROCESSOR_FILES[:2]}
    assert read == {"processor_config.json": {"of": "run"}, "preprocessor_config.json": {"of": "base"}}
    assert not (tmp_path / "out" / PROCESSOR_FILES[2]).exists()


def test_adapters_whose_model_is_gone_are_reported(tmp_path):
    runs = a_run(tmp_path, "openrlhf", "job/model")
    gone = {"base_model_name_or_path": str(tmp_path / "gone")}
    (tmp_path / "runs/r1/job/model/adapter_config.json").write_text(json.dumps(gone))
    (tmp_path / "runs/r1/job/model/config.json").write_text(json.dumps({"model_type": "qwen3"}))
    with pytest.raises(RlfError, match=r"job/model: the trained model does not load from '.*gone'"):
        export_model("r1", tmp_path / "out", runs_folder=runs)
    assert not (tmp_path / "out").exists()


def test_a_run_without_a_model_and_a_folder_that_exists_are_reported(tmp_path):
    runs = a_run(tmp_path, "openrlhf")
    with pytest.raises(RlfError, match=r"run r1: there is no model .*rlf resume"):
        export_model("r1", tmp_path / "out", runs_folder=runs)
    with pytest.raises(RlfError, match="exists already"):
        export_model("r1", tmp_path, runs_folder=runs)


def test_an_export_that_is_killed_leaves_no_folder_that_the_lineage_does_not_know(tmp_path, monkeypatch):
    runs, foreign = a_run(tmp_path, "local", "model"), tmp_path / ".out.tmp"
    foreign.mkdir()
    (foreign / "precious").touch()

    class Killed(BaseException):
        """Stands for a kill: no handler of ours is there for it."""

    rename = Path.rename

    def rename_and_die(self, target):
        rename(self, target)
        raise Killed

    monkeypatch.setattr(Path, "rename", rename_and_die)
    with pytest.raises(Killed):
        export_model("latest", tmp_path / "out", runs_folder=runs)
    with open_lineage(runs) as store:
        (known,) = Reader(store).exports("r1")
    assert (known.path, known.sha256) == (str(tmp_path / "out"), hash_path(tmp_path / "out"))
    assert (foreign / "precious").exists()
