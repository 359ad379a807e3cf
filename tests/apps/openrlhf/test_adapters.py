"""What vLLM loads of a policy with adapters is what PEFT makes of them, by the names of the plain model."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import openrlhf
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from rlf.apps.openrlhf.policy import SCALE, WORKER, AdapterMerge, let_vllm_merge, merge_adapter
from rlf.apps.openrlhf.rehearsal_place import SHIM, rehearsal_environment
from rlf.engines.saved_model import load_saved
from rlf.processes import supervise
from rlf.spec.model_files import model_location

from ...models import save_random_model

RANK, ALPHA = 4, 6


def with_adapters(folder, dtype=torch.float32, **keys):
    """A model as OpenRLHF holds it, with adapters that have learnt something."""
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    keys = {"r": RANK, "lora_alpha": ALPHA, "target_modules": "all-linear", "task_type": "CAUSAL_LM"} | keys
    model = get_peft_model(base, LoraConfig(**keys)).to(dtype)
    torch.manual_seed(1)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    return model


@pytest.fixture
def folder(tmp_path):
    return save_random_model(tmp_path / "model")


def sent(model, load, scale=ALPHA / RANK):
    """Sends a model's weights one by one, each in memory that is taken back, as OpenRLHF does."""
    merging = AdapterMerge(load, scale)
    for name, weight in model.named_parameters():
        lent = weight.detach().clone()
        merging(weights=[(name, lent)])
        lent.zero_()
    merging.check_done()


def into(found):
    """A `load_weights` that keeps what it is given."""
    return lambda weights: found.update({name: weight.clone() for name, weight in weights})


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "down_proj"]])
def test_what_is_loaded_is_what_peft_merges_weight_for_weight(targets, folder):
    model, found = with_adapters(folder, target_modules=targets), {}
    sent(model, into(found))
    merged = dict(model.merge_and_unload().named_parameters())
    assert set(found) == set(merged)
    for name, weight in merged.items():
        torch.testing.assert_close(found[name], weight.detach(), rtol=0, atol=1e-6)
    plain = dict(AutoModelForCausalLM.from_pretrained(folder).named_parameters())
    moved = {name for name, weight in plain.items() if (found[name] - weight).abs().max() > 1e-3}
    ends = "_proj.weight" if targets == "all-linear" else tuple(f"{target}.weight" for target in targets)
    assert moved == {name for name in plain if name.endswith(ends)}


def test_a_saved_policy_is_loaded_with_the_weights_that_vllm_had(folder, tmp_path):
    model, found = with_adapters(folder, torch.bfloat16), {}
    sent(model, into(found))
    model.save_pretrained(tmp_path / "saved")
    model.config.save_pretrained(tmp_path / "saved")
    saved = load_saved(tmp_path / "saved")
    assert saved.dtype is torch.bfloat16
    assert all(torch.equal(weight, found[name]) for name, weight in saved.named_parameters())


def test_half_precision_is_merged_in_float32_and_rounded_once():
    """1 + 1.5 x (2^-9 x 3) = 1 + 4.5 / 512: bfloat16 has steps of 4 / 512 there, so 1 + 4 / 512."""
    weight, a, b = torch.tensor([[1.0]]), torch.tensor([[2.0**-9]]), torch.tensor([[3.0]])
    half = merge_adapter(*(value.bfloat16() for value in (weight, a, b)), scale=1.5)
    assert (half.dtype, half.item()) == (torch.bfloat16, 1 + 4 / 512)
    assert merge_adapter(weight, a, b, scale=1.5).item() == 1 + 4.5 / 512
    assert weight.item() == 1


def test_biases_of_modules_with_adapters_keep_the_plain_name():
    found = {}
    AdapterMerge(into(found), 1.0)(weights=[("base_model.model.lm.q.base_layer.bias", torch.ones(2))])
    assert set(found) == {"lm.q.bias"}


def test_adapters_without_their_weights_are_an_error_and_not_an_update():
    """As of a model with a vision tower, of which OpenRLHF sends what is trained alone."""
    merging = AdapterMerge(into({}), 1.0)
    for part in ("lora_A", "lora_B"):
        merging(weights=[(f"base_model.model.lm.q.{part}.default.weight", torch.ones(1, 1))])
    with pytest.raises(RuntimeError, match=r"1 adapters came incomplete: of lm.q only lora_A.default, lora_B.default"):
        merging.check_done()


def test_vllm_is_made_with_the_worker_that_merges(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(AsyncEngineArgs=dict))
    let_vllm_merge(1.5)
    made = sys.modules["vllm"].AsyncEngineArgs(model="m", worker_extension_cls="openrlhf's", seed=3)
    assert made == {"model": "m", "seed": 3, "worker_extension_cls": WORKER, "additional_config": {SCALE: 1.5}}


@pytest.fixture
def worker(monkeypatch):
    """rlf's worker over the installed OpenRLHF's own, whose package would import Ray; loaded weights in `found`."""
    path = Path(openrlhf.__file__).parent / "trainer" / "ray" / "vllm_worker_wrap.py"
    spec = importlib.util.spec_from_file_location("openrlhf.trainer.ray.vllm_worker_wrap", path)
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    for name in ("openrlhf.trainer", "openrlhf.trainer.ray"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    utils = SimpleNamespace(get_physical_gpu_id=lambda: "gpu")
    for name, module in (("vllm_worker_wrap", theirs), ("utils", utils)):
        monkeypatch.setitem(sys.modules, f"openrlhf.trainer.ray.{name}", module)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    module, _, name = WORKER.rpartition(".")
    monkeypatch.delitem(sys.modules, module, raising=False)
    made = getattr(importlib.import_module(module), name)()
    made.found = {}
    made.device = SimpleNamespace(index=0)
    made.model_config = SimpleNamespace(dtype=torch.bfloat16)
    made.model_runner = SimpleNamespace(model=SimpleNamespace(load_weights=into(made.found)))
    made.vllm_config = SimpleNamespace(additional_config={SCALE: ALPHA / RANK})
    yield made
    monkeypatch.delitem(sys.modules, module)


def lend(weight, *_rest):
    return weight


def test_the_worker_loads_update_after_update_what_openrlhfs_own_receives(worker, folder):
    model = with_adapters(folder, torch.bfloat16)
    for factor in (1, 2):
        weights = list(model.named_parameters())
        for place, (name, weight) in enumerate(weights, 1):
            handles = {"gpu": (partial(lend, weight.detach().clone()), [None] * 7)}
            worker.update_weight_cuda_ipc(name, weight.dtype, weight.shape, handles, place == len(weights))
        expected = {}
        sent(model, into(expected))
        assert worker.found.keys() == expected.keys()
        assert all(torch.equal(worker.found[name], weight) for name, weight in expected.items()), factor
        with torch.no_grad():
            for name, weight in weights:
                if "lora_B" in name:
                    weight.mul_(-2)


@pytest.mark.skipif(
    not rehearsal_environment().is_ready(vllm=True),
    reason="VLLM ITSELF IS NOT SENT ADAPTERS: it is not there (rlf rehearse --setup --vllm makes its environment)",
)
def test_the_process_of_vllm_itself_holds_the_merged_weights():
    environment = rehearsal_environment()
    variables = environment.variables() | {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}
    path = os.pathsep.join([str(SHIM), str(Path(__file__).parents[3])])
    script = Path(__file__).with_name("vllm_adapters.py")
    done = subprocess.run(
        [sys.executable, supervise.__file__, environment.python, script, model_location("builtin:tiny")],
        env=os.environ | variables | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert "weights 26 other []" in done.stdout.splitlines(), done.stderr[-2000:]
