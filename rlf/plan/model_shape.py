"""The sizes of a model, from its `config.json` and the headers of its safetensors: values in, values out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NO_ADAPTER = ("embed_tokens", "lm_head", "wte", "wpe")
"""Names of embeddings and heads, which `all-linear` leaves out."""
ALL_LINEAR = "all-linear"
"""Every linear module but these."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a decoder-only transformer that a memory estimate reads."""

    num_parameters: int
    num_layers: int
    hidden_size: int
    query_size: int
    """Heads x head dimension."""
    kv_size: int
    """Key-value heads x head dimension."""
    intermediate_size: int
    vocab_size: int
    linears: tuple[tuple[str, int, int], ...] = ()
    """Name, inputs and outputs of every linear module that can take an adapter."""

    @property
    def values_per_layer(self) -> int:
        """Values that a layer keeps of a token for the backward pass: inputs of norms, projections, attention, MLP."""
        return 6 * self.hidden_size + 5 * self.query_size + 4 * self.kv_size + 4 * self.intermediate_size

    @property
    def largest_module(self) -> int:
        """Weights of the largest part that is used as a whole: the embedding, or a layer."""
        layer = self.hidden_size * (2 * self.query_size + 2 * self.kv_size + 3 * self.intermediate_size)
        return max(self.vocab_size * self.hidden_size, layer)


def shape_of(config: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]]) -> ModelShape | None:
    """The shape; None where the configuration is not that of a plain decoder.

    Args:
        config: what `config.json` holds.
        tensors: the shape of each tensor of the weights.
    """
    text = config.get("text_config", config)
    try:
        heads, hidden = int(text["num_attention_heads"]), int(text["hidden_size"])
        head_dim = int(text.get("head_dim") or hidden // heads)
        return ModelShape(
            num_parameters=sum(math.prod(shape) for shape in tensors.values()),
            num_layers=int(text["num_hidden_layers"]),
            hidden_size=hidden,
            query_size=heads * head_dim,
            kv_size=int(text.get("num_key_value_heads") or heads) * head_dim,
            intermediate_size=int(text["intermediate_size"]),
            vocab_size=int(text["vocab_size"]),
            linears=tuple(
                (name.removesuffix(".weight"), shape[1], shape[0])
                for name, shape in tensors.items()
                if name.endswith(".weight") and len(shape) == 2 and not any(word in name for word in NO_ADAPTER)
            ),
        )
    except (KeyError, TypeError, ValueError):
        return None


def adapter_parameters(shape: ModelShape, rank: int, targets: str | tuple[str, ...]) -> int:
    """rank x (inputs + outputs) over the linear modules that get an adapter."""
    named = {targets} if isinstance(targets, str) else set(targets)
    everywhere = targets == ALL_LINEAR
    chosen = [(i, o) for name, i, o in shape.linears if everywhere or name.rpartition(".")[2] in named]
    return rank * sum(inputs + outputs for inputs, outputs in chosen)
