"""Where a model lies on this machine: a builtin, a folder, or a Hugging Face id in the local cache. Fetches nothing."""

from __future__ import annotations

import json
import os
import re
import struct
import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlf.builtin.names import BUILTIN, builtin_path
from rlf.core.text import list_some
from rlf.spec.paths import is_local


def named_folder(path: str) -> Path | None:
    """The folder that a resolved `model.path` names itself; None for a Hugging Face id."""
    if path.startswith(BUILTIN):
        return builtin_path(path.removeprefix(BUILTIN))
    return Path(path) if is_local(path) else None


def model_location(path: str) -> str:
    """The folder of a builtin model; a folder or a Hugging Face id as it is."""
    return str(builtin_path(path.removeprefix(BUILTIN))) if path.startswith(BUILTIN) else path


def folder_on_disk(path: str) -> Path | None:
    """The folder with a model's files; None for a Hugging Face id that has not been fetched."""
    folder = named_folder(path) or _find_cached(path)
    return folder if folder is not None and os.path.isdir(folder) else None  # noqa: PTH112 - never raises


def _find_cached(model_id: str) -> Path | None:
    """The snapshot of a model's main branch in the hub's cache, whose layout is huggingface_hub's."""
    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    models = (
        Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser() / f"models--{model_id.replace('/', '--')}"
    )
    try:
        commit = (models / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):  # ValueError: no path at all
        return None
    return models / "snapshots" / commit


# The headers of a model's safetensors files: names and shapes of its weights, without the weights.

# safetensors' own limit for a header.
_MAX_HEADER_BYTES = 100_000_000
_EQUAL_LAYERS = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Types of models whose layers have the same weights, under names of one form."""
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
"""Weights that a message names."""
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
"""Keys of `config.json` by which models say how many positions they have."""


def read_config(folder: Path) -> dict[str, Any]:
    """The contents of `config.json`; nothing where it cannot be read."""
    file = folder / "config.json"
    try:
        values = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


JSON_FILES = ("config.json", "tokenizer_config.json", "generation_config.json")
"""Files of a model that hold an object, the last one where there is one."""


def find_no_object(file: Path) -> str | None:
    """What is wrong with a file of a model that should hold a JSON object; None where it does, or is not there."""
    try:
        value = json.loads(file.read_bytes()) if file.is_file() else {}
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}."
    except OSError as error:
        return f"cannot be read: {error.strerror}. Check its permissions."
    return None if isinstance(value, dict) else "holds no JSON object. Fetch the model's files again."


def read_context(folder: Path) -> int | None:
    """Tokens that a model has positions for, stretched ones included; None where its configuration does not say."""
    config = read_config(folder)
    text = config.get("text_config") or config
    found: int | None = next((text[key] for key in _POSITIONS if isinstance(text.get(key), int)), None)
    stretched = text.get("rope_parameters") or text.get("rope_scaling")
    if found is None or not isinstance(stretched, dict):
        return found
    factor = stretched.get("factor")
    own = stretched.get("original_max_position_embeddings", found)
    if not isinstance(factor, int | float) or not isinstance(own, int):
        return found
    return max(found, int(own * factor))


def read_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor in the folder's weights; empty where there are no safetensors that can be read."""
    shapes: dict[str, tuple[int, ...]] = {}
    try:
        for file in sorted(folder.glob("*.safetensors")):
            shapes |= {name: tuple(entry["shape"]) for name, entry in _read_entries(file)[0].items()}
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return {}
    return shapes


