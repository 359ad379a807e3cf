"""Foundations of every package: errors, the registry of kinds, ids, hashes, seeds, logging."""

import importlib
from typing import TYPE_CHECKING

from rlf.core.errors import CheckError, Fault, Place, RlfError, RunError, SpecError

if TYPE_CHECKING:
    from rlf.core.identity import derive_seed, hash_bytes, hash_json, hash_path, new_run_id
    from rlf.core.registry import Registry, UnknownKind, nearest

__all__ = [
    "CheckError",
    "Fault",
    "Place",
    "Registry",
    "RlfError",
    "RunError",
    "SpecError",
    "UnknownKind",
    "derive_seed",
    "hash_bytes",
    "hash_json",
    "hash_path",
    "nearest",
    "new_run_id",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "registry" if name in ("Registry", "UnknownKind", "nearest") else "identity"  # `rlf --help` needs neither
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
