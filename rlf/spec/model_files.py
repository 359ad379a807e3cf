"""Where a model lies on this machine: a builtin, a folder, or a Hugging Face id in the local cache. Fetches nothing."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

from rlf.builtin.names import BUILTIN, builtin_path
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


def find_cut_weights(folder: Path) -> str | None:
    """Describes the fault in the sizes of a folder's safetensors; None where each holds what its header lists."""
    for file in sorted(folder.glob("*.safetensors")):
        try:
            entries, start = _read_entries(file)
            expected = start + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
            size = file.stat().st_size
        except (OSError, ValueError, KeyError, TypeError, struct.error):
            return f"{file.name} has no header that can be read"
        if size != expected:
            return f"{file.name} has {size} bytes; its header lists {expected}"
    return None


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