def find_damaged_weights(folder: Path) -> str | None:
    """Describes a fault in a folder's weights, as far as headers show it; None where none is seen.

    Which weights a model needs is known when it is loaded. Without it: those that an index lists, and for families
    whose layers are all alike, those that other layers have.
    """
    for file in sorted(folder.glob("*.safetensors")):
        try:
            entries, start = _read_entries(file)
            expected = start + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
            size = file.stat().st_size
        except (OSError, ValueError, KeyError, TypeError, struct.error):
            return f"{file.name} has no header that can be read"
        if size != expected:
            return f"{file.name} has {size} bytes; its header lists {expected}"
    for file in sorted(folder.glob("pytorch_model*.bin")):
        with file.open("rb") as stream:
            begins_as_zip = stream.read(2) == b"PK"
        if begins_as_zip and not zipfile.is_zipfile(file):
            return f"{file.name} is cut off"
    if (folder / "model.safetensors").is_file():
        return _find_odd_weights(read_config(folder), read_shapes(folder))
    if fault := _find_unindexed(folder, "model.safetensors.index.json", read_shapes(folder)):
        return fault
    if not any(folder.glob("model*.safetensors")):
        is_whole = (folder / "pytorch_model.bin").is_file()
        return None if is_whole else _find_unindexed(folder, "pytorch_model.bin.index.json", None)
    return _find_odd_weights(read_config(folder), read_shapes(folder))


def _find_unindexed(folder: Path, name: str, shapes: Mapping[str, Any] | None) -> str | None:
    """What an index lists and the folder does not have. Args: shapes: those of its files; None: they are not known."""
    file = folder / name
    if not file.is_file():
        return None
    try:
        files: dict[str, str] = dict(json.loads(file.read_bytes())["weight_map"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return f"{name} is no index of weights"
    absent = sorted({str(shard) for shard in files.values() if not (folder / str(shard)).is_file()})
    if absent:
        return f"{name} lists {list_some(absent)}, not in the folder"
    lacking = [] if shapes is None else sorted(weight for weight in files if weight not in shapes)
    return f"{files[lacking[0]]} has no {list_some(lacking)}, which {name} lists" if lacking else None


def _find_odd_weights(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """What a model of equal layers lacks, has of another shape, or has beside what its configuration says."""
    depth = config.get("num_hidden_layers")
    if config.get("model_type") not in _EQUAL_LAYERS or "quantization_config" in config or not isinstance(depth, int):
        return None
    by_layer: dict[int, dict[str, tuple[int, ...]]] = {}
    for name, shape in shapes.items():
        if match := _LAYER.fullmatch(name):
            by_layer.setdefault(int(match[1]), {})[match[2]] = shape
    if not by_layer:  # adapters, or a form of its own
        return None
    names = Counter((part, shape) for layer in by_layer.values() for part, shape in layer.items())
    usual = {part: shape for (part, shape), number in reversed(names.most_common()) if 2 * number >= depth}
    lacking = [f"model.layers.{n}.{part}" for n in range(depth) for part in usual if part not in by_layer.get(n, {})]
    lacking += [f"model.{part}.weight" for part in ("embed_tokens", "norm") if f"model.{part}.weight" not in shapes]
    if config.get("tie_word_embeddings") is False and "lm_head.weight" not in shapes:
        lacking.append("lm_head.weight")
    if lacking:
        return f"model*.safetensors lacks {list_some(lacking)}"
    odd = [f"model.layers.{n}.{part}" for n, layer in sorted(by_layer.items()) for part in layer if n >= depth]
    if odd:
        return f"model*.safetensors has {list_some(odd)}, and num_hidden_layers of config.json is {depth}"
    table = (config.get("vocab_size"), config.get("hidden_size"))
    odd = [
        f"model.layers.{n}.{part} {list(shape)} (other layers: {list(usual[part])})"
        for n, layer in sorted(by_layer.items())
        for part, shape in layer.items()
        if part in usual and shape != usual[part]
    ]
    odd += [
        f"{name} {list(shapes[name])} (config.json: {list(table)})"
        for name in ("model.embed_tokens.weight", "lm_head.weight")
        if name in shapes and shapes[name] != table
    ]
    return f"model*.safetensors has other shapes: {list_some(odd)}" if odd else None


def _read_entries(file: Path) -> tuple[dict[str, Any], int]:
    """The header's tensors, and where their bytes begin: eight bytes of length, little-endian, then that much JSON."""
    with file.open("rb") as stream:
        (size,) = struct.unpack("<Q", stream.read(8))
        if size > _MAX_HEADER_BYTES:
            raise ValueError(f"{file}: a header of {size} bytes")
        entries = json.loads(stream.read(size))
    if not isinstance(entries, dict):
        raise ValueError(f"{file}: a header that is no mapping")
    return {name: entry for name, entry in entries.items() if name != "__metadata__"}, 8 + size
