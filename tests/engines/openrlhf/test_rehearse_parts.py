"""What a rehearsal puts in place of the model, of the policy's first turn, and of what a CPU cannot do."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from rlf.chat.format import FORMATS
from rlf.core import RlfError
from rlf.engines.openrlhf.compile.argv import argv
from rlf.engines.openrlhf.compile.parser import parse_options
from rlf.engines.openrlhf.rehearse.model import rehearsal_model
from rlf.engines.openrlhf.rehearse.policy import OpeningCalls
from rlf.engines.openrlhf.rehearse.spec import place_changes, size_changes
from rlf.engines.tokenizer import load_tokenizer
from rlf.plan import compile as compile_plan
from rlf.spec import load_spec
from rlf.types import ToolCall
from rlf.types.policy import Finish, Sample, SampleRequest, Sampling

from .conftest import JOB, SHIPPED, SPECS

TINY = Path("rlf/builtin/tiny/checkpoint")


@pytest.mark.parametrize("vllm", [False, True])
@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_job_can_be_made_one_for_this_cpu(name, vllm, monkeypatch):
    monkeypatch.setenv("RETRIEVE_URL", "http://localhost:8000/retrieve")
    file = [SPECS / f"{name}.yaml"]
    spec = compile_plan(load_spec(file, [])).spec
    changes = [*place_changes(spec, vllm=vllm), *size_changes(spec)]
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
    assert place_changes(load(*small).spec, vllm=False) == []


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


def test_a_small_model_is_taken_as_it_is(tmp_path):
    assert rehearsal_model(str(TINY), tmp_path / "small", seed=0)[0] == str(TINY)
    assert not (tmp_path / "small").exists()


def test_weights_that_saving_alone_rounds_have_not_moved(tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    from rlf.api.rehearsals import _changed

    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    assert _changed(TINY, tmp_path) == "it loads; training moved its weights by up to 0"
    with torch.no_grad():
        model.model.norm.weight += 1
    model.save_pretrained(tmp_path)
    assert _changed(TINY, tmp_path) == "it loads; training moved its weights by up to 1"


def test_a_model_that_is_not_on_disk_is_told_with_what_to_fetch(tmp_path):
    with pytest.raises(
        RlfError, match=r"tokenizer of 'nobody/nothing' is not on this machine.*hf download nobody/nothing"
    ):
        rehearsal_model("nobody/nothing", tmp_path / "small", seed=0)


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
