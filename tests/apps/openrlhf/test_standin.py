"""The stand-in for vLLM samples what its model says of the whole sequence, pictures and all."""

from __future__ import annotations

import asyncio
import sys

import pytest

from rlf.apps.openrlhf.rehearsal_place import SHIM, STANDIN

from ...vision import LLAVA_IMAGE, make_tiny_llava

Image = pytest.importorskip("PIL.Image", reason="pictures need Pillow")
RED, BLUE = (Image.new("RGB", (40, 20), colour) for colour in ("red", "blue"))


@pytest.fixture
def vllm(monkeypatch):
    import torch

    monkeypatch.syspath_prepend(str(STANDIN))
    import vllm

    yield vllm
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        del sys.modules[name]
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def llava(tmp_path_factory):
    return make_tiny_llava(tmp_path_factory.mktemp("llava"))


def engine(vllm, model, **values):
    values |= {"dtype": "float32", "max_model_len": 128, "seed": 0, "worker_extension_cls": "types.SimpleNamespace"}
    return vllm.AsyncLLMEngine.from_engine_args(vllm.AsyncEngineArgs(model=str(model), **values))


async def sample(vllm, engine, tokens, pictures=(), **values):
    params = vllm.SamplingParams(max_tokens=20, logprobs=0, seed=7, ignore_eos=True, **values)
    prompt = {"prompt_token_ids": tokens} | ({"multi_modal_data": {"image": list(pictures)}} if pictures else {})
    return [output async for output in engine.generate(prompt, params, "one")][-1]


def of_whole_sequence(model, tokens, pictures, num_sampled):
    """Log-probabilities of the last tokens by one pass over prompt and answer."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    processor = AutoProcessor.from_pretrained(model)
    inputs = {"input_ids": torch.tensor([tokens])}
    if pictures:
        text = LLAVA_IMAGE * len(pictures)
        inputs["pixel_values"] = processor(text=[text], images=pictures, return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        loaded = AutoModelForImageTextToText.from_pretrained(model, attn_implementation="eager")
        logprobs = loaded(**inputs).logits[0].log_softmax(-1)
    return [float(logprobs[place - 1, tokens[place]]) for place in range(len(tokens) - num_sampled, len(tokens))]


def test_requests_with_and_without_pictures_in_turn_have_their_own_logprobs(vllm, llava):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(llava)
    mark = tokenizer.convert_tokens_to_ids(LLAVA_IMAGE)
    words = tokenizer.encode("What is it?", add_special_tokens=False)
    asked = [([*words, mark, *words, mark], [RED, BLUE]), (words, []), ([mark, *words], [BLUE])]

    async def all_of(sampler):
        return await asyncio.gather(*(sample(vllm, sampler, tokens, pictures) for tokens, pictures in asked))

    outputs = asyncio.run(all_of(engine(vllm, llava, limit_mm_per_prompt={"image": 2})))
    for (tokens, pictures), output in zip(asked, outputs, strict=True):
        assert len(output.prompt_token_ids) == len(tokens) + 15 * len(pictures)
        sampled = output.outputs[0].token_ids
        got = [entry[token].logprob for token, entry in zip(sampled, output.outputs[0].logprobs, strict=True)]
        whole = of_whole_sequence(llava, [*output.prompt_token_ids, *sampled], pictures, len(sampled))
        assert got == pytest.approx(whole, abs=1e-4)


def test_a_prompt_has_as_many_placeholders_as_pictures(vllm, llava):
    sampler = engine(vllm, llava, limit_mm_per_prompt={"image": 2})
    with pytest.raises(ValueError, match="0 placeholders of images has 1 images"):
        asyncio.run(sample(vllm, sampler, [5, 6], [RED]))
    with pytest.raises(ValueError, match="At most 0 image"):
        asyncio.run(sample(vllm, engine(vllm, llava), [5, 6], [RED]))


def test_a_bias_keeps_a_token_from_being_sampled(vllm, llava):
    sampler = engine(vllm, llava)
    likeliest = asyncio.run(sample(vllm, sampler, [5, 6], temperature=0)).outputs[0].token_ids[0]
    barred = asyncio.run(sample(vllm, sampler, [5, 6], temperature=0, logit_bias={likeliest: -100.0}))
    assert likeliest not in barred.outputs[0].token_ids


def test_every_name_that_openrlhf_imports_of_vllm_is_there(vllm):
    from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator
    from vllm.distributed.utils import StatelessProcessGroup
    from vllm.inputs import TokensPrompt
    from vllm.utils import random_uuid

    assert TokensPrompt(prompt_token_ids=[1]) == {"prompt_token_ids": [1]} and random_uuid() != random_uuid()
    assert {StatelessProcessGroup.__module__, PyNcclCommunicator.__module__} == {vllm.__name__}


def test_flash_attention_can_be_imported_and_not_be_called(monkeypatch):
    monkeypatch.syspath_prepend(str(SHIM))
    try:
        from flash_attn.bert_padding import index_first_axis, pad_input, rearrange, unpad_input
        from flash_attn.utils.distributed import all_gather

        for name in (index_first_axis, pad_input, rearrange, unpad_input, all_gather):
            with pytest.raises(NotImplementedError, match="needs a GPU"):
                name()
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "flash_attn"]:
            del sys.modules[name]
