"""Adapters on their way to vLLM, which is sent every weight by PEFT's name and knows only those of the plain model.

OpenRLHF sends all weights at each update, those of a module one after the other: the frozen weight, A, then B. So a
module's three are held until they are together, and vLLM gets W + alpha / rank x B A by the plain name (Hu et al.
2021, equation 3). Nothing outlives its module's turn: frozen weights are not kept beside those of vLLM.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

WORKER = "rlf.engines.openrlhf.actor.worker.MergingWorker"
"""Takes the place of OpenRLHF's extension of vLLM's workers."""
SCALE = "rlf_lora_scale"
"""Key of vLLM's `additional_config`, which every worker has, whatever process or node it is on."""
_PREFIX = "base_model.model."
# PEFT's names: OpenRLHF 0.11.2 sends these and vLLM knows only the module's own name.
_PART = re.compile(r"(?P<module>.+)\.(?P<part>base_layer|lora_A\.default|lora_B\.default)\.weight")
_BESIDE = ".base_layer."
"""In the name of what a module with an adapter has beside its weight, such as a bias: it has no adapter."""


class AdapterMerge:
    """In place of a model's `load_weights`: takes weights by PEFT's names, and loads them by the model's own."""

    def __init__(self, load: Callable[..., Any], scale: float) -> None:
        """Args:
        load: the model's own `load_weights`.
        scale: alpha / rank.
        """
        self._load = load
        self._scale = scale
        self._parts: dict[str, dict[str, torch.Tensor]] = {}

    def __call__(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Any:
        """Loads what can be loaded now, and holds the rest back. Returns what the model's own returns."""
        plain = [pair for name, weight in weights for pair in self._plain(name, weight)]
        return self._load(weights=plain) if plain else set()

    def check_done(self) -> None:
        """Raises RuntimeError when weights are held back after the last one has come: the update is incomplete."""
        if self._parts:
            module, parts = next(iter(self._parts.items()))
            raise RuntimeError(f"{len(self._parts)} adapters came incomplete: of {module} only {', '.join(parts)}")

    def _plain(self, name: str, weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        plain = name.removeprefix(_PREFIX)
        found = _PART.fullmatch(plain)
        if found is None:
            yield plain.replace(_BESIDE, "."), weight
            return
        module = found["module"]
        parts = self._parts.setdefault(module, {})
        parts[found["part"]] = weight.clone()  # the sender takes its memory back when this call is over
        if len(parts) == 3:
            del self._parts[module]
            merged = merge(parts["base_layer"], parts["lora_A.default"], parts["lora_B.default"], self._scale)
            yield f"{module}.weight", merged


def merge(weight_OI: torch.Tensor, a_RI: torch.Tensor, b_OR: torch.Tensor, scale: float) -> torch.Tensor:
    """W + scale x B A [O, I] in W's dtype, computed in float32: O outputs, I inputs, R rank."""
    import torch

    return torch.addmm(weight_OI.float(), b_OR.float(), a_RI.float(), alpha=scale).to(weight_OI.dtype)


def let_vllm_merge(scale: float) -> None:
    """Gives every vLLM engine that this process makes from now on workers that merge adapters.

    OpenRLHF loads the agent first and makes its engine then, by `vllm.AsyncEngineArgs(...)`.
    """
    import vllm

    made = vllm.AsyncEngineArgs

    def with_worker(*args: Any, **kwargs: Any) -> Any:
        return made(*args, **kwargs | {"worker_extension_cls": WORKER, "additional_config": {SCALE: scale}})

    vllm.AsyncEngineArgs = with_worker
