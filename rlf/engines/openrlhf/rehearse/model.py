"""A tiny model of a given architecture: random weights, the given model's own tokenizer, template and processor.

A model that sees keeps what decides how many tokens an image becomes: the sizes of images and patches, and how
patches are merged.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlf.core.errors import RlfError, first_line
from rlf.engines.saved_model import auto_model
from rlf.spec.model_files import folder_on_disk

_SMALL: Mapping[str, int] = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "depth": 2,
    "embed_dim": 64,
    "num_heads": 2,
    "out_hidden_size": 64,
}
"""Upper bounds of the sizes that a configuration may have; the last ones are those of Qwen's eyes."""
_BLOCKS = ("deepstack_visual_indexes", "fullatt_block_indexes")
"""Lists of numbers of blocks, of which there are `depth`."""
_BESIDE = (".json", ".jinja", ".model", ".txt")
"""Endings of a tokenizer's and a processor's files."""
_SMALL_ENOUGH_BYTES = 64 * 2**20


def rehearsal_model(path: str, folder: Path, *, seed: int) -> tuple[str, str]:
    """A model for a rehearsal, and what it is in words.

    Args:
        path: the spec's own model: a folder, or a Hugging Face id whose small files are in the cache.
        folder: where a new model is written.

    Raises:
        RlfError: the configuration or the tokenizer is not on this machine.
    """
    if (
        Path(path).is_dir()
        and 0 < sum(file.stat().st_size for file in _iterate_weight_files(Path(path))) < _SMALL_ENOUGH_BYTES
    ):
        return path, "the spec's own model, which is small"
    import torch
    from transformers import AutoConfig, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError) as error:
        raise RlfError(
            f"model.path: the configuration or tokenizer of {path!r} is not on this machine: {first_line(error)}. A "
            f"rehearsal needs no weights; get the rest with `hf download {path} --include '*.json' '*.jinja' '*.txt'`."
        ) from error
    _shrink(config)
    torch.manual_seed(seed)
    try:
        model = auto_model(config).from_config(config, dtype=torch.bfloat16)
    except (ValueError, RuntimeError, TypeError) as error:
        raise RlfError(
            f"model.path: no small model can be made from the configuration of {path!r}: {first_line(error)}. Put a "
            "small model of the same architecture into a folder and rehearse with model.path=FOLDER."
        ) from error
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _copy_beside(folder_on_disk(path), folder)
    size = sum(parameter.numel() for parameter in model.parameters())
    return str(folder), f"{type(model).__name__} with {size / 1e6:.1f} M random parameters"


def _shrink(config: Any) -> None:
    """Cuts a configuration and those inside it down to `_SMALL`; the vocabulary keeps its size."""
    inside = [getattr(config, name, None) for name in config.sub_configs]
    for part in {id(part): part for part in (config, *inside) if part is not None}.values():
        old_head = _head_size(part)
        for name, most in _SMALL.items():
            size = getattr(part, name, None)
            if isinstance(size, int) and size > most:
                setattr(part, name, most)
        kinds = getattr(part, "layer_types", None)
        if kinds:
            part.layer_types = _some_of_each(list(kinds), part.num_hidden_layers)
        for name in _BLOCKS:
            if blocks := getattr(part, name, None):
                setattr(part, name, list(range(part.depth))[-len(blocks) :])
        rope = getattr(part, "rope_parameters", None) or {}
        if old_head and "mrope_section" in rope:
            rope["mrope_section"] = _in_proportion(rope["mrope_section"], old_head, _head_size(part))


def _head_size(part: Any) -> int:
    """Numbers of an attention head; 0 for what has none."""
    heads, hidden = getattr(part, "num_attention_heads", None), getattr(part, "hidden_size", None)
    return int(getattr(part, "head_dim", None) or (hidden // heads if heads and hidden else 0))


def _in_proportion(sections: list[int], old: int, new: int) -> list[int]:
    """How many of a head's numbers encode time, height and width, as shares of a smaller head; none is left without."""
    total = sum(sections) * new // old
    cut = [max(1, section * new // old) for section in sections]
    return [cut[0] + total - sum(cut), *cut[1:]]


def _some_of_each(kinds: list[str], number: int) -> list[str]:
    """As many kinds of layers as there is room for, in the order of their first appearance."""
    return (list(dict.fromkeys(kinds)) + kinds)[:number]


def _iterate_weight_files(folder: Path) -> Iterator[Path]:
    for ending in ("*.safetensors", "*.bin"):
        yield from folder.glob(ending)


def _copy_beside(source: Path | None, folder: Path) -> None:
    """Copies what the tokenizer or processor may need and `save_pretrained` left out."""
    for file in source.iterdir() if source is not None else ():
        if file.suffix in _BESIDE and not (folder / file.name).exists() and not file.name.endswith("index.json"):
            shutil.copy(file, folder / file.name)
