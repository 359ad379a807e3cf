import json
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from rlf.builtin.names import builtin_path
from rlf.chat.encoding import load_tokenizer
from rlf.core import RlfError, SpecError
from rlf.engines.local.model import load_model, resolve_device, save_model
from rlf.runs.plans import check_spec
from rlf.spec.model_files import find_damaged_weights
from tests.engines.local.test_sampler import new_sampler, play, recomputed

SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def load(folder, family, **keys):
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SMALL, **keys)
    getattr(transformers, f"{family}ForCausalLM")(config).save_pretrained(folder)
    return load_model(str(folder), dtype=torch.float32, device=torch.device("cpu"))


@pytest.mark.parametrize(
    ("family", "keys"),
    [("Llama", {}), ("Qwen2", {}), ("Mistral", {"sliding_window": None}), ("Olmo2", {}), ("Gemma", {"head_dim": 8})],
)
def test_other_families_sample_what_one_plain_forward_pass_says(tmp_path, family, keys):
    model = load(tmp_path, family, **keys)
    for tokens, mask, logprobs in play(new_sampler(model), count=6):
        plain = [0.0, *recomputed(model, tokens)]
        for position, sampled in enumerate(mask):
            if sampled:
                assert logprobs[position] == pytest.approx(plain[position], abs=1e-4)


def test_a_model_with_sliding_windows_is_refused(tmp_path):
    keys = {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}
    with pytest.raises(RlfError, match="full attention only"):
        load(tmp_path, "Qwen3", **keys)


def test_a_model_that_scales_its_logits_is_refused(tmp_path):
    with pytest.raises(RlfError, match="not its head applied"):
        load(tmp_path, "Cohere", logit_scale=0.1)


def test_a_folder_without_a_model_is_reported(tmp_path):
    with pytest.raises(RlfError, match="does not load as a causal language model"):
        load_model(str(tmp_path), dtype=torch.float32, device=torch.device("cpu"))


def test_weights_that_are_cut_off_are_named(tmp_path):
    config = transformers.LlamaConfig(**SMALL)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(RlfError, match=r"does not load as a causal language model: .*header"):
        load_model(str(tmp_path), dtype=torch.float32, device=torch.device("cpu"))


Q, EMBEDDING, HEAD = "model.layers.0.self_attn.q_proj.weight", "model.embed_tokens.weight", "lm_head.weight"
DAMAGES = {
    "one lacks": (lambda weights: weights.pop(Q), f"lacks? {Q}"),
    "none is tied": (lambda weights: weights.pop(HEAD), f"lacks? {HEAD}"),
    "another shape": (
        lambda weights: weights.update({Q: weights[Q][1:].clone()}),
        r"other shapes.*self_attn.q_proj.weight",
    ),
    "another vocabulary": (
        lambda weights: weights.update({EMBEDDING: weights[EMBEDDING][1:].clone()}),
        rf"other shapes.*: {EMBEDDING} .*config.json: \[96, 32\]",
    ),
    "a layer more": (
        lambda weights: weights.update({Q.replace("0", "7"): weights[Q].clone()}),
        Q.replace("0", "7"),
    ),
}


