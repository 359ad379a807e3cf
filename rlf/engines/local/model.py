"""The policy: any transformers causal language model, seen as hidden states and a head.

The head is applied to chosen positions only, which is where the memory of training goes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch import nn
from torch.nn.functional import linear

from rlf.core.errors import RlfError, first_line
from rlf.engines.local.attention import ATTENTION, ragged_attention
from rlf.engines.local.cache import KVCache
from rlf.engines.saved_model import load_whole

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rlf.spec.models import LoraSpec

# The forward pass of a plain decoder, such as Qwen3 or Llama, without transformers' Python around each operation.
#
# The operations are the same ones in the same order, so no bit differs.

_Map: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
_Hidden: TypeAlias = Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]
_ATTENTION_PARTS = {"q_proj", "k_proj", "v_proj", "o_proj"}


def is_plain(backbone: Any) -> bool:
    """Whether a backbone has the parts that `make_plain` runs, and no others. What it does with them is not seen."""
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


def make_plain(backbone: Any) -> _Hidden:
    """The forward pass of a backbone that `is_plain` knows, from [B, T] tokens and positions to [B, T, H] states."""
    # What is looked up in modules is looked up once: on small models that takes longer than the operations do. The
    # weights stay the modules' own, so that an update is seen here too.
    embed, rotary, last_norm = backbone.embed_tokens, backbone.rotary_emb, _norm(backbone.norm)
    layers = [
        (_norm(one.input_layernorm), _attention(one.self_attn), _norm(one.post_attention_layernorm), _mlp(one.mlp))
        for one in backbone.layers
    ]

    def hidden(tokens_BT: torch.Tensor, positions_BT: torch.Tensor | None) -> torch.Tensor:
        hidden_BTH: torch.Tensor = embed(tokens_BT)
        if positions_BT is None:
            positions_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)[None]
        cos, sin = (part.unsqueeze(1) for part in rotary(hidden_BTH, positions_BT))
        for before_attention, attend, before_mlp, mlp in layers:
            hidden_BTH = hidden_BTH + attend(before_attention(hidden_BTH), cos, sin)
            hidden_BTH = hidden_BTH + mlp(before_mlp(hidden_BTH))
        return last_norm(hidden_BTH)

    return hidden


def _attention(module: Any) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
    query_of, key_of, value_of, out_of = map(_linear, (module.q_proj, module.k_proj, module.v_proj, module.o_proj))
    norms = (_norm(module.q_norm), _norm(module.k_norm)) if hasattr(module, "q_norm") else None
    head_dim, scaling = module.head_dim, module.scaling

    def attend(normed_BTH: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        rows = normed_BTH.shape[:-1]
        query, key, value = (part(normed_BTH).view(*rows, -1, head_dim) for part in (query_of, key_of, value_of))
        if norms is not None:
            query, key = norms[0](query), norms[1](key)
        query, key = _rotate(query.transpose(1, 2), cos, sin), _rotate(key.transpose(1, 2), cos, sin)
        out, _ = ragged_attention(module, query, key, value.transpose(1, 2), None, scaling)
        return out_of(out.reshape(*rows, -1))

    return attend


def _mlp(module: Any) -> _Map:
    gate_of, up_of, down_of, act = *map(_linear, (module.gate_proj, module.up_proj, module.down_proj)), module.act_fn
    return lambda normed_BTH: down_of(act(gate_of(normed_BTH)) * up_of(normed_BTH))


def _linear(module: Any) -> _Map:
    """A linear module without its Python; another, such as one with an adapter, as it is."""
    plain = partial(linear, weight=module.weight, bias=module.bias) if type(module) is nn.Linear else module
    return cast("_Map", plain)


def _norm(module: Any) -> _Map:
    """Root mean square over the last dimension, in float32."""
    weight, epsilon, shape = module.weight, module.variance_epsilon, tuple(module.weight.shape)

    def norm(values: torch.Tensor) -> Any:
        # torch's own does the same operations in one call; its backward pass is slower, and GPUs round it otherwise.
        if values.dtype is torch.float32 and values.is_cpu and not torch.is_grad_enabled():
            return torch.rms_norm(values, shape, weight, epsilon)
        exact = values.to(torch.float32)
        exact = exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + epsilon)
        return weight * exact.to(values.dtype)

    return norm


def _rotate(values: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions, of two halves."""
    half = values.shape[-1] // 2
    return (values * cos) + (torch.cat((-values[..., half:], values[..., :half]), dim=-1) * sin)


