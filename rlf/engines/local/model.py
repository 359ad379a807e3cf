"""The policy: any transformers causal language model, seen as hidden states and a head.

The head is applied to chosen positions only, which is where the memory of training goes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rlf.core.errors import RlfError, first_line
from rlf.engines.local.attention import ATTENTION, ragged_attention
from rlf.engines.local.cache import KVCache
from rlf.engines.local.plain import is_plain, run_plain

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rlf.spec.models import LoraSpec


@dataclass(frozen=True, slots=True)
class PolicyModel:
    """A causal language model split into backbone and head."""

    full: PreTrainedModel
    """The whole model, adapters included: what is trained and saved."""
    backbone: torch.nn.Module
    head: torch.nn.Module
    dtype: torch.dtype
    """What is computed in. Weights that are trained whole stay float32, so that small updates are not rounded away."""
    is_plain: bool = False
    """Whether `run_plain` gives the backbone's hidden states, bit for bit."""

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
            if self.is_plain and not self.backbone.layers[0].training:  # type: ignore[index,union-attr]
                return run_plain(self.backbone, tokens_BT, positions_BT)
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
    try:
        held = dtype if frozen or lora is not None else torch.float32
        full = AutoModelForCausalLM.from_pretrained(path, dtype=held, attn_implementation=ATTENTION)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        why = first_line(error)
        raise RlfError(f"model.path: {path!r} does not load as a causal language model: {why}") from error
    full.to(device)  # type: ignore[arg-type]  # transformers wraps it without its signature
    if lora is not None:
        full = _with_adapters(full, lora)
    model = split(full, dtype)
    _check(model, path)
    return replace(model, is_plain=_runs_plainly(model))


def split(full: PreTrainedModel, dtype: torch.dtype, *, is_plain: bool = False) -> PolicyModel:
    """Backbone and head of a model that computes in `dtype`, through its adapters if it has any."""
    peft: Any = full
    base = peft.get_base_model() if hasattr(peft, "get_base_model") else full
    head = base.get_output_embeddings()
    return PolicyModel(full, base.base_model, head, dtype, is_plain)


def _with_adapters(full: PreTrainedModel, lora: LoraSpec) -> Any:
    from peft import LoraConfig, get_peft_model

    modules = lora.target_modules if isinstance(lora.target_modules, str) else list(lora.target_modules)
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=modules,
        task_type="CAUSAL_LM",
    )
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
        model.hidden(tokens_BT), replace(model, is_plain=True).hidden(tokens_BT)
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
    model.full.save_pretrained(folder)
    model.full.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
