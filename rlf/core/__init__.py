"""Foundations of every package: errors, the registry of kinds, ids, hashes, seeds, logging."""

from rlf.core.errors import CheckError, Fault, Place, RlfError, RunError, SpecError
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
