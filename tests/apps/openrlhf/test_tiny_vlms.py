"""The small models that see pictures are whole: transformers loads their folders, and what a picture shows counts."""

from __future__ import annotations

import pytest

from ...vision import LLAVA_IMAGE, make_tiny_llava

Image = pytest.importorskip("PIL.Image", reason="pictures need Pillow")
USER = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it? "}, {"type": "image"}]}
CALL_OF = {"name": "search", "arguments": {"query": "x"}}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"function": CALL_OF}]}
RESULT = {"role": "tool", "content": [{"type": "text", "text": "See "}, {"type": "image"}]}
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {}}}]


@pytest.fixture(scope="module")
def llava(tmp_path_factory):
    return make_tiny_llava(tmp_path_factory.mktemp("llava"))


def answers(folder, image, number):
    """Log-probabilities of what follows a question of two pictures, for each of two colours of the first."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    processor = AutoProcessor.from_pretrained(folder)
    model = AutoModelForImageTextToText.from_pretrained(folder)
    text = processor.apply_chat_template([USER, CALL, RESULT], tools=TOOLS, add_generation_prompt=True, tokenize=False)
    assert text.count(image) == 3
    for colour in ("red", "blue"):
        pictures = [Image.new("RGB", (40, 20), colour), *(Image.new("RGB", (20, 40), "green") for _ in range(2))]
        batch = processor(text=[text], images=pictures, add_special_tokens=False, return_tensors="pt")
        assert int((batch["input_ids"] == model.config.image_token_id).sum()) == number
        with torch.no_grad():
            yield model(**batch).logits[0, -1].log_softmax(-1)


def test_a_tiny_llava_tells_pictures_apart(llava):
    red, blue = answers(llava, LLAVA_IMAGE, 3 * 16)
    assert (red - blue).abs().max() > 0.1


def test_its_template_writes_plain_contents_calls_and_pictures_of_results(llava):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(llava)
    plain = {"role": "user", "content": "Hi"}
    told = tokenizer.apply_chat_template(
        [{"role": "system", "content": "Be brief."}, plain, CALL, RESULT, RESULT],
        tools=TOOLS,
        add_generation_prompt=True,
        tokenize=False,
    )
    assert told == (
        "<|im_start|>system\nBe brief.\nTools: search<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "search", "arguments": {"query": "x"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nSee <image>\n</tool_response>\n"
        "<tool_response>\nSee <image>\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.encode(LLAVA_IMAGE, add_special_tokens=False) == [tokenizer.convert_tokens_to_ids(LLAVA_IMAGE)]


def test_its_weights_follow_from_the_seed(llava, tmp_path):
    again, other = make_tiny_llava(tmp_path / "again"), make_tiny_llava(tmp_path / "other", seed=1)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (llava, again, other)]
    assert weights[0] == weights[1] != weights[2]