@pytest.mark.parametrize("form", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_weights_that_are_not_those_of_the_configuration_are_named_by_a_check_and_at_load(tmp_path, damage, form):
    load(tmp_path, "Llama")
    file = tmp_path / "model.safetensors"
    weights, (change, words) = load_file(file), DAMAGES[damage]
    change(weights)
    file.unlink()
    write = partial(save_file, metadata={"format": "pt"}) if form.startswith("model") else torch.save
    write(weights, tmp_path / form)
    with pytest.raises(
        RlfError, match=f"does not load as a causal language model: its weights .*{words.replace('s?', '')}"
    ):
        load_model(str(tmp_path), dtype=torch.float32, device=torch.device("cpu"))
    found = find_damaged_weights(tmp_path)
    assert found is None if form.endswith("bin") else re.search(words, found)


def test_tied_weights_and_those_of_no_module_are_no_fault(tmp_path):
    load(tmp_path, "Llama", tie_word_embeddings=True)
    weights = load_file(tmp_path / "model.safetensors")
    assert HEAD not in weights
    save_file(weights | {"v_head.weight": torch.zeros(1)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert find_damaged_weights(tmp_path) is None
    load_model(str(tmp_path), dtype=torch.float32, device=torch.device("cpu"))


def test_a_check_names_what_an_index_lists_and_the_folder_lacks(tmp_path):
    load(tmp_path, "Llama").full.save_pretrained(tmp_path / "shards", max_shard_size="40KB")
    folder = tmp_path / "shards"
    shard, second = sorted(folder.glob("model-*.safetensors"))[:2]
    assert find_damaged_weights(folder) is None
    name, *others = load_file(shard)
    save_file({each: load_file(shard)[each] for each in others}, shard, metadata={"format": "pt"})
    assert find_damaged_weights(folder) == f"{shard.name} has no {name}, which model.safetensors.index.json lists"
    second.unlink()
    assert find_damaged_weights(folder) == f"model.safetensors.index.json lists {second.name}, not in the folder"
    (folder / "model.safetensors.index.json").write_text("[]")
    assert find_damaged_weights(folder) == "model.safetensors.index.json is no index of weights"
    for file in folder.glob("model*"):
        file.unlink()
    torch.save({"a": torch.zeros(9)}, folder / "pytorch_model.bin")
    (folder / "pytorch_model.bin").write_bytes((folder / "pytorch_model.bin").read_bytes()[:-9])
    assert find_damaged_weights(folder) == "pytorch_model.bin is cut off"
    for file in builtin_path("tiny").iterdir():
        shutil.copy(file, tmp_path)
    spec = Path(__file__).parents[3] / "specs" / "search.yaml"
    check_spec([spec], [f"model.path={tmp_path}"])
    weights = load_file(tmp_path / "model.safetensors")
    del weights[Q]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(SpecError, match=rf"model.path: .*its weights are damaged: .* {Q}\. Write or fetch"):
        check_spec([spec], [f"model.path={tmp_path}"])


def test_what_transformers_stumbles_over_is_reported(tmp_path):
    load(tmp_path, "Llama")
    config = json.loads((tmp_path / "config.json").read_text())
    for key, value, words in (("hidden_act", "nope", "KeyError: 'nope'"), ("hidden_size", 64, "other shapes")):
        (tmp_path / "config.json").write_text(json.dumps(config | {key: value}))
        with pytest.raises(RlfError, match=f"does not load as a causal language model: .*{words}"):
            load_model(str(tmp_path), dtype=torch.float32, device=torch.device("cpu"))


def test_generation_settings_that_contradict_each_other_are_saved_as_they_were(tmp_path):
    load(tmp_path, "Llama")
    settings = {"temperature": 0.6, "do_sample": False, "eos_token_id": 2}
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    model = load_model(str(tmp_path), dtype=torch.float32, device=torch.device("cpu"))
    save_model(model, load_tokenizer(str(builtin_path("tiny"))), tmp_path / "saved")
    saved = json.loads((tmp_path / "saved/generation_config.json").read_text())
    assert (saved["temperature"], saved.get("do_sample", False), saved["eos_token_id"]) == (0.6, False, 2)
    assert model.full.generation_config.temperature == 0.6


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_asking_for_a_gpu_that_is_not_there_is_reported():
    with pytest.raises(RlfError, match="torch sees no GPU"):
        resolve_device("cuda")


@pytest.mark.parametrize(
    ("family", "keys", "is_plain"),
    [
        ("Qwen3", {"head_dim": 8}, True),
        ("Llama", {"attention_bias": True}, True),
        ("Granite", {"residual_multiplier": 0.5}, False),
        ("Olmo2", {}, False),
    ],
)
def test_a_plain_decoder_is_run_without_transformers_and_no_bit_differs(tmp_path, family, keys, is_plain):
    model = load(tmp_path, family, **keys)
    assert (model.plain is not None) is is_plain
    tokens = torch.arange(20).view(2, 10)
    found = []
    for each in (model, replace(model, plain=None)):
        hidden = each.hidden(tokens)
        found.append((hidden, torch.autograd.grad(hidden.square().sum(), model.backbone.layers[0].parameters())))
    torch.testing.assert_close(*found, rtol=0, atol=0)
