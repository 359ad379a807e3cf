"""What an OpenRLHF job writes, at its fullest: formulas and sums, before anything runs. Pure.

Not counted are records on their way to the lineage, logs, and the reports of TensorBoard.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlf.engines.openrlhf.settings import openrlhf_settings
from rlf.plan.estimate import Memory, ModelShape, Part, adapter_parameters
from rlf.spec.models import RunSpec

_WEIGHT, _OPTIMISER = 2, 12
"""Bytes of a weight in bfloat16, and of a trained one in DeepSpeed's optimiser."""


def estimate_disk(spec: RunSpec, shape: ModelShape) -> Memory:
    """Checkpoints, the Hugging Face folders that none of them replaces, and the final model."""
    return Memory("disk", tuple(_list_parts(spec, shape)))


def _list_parts(spec: RunSpec, shape: ModelShape) -> Iterator[Part]:
    engine, lora, p = openrlhf_settings(spec), spec.model.lora, shape.num_parameters
    saved = spec.train.steps // spec.checkpoint.every
    # One more than is kept while the newest is being written, and the one of the best evaluation.
    number = min(saved, spec.checkpoint.keep + (1 if spec.data.eval is None else 2))
    learnt = p if lora is None else adapter_parameters(shape, lora.rank, lora.target_modules)
    held = p if lora is None else p + learnt
    signs, sizes = ("2 P + 12 P", "(P + V H)") if lora is None else ("2 (P + A) + 12 A", "A")
    each = _WEIGHT * held + _OPTIMISER * learnt
    for name in ("policy", "critic") if spec.train.algorithm.needs_critic else ("policy",):
        yield Part(
            f"checkpoints: {name}",
            f"number x ({signs})",
            f"{number} x (2 x {held:,} + 12 x {learnt:,})",
            number * each,
        )
    # OpenRLHF writes a head that is tied to the embedding as one more tensor.
    head = 0 if lora is not None else shape.vocab_size * shape.hidden_size
    formula, numbers = f"2 {sizes}", f"2 x {learnt:,}" if lora is not None else f"2 x ({learnt:,} + {head:,})"
    model = _WEIGHT * (learnt + head)
    if engine.hf_checkpoints:
        yield Part(
            "Hugging Face folders", f"steps / checkpoint.every x {formula}", f"{saved} x {numbers}", saved * model
        )
    yield Part("final model", formula, numbers, model)
