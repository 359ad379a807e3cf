"""Foundations of every package: errors, the registry of kinds, ids, hashes, seeds, logging."""

from rlf.core.errors import CheckError, Fault, Place, RlfError, RunError, SpecError
from rlf.core.hashing import hash_bytes, hash_json, hash_path
from rlf.core.ids import new_run_id
from rlf.core.registry import Registry, UnknownKind, nearest
from rlf.core.seeds import derive_seed

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