@dataclass(frozen=True, slots=True)
class PolicyModel:
    """A causal language model split into backbone and head."""

    full: PreTrainedModel
    """The whole model, adapters included: what is trained and saved."""
    backbone: torch.nn.Module
    head: torch.nn.Module
    dtype: torch.dtype
    """What is computed in. Weights that are trained whole stay float32, so that small updates are not rounded away."""
    plain: _Hidden | None = None
    """What gives the backbone's hidden states too, bit for bit; None: nothing does."""

    @property
    def config(self) -> Any:
        """The transformers configuration of the text model."""
        return self.full.config.get_text_config()

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.full.parameters()).device

    def hidden(self, tokens_BT: torch.Tensor, positions_BT: torch.Tensor | None = None) -> torch.Tensor:
        """Last hidden states [B, T, H] of right-padded rows (or of a ragged row inside `attention.using`)."""
        with self._autocast():
            if self.plain is not None and not self.backbone.layers[0].training:  # type: ignore[index,union-attr]
                return self.plain(tokens_BT, positions_BT)
            output = self.backbone(input_ids=tokens_BT, position_ids=positions_BT, use_cache=False)
        hidden: torch.Tensor = output.last_hidden_state
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [..., V] of hidden states [..., H]."""
        with self._autocast():
            logits: torch.Tensor = self.head(hidden)
        return logits

    def _autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.dtype == self.full.dtype else torch.autocast(self.device.type, self.dtype)

    def new_cache(self, num_slots: int, max_tokens: int) -> KVCache:
        """An empty key-value cache for sampling."""
        config = self.config
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return KVCache(
            num_layers=config.num_hidden_layers,
            num_slots=num_slots,
            num_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
            max_tokens=max_tokens,
            head_dim=head_dim,
            dtype=self.dtype,
            device=self.device,
        )


def load_model(
    path: str, *, dtype: torch.dtype, device: torch.device, lora: LoraSpec | None = None, frozen: bool = False
) -> PolicyModel:
    """The model of a folder or Hugging Face id, ready to sample and to train.

    Args:
        path: a folder or a Hugging Face id.
        dtype: what is computed in, and held in where the weights themselves are not trained.
        device: where it runs.
        lora: adapters to train in place of the weights.
        frozen: whether nothing of it is trained.

    Raises:
        RlfError: it does not load, or is no model that this engine can run; with the fix.
    """
    from safetensors import SafetensorError
    from transformers import AttentionInterface, AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    AttentionInterface.register(ATTENTION, ragged_attention)
    # It is a Hopper card's first choice, and plans each shape that it has not seen for 80 ms; a tick has one more key.
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        held = dtype if frozen or lora is not None else torch.float32
        full = load_whole(AutoModelForCausalLM, path, dtype=held, attn_implementation=ATTENTION)
    except Exception as error:  # transformers checks little of a model's files, and fails on the rest in any way
        is_words = isinstance(error, OSError | ValueError | RuntimeError | SafetensorError)
        why = first_line(error) if is_words else f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise RlfError(f"model.path: {path!r} does not load as a causal language model: {why}") from error
    full.to(device)  # type: ignore[arg-type]  # transformers wraps it without its signature
    if lora is not None:
        full = _with_adapters(full, lora)
    model = split(full, dtype)
    _check(model, path)
    return split(full, dtype, is_plain=_runs_plainly(model))


def split(full: PreTrainedModel, dtype: torch.dtype, *, is_plain: bool = False) -> PolicyModel:
    """Backbone and head of a model that computes in `dtype`, through its adapters if it has any."""
    peft: Any = full
    base = peft.get_base_model() if hasattr(peft, "get_base_model") else full
    head = base.get_output_embeddings()
    return PolicyModel(full, base.base_model, head, dtype, make_plain(base.base_model) if is_plain else None)


def _with_adapters(full: PreTrainedModel, lora: LoraSpec) -> Any:
    from peft import LoraConfig, get_peft_model

    modules = lora.target_modules if isinstance(lora.target_modules, str) else list(lora.target_modules)
    config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=modules, task_type="CAUSAL_LM")
    return get_peft_model(full, config)


@torch.no_grad()
def _check(model: PolicyModel, path: str) -> None:
    """Refuses a model whose layers are not all plain causal attention, or whose logits are more than head(hidden)."""
    layer_types = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if layer_types != {"full_attention"}:
        raise RlfError(
            f"model.path: {path!r} has layers of type {', '.join(sorted(layer_types - {'full_attention'}))}; "
            "the local engine runs full attention only. Use a model whose layers all are, such as Qwen3 or Llama 3."
        )
    model.full.eval()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    tokens_BT = _some_tokens(model)
    with model._autocast():
        whole = model.full(input_ids=tokens_BT, use_cache=False).logits
    ours = model.logits(model.hidden(tokens_BT))
    if not torch.allclose(whole, ours, atol=1e-2, rtol=1e-2):
        raise RlfError(
            f"model.path: the logits of {path!r} are not its head applied to its hidden states; "
            "the local engine cannot train it. Use a model without scaled or capped logits, such as Qwen3 or Llama 3."
        )


@torch.no_grad()
def _runs_plainly(model: PolicyModel) -> bool:
    """Whether its backbone looks plain, and adds nothing to what its parts compute, such as factors of its own."""
    tokens_BT = _some_tokens(model)
    return is_plain(model.backbone) and torch.equal(
        model.hidden(tokens_BT), replace(model, plain=make_plain(model.backbone)).hidden(tokens_BT)
    )


def _some_tokens(model: PolicyModel) -> torch.Tensor:
    vocabulary: int = model.config.vocab_size
    return torch.arange(1, 9, device=model.device)[None] % vocabulary


def resolve_device(name: str) -> torch.device:
    """`auto` is CUDA when there is one. Raises RlfError when CUDA is asked for and absent."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise RlfError("engine.device: cuda was asked for, but torch sees no GPU. Write `device: auto` or `cpu`.")
    return torch.device(name)


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 on a GPU and float32 on a CPU."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def save_model(model: PolicyModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Writes a Hugging Face folder; for a LoRA model its adapters and configuration alone."""
    settings, file = model.full.generation_config, folder / "generation_config.json"
    try:
        settings.validate(strict=True)
    except ValueError:  # models are published with settings that transformers loads and does not save
        model.full.generation_config = type(settings)()
    model.full.save_pretrained(folder)
    if model.full.generation_config is not settings:
        model.full.generation_config = settings
        if file.is_file():  # not among adapters
            settings.to_json_file(file)
    model.full.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


# The value model of `gae`: a copy of the starting policy's backbone with a scalar head.


class Critic(nn.Module):
    """V(state before token t), read at the position whose logits predict token t."""

    def __init__(self, policy: PolicyModel) -> None:
        super().__init__()
        self.full = copy.deepcopy(policy.full)
        self._dtype, self._is_plain = policy.dtype, policy.plain is not None
        self.value_head = nn.Linear(policy.config.hidden_size, 1, bias=False)
        nn.init.zeros_(self.value_head.weight)
        self.to(policy.device)

    @property
    def model(self) -> PolicyModel:
        """Its backbone, as hidden states are read from it."""
        return split(self.full, self._dtype, is_plain=self._is_plain)

    def values(self, hidden_NH: torch.Tensor) -> torch.Tensor:
        """Values of hidden states: float32 [N]."""
        values: torch.Tensor = self.value_head(hidden_NH.float())[:, 0]
        return values
