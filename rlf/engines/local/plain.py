"""The forward pass of a plain decoder, such as Qwen3 or Llama, without transformers' Python around each operation.

The operations are the same ones in the same order, so no bit differs. On small models that Python takes longer than
the operations do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import linear

from rlf.engines.local.attention import ATTENTION, ragged_attention

_ATTENTION_PARTS = {"q_proj", "k_proj", "v_proj", "o_proj"}


def is_plain(backbone: Any) -> bool:
    """Whether a backbone has the parts that `run_plain` runs, and no others. What it does with them is not seen."""
    return (
        _names(backbone) == {"embed_tokens", "layers", "norm", "rotary_emb"}
        and type(backbone.embed_tokens) is torch.nn.Embedding
        and backbone.config._attn_implementation == ATTENTION
        and _is_norm(backbone.norm)
        and all(map(_is_plain_layer, backbone.layers))
    )


def _is_plain_layer(layer: Any) -> bool:
    norms = {"q_norm", "k_norm"} & _names(layer.self_attn) if hasattr(layer, "self_attn") else set[str]()
    return (
        _names(layer) == {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
        and len(norms) != 1
        and _names(layer.self_attn) == _ATTENTION_PARTS | norms
        and _names(layer.mlp) == {"gate_proj", "up_proj", "down_proj", "act_fn"}
        and all(_is_norm(getattr(layer.self_attn, name)) for name in norms)
        and _is_norm(layer.input_layernorm)
        and _is_norm(layer.post_attention_layernorm)
    )


def _names(module: torch.nn.Module) -> set[str]:
    return {name for name, _ in module.named_children()}


def _is_norm(module: Any) -> bool:
    return hasattr(module, "variance_epsilon") and [name for name, _ in module.named_parameters()] == ["weight"]


def run_plain(backbone: Any, tokens_BT: torch.Tensor, positions_BT: torch.Tensor | None) -> torch.Tensor:
    """The last hidden states, [B, T, H]. Args: positions_BT: None: 0, 1, ..."""
    hidden_BTH: torch.Tensor = backbone.embed_tokens(tokens_BT)
    if positions_BT is None:
        positions_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)[None]
    cos, sin = (part.unsqueeze(1) for part in backbone.rotary_emb(hidden_BTH, positions_BT))
    for layer in backbone.layers:
        hidden_BTH = hidden_BTH + _attend(layer.self_attn, _norm(layer.input_layernorm, hidden_BTH), cos, sin)
        mlp, normed_BTH = layer.mlp, _norm(layer.post_attention_layernorm, hidden_BTH)
        gate = mlp.act_fn(_project(mlp.gate_proj, normed_BTH))
        hidden_BTH = hidden_BTH + _project(mlp.down_proj, gate * _project(mlp.up_proj, normed_BTH))
    return _norm(backbone.norm, hidden_BTH)


def _attend(attention: Any, normed_BTH: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    rows = normed_BTH.shape[:-1]
    shape = (*rows, -1, attention.head_dim)
    query = _project(attention.q_proj, normed_BTH).view(shape)
    key = _project(attention.k_proj, normed_BTH).view(shape)
    value = _project(attention.v_proj, normed_BTH).view(shape)
    if hasattr(attention, "q_norm"):
        query, key = _norm(attention.q_norm, query), _norm(attention.k_norm, key)
    query, key = (_rotate(part.transpose(1, 2), cos, sin) for part in (query, key))
    out, _ = ragged_attention(attention, query, key, value.transpose(1, 2), None, attention.scaling)
    return _project(attention.o_proj, out.reshape(*rows, -1).contiguous())


def _project(module: Any, values: torch.Tensor) -> torch.Tensor:
    if type(module) is torch.nn.Linear:
        return linear(values, module.weight, module.bias)
    projected: torch.Tensor = module(values)  # with an adapter, for one
    return projected


def _norm(module: Any, values: torch.Tensor) -> torch.Tensor:
    """Root mean square over the last dimension, in float32."""
    exact = values.to(torch.float32)
    exact = exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + module.variance_epsilon)
    normed: torch.Tensor = module.weight * exact.to(values.dtype)
    return normed


def _rotate(values: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions, of two halves."""
    half = values.shape[-1] // 2
    return (values * cos) + (torch.cat((-values[..., half:], values[..., :half]), dim=-1) * sin)
