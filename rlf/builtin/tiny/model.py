"""The tiny model's shape and its starting weights: a Qwen3 as transformers loads it, nothing of its own."""

from __future__ import annotations

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

__all__ = ["create_model"]

_INIT_STD = 0.06
_ATTENTION_GAIN = 1.4
"""Start of the query and key norms' gains: sharper attention, with which copying is learned much sooner."""


def create_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """A model with random weights that depend on `seed` alone."""
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(_config(tokenizer))  # type: ignore[no-untyped-call]  # transformers is untyped here
    for name, parameter in model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            torch.nn.init.constant_(parameter, _ATTENTION_GAIN)
    return model


def _config(tokenizer: PreTrainedTokenizerFast) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5},
        tie_word_embeddings=True,
        initializer_range=_INIT_STD,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
