"""Small random models for tests: real transformers models, made in milliseconds, that know nothing."""

from __future__ import annotations

from pathlib import Path

import torch


def save_random_model(folder: Path, *, vocab_size: int = 96, kv_heads: int = 2, seed: int = 0) -> Path:
    """Writes a random Qwen3 with two layers to `folder` and returns it. Its weights follow from the seed."""
    from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        head_dim=8,
        initializer_range=0.2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    model: PreTrainedModel = Qwen3ForCausalLM(config)  # type: ignore[no-untyped-call]  # transformers' own
    model.save_pretrained(folder)
    return folder
