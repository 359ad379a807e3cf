"""Small random models that see images, for tests: whole folders that know nothing, with processor and chat template.

Both have the tokenizer of `builtin:tiny` and turns of the format `hermes`. Their weights follow from the seed and are
large enough that what an image shows changes what comes next.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf.builtin.names import builtin_path

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LLAVA_IMAGE = "<image>"
"""What the template of `make_tiny_llava` writes for an image; its processor makes 16 tokens of it."""
QWEN_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
"""What the template of `make_tiny_qwen_vl` writes for an image; its processor repeats the middle one."""
_SIDE, _PATCH = 16, 4
"""Pixels of an image's side, as LLaVA's processor cuts it, and of a patch's."""
_QWEN_AREA = {"shortest_edge": 256, "longest_edge": 1024}
"""Pixels of an image as Qwen's processor leaves it, at least and at most; each 64 become a token."""
_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
_SPREAD = 0.2
"""Standard deviation of the weights."""
_TEMPLATE = """\
{%- macro written(content) %}
    {%- if content is string %}
        {{- content }}
    {%- else %}
        {%- for item in content %}
            {{- '@@IMAGE@@' if item.type == 'image' else item.text }}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- set has_system = messages[0].role == 'system' %}
{%- if tools or has_system %}
    {{- '<|im_start|>system\\n' + (written(messages[0].content) if has_system else '') }}
    {%- if tools %}
        {{- ('\\n' if has_system else '') + 'Tools: ' + (tools | map(attribute='function.name') | join(', ')) }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user' if loop.first or messages[loop.index0 - 1].role != 'tool' else '' }}
        {{- '\\n<tool_response>\\n' + written(message.content) + '\\n</tool_response>' }}
        {{- '<|im_end|>\\n' if loop.last or messages[loop.index0 + 1].role != 'tool' else '' }}
    {%- elif not (message.role == 'system' and loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + written(message.content) }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n' if message.content or not loop.first else '' }}
            {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- (call.function.arguments | tojson) + '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def make_tiny_llava(folder: Path, seed: int = 0) -> Path:
    """Writes a random LLaVA with two layers to `folder` and returns it. An image of any size becomes 16 tokens."""
    import torch
    from transformers import CLIPImageProcessorPil, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor

    tokenizer = _tokenizer([LLAVA_IMAGE], LLAVA_IMAGE)
    pictures = CLIPImageProcessorPil(
        size={"shortest_edge": _SIDE}, crop_size={"height": _SIDE, "width": _SIDE}, resample=0
    )
    processor = LlavaProcessor(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        pictures,
        tokenizer,
        patch_size=_PATCH,
        vision_feature_select_strategy="default",
        image_token=LLAVA_IMAGE,
        num_additional_image_tokens=1,
        chat_template=tokenizer.chat_template,
    )
    sight = {
        "model_type": "clip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": _SIDE,
        "patch_size": _PATCH,
        "projection_dim": 32,
    }
    config = LlavaConfig(
        vision_config=sight,
        text_config={"model_type": "qwen3", **_text_config(tokenizer)},
        image_token_index=_id(tokenizer, LLAVA_IMAGE),
        tie_word_embeddings=False,
    )
    torch.manual_seed(seed)
    return _save(folder, LlavaForConditionalGeneration(config), processor)


def make_tiny_qwen_vl(folder: Path, seed: int = 0, *, calls_tools: bool = False) -> Path:
    """Writes a random Qwen3-VL with two layers to `folder` and returns it. An image becomes 4 to 16 tokens.

    Its processor's files are as those of the real models, and loading them needs torchvision.

    Args:
        calls_tools: whether its language model is that of `builtin:tiny`, and only what sees is random.
    """
    import torch
    from transformers import AutoConfig, Qwen3VLConfig, Qwen3VLForConditionalGeneration

    names = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    tokenizer = _tokenizer(names, QWEN_IMAGE)
    start, end, image, video = (_id(tokenizer, name) for name in names)
    language = _text_config(tokenizer)
    if calls_tools:
        tiny = AutoConfig.from_pretrained(builtin_path("tiny"))
        language |= {key: getattr(tiny, key) for key in _SIZES}
    sight = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_heads": 2,
        "patch_size": _PATCH,
        "out_hidden_size": language["hidden_size"],
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
        "initializer_range": _SPREAD,
    }
    rope = {"rope_type": "default", "rope_theta": 1e5, "mrope_section": [6, 5, 5], "mrope_interleaved": True}
    config = Qwen3VLConfig(
        vision_config=sight,
        text_config={**language, "rope_parameters": rope},
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        tie_word_embeddings=False,
    )
    torch.manual_seed(seed)
    make: Any = Qwen3VLForConditionalGeneration
    model = make(config)
    if calls_tools:
        _copy_language(model, tokenizer.pad_token_id)
    _save(folder, model, tokenizer)
    pictures = {
        "processor_class": "Qwen3VLProcessor",
        "size": _QWEN_AREA,
        "patch_size": _PATCH,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
    videos = {**pictures, "video_processor_type": "Qwen3VLVideoProcessor"}
    (folder / "preprocessor_config.json").write_text(
        json.dumps({**pictures, "image_processor_type": "Qwen2VLImageProcessorFast"})
    )
    (folder / "video_preprocessor_config.json").write_text(json.dumps(videos))
    return folder


def _copy_language(model: Any, padding: int) -> None:
    """Gives a Qwen3-VL the weights of `builtin:tiny`, whose layers are of the same names.

    Its new tokens are as unlikely as padding. They are never sampled; if they had a share of the probability, sampler
    and trainer would differ by it.
    """
    from safetensors.torch import load_file

    weights = load_file(Path(builtin_path("tiny")) / "model.safetensors")
    own = model.state_dict()
    for name, weight in weights.items():
        own[name.replace("model.", "model.language_model.", 1)][: len(weight)] = weight
    embeddings = weights["model.embed_tokens.weight"]
    own["lm_head.weight"][: len(embeddings)] = embeddings
    own["lm_head.weight"][len(embeddings) :] = embeddings[padding]


def _text_config(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """The language model's part of a configuration."""
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 2048,
        "initializer_range": _SPREAD,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def _tokenizer(special: list[str], image: str) -> PreTrainedTokenizerBase:
    """That of `builtin:tiny` with special tokens for images, and a template that writes `image` for each."""
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(builtin_path("tiny"))
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.chat_template = _TEMPLATE.replace("@@IMAGE@@", image)
    return tokenizer


def _id(tokenizer: PreTrainedTokenizerBase, token: str) -> int:
    found = tokenizer.convert_tokens_to_ids(token)
    assert isinstance(found, int), f"{token}: {found}"
    return found


def _save(folder: Path, model: Any, processor: Any) -> Path:
    """Saves a model and what reads its inputs: a processor or a tokenizer."""
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
