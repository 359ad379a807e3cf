"""Shape and starting weights of the built-in models, and their files: a Qwen3 as transformers loads it."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from benchmarks.embedded.places import place_of

logger = logging.getLogger(__name__)

_INIT_STD = 0.06
_ATTENTION_GAIN = 1.4
"""Start of the query and key norms' gains: sharper attention, with which copying is learned much sooner."""


class Shape(NamedTuple):
    """Sizes of a model; the defaults are the tiny one's."""

    hidden: int = 128
    intermediate: int = 256
    layers: int = 3
    heads: int = 4
    """Of queries, each 32 wide."""
    kv_heads: int = 2
    max_positions: int = 1024


TINY = Shape()


def create_model(tokenizer: PreTrainedTokenizerFast, seed: int, shape: Shape = TINY) -> Qwen3ForCausalLM:
    """A model with random weights that depend on `seed` and `shape` alone."""
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(_config(tokenizer, shape))  # type: ignore[no-untyped-call]  # transformers is untyped here
    for name, parameter in model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            torch.nn.init.constant_(parameter, _ATTENTION_GAIN)
    return model


def _config(tokenizer: PreTrainedTokenizerFast, shape: Shape) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=32,
        max_position_embeddings=shape.max_positions,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5},
        tie_word_embeddings=True,
        initializer_range=_INIT_STD,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )


def round_weights(model: Qwen3ForCausalLM) -> None:
    """Rounds weights to what a checkpoint in bfloat16 holds; the model still computes in float32."""
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()


def save_checkpoint(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path, card: Mapping[str, Any], recipe: str
) -> None:
    """Write what transformers loads, and a card; generation samples at temperature 1 up to the end of a turn.

    The card ends with the hashes of the weights and of the `recipe` that they were made by.
    """
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]  # transformers is untyped here
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=True,
        temperature=1.0,
        top_k=0,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    card = {**card, "recipe": recipe, "sha256": hash_weights(folder)}
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    for path in folder.iterdir():
        path.chmod(0o644)
    logger.info("done: %s", card)


def hash_weights(folder: Path) -> str:
    """The SHA-256 of a checkpoint's weights."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def run_build(build: Callable[[Path, int], None], name: str) -> None:
    """A model's `build` as a program: `[FOLDER [SEED]]`, by default the shipped checkpoint from seed 0."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else place_of(name), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
