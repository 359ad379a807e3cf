"""Content hashes: the identity of every file, plan and payload."""

from __future__ import annotations

import hashlib
import json
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def hash_bytes(data: bytes) -> str:
    """sha256 in hex."""
    return hashlib.sha256(data).hexdigest()


def hash_json(value: Any) -> str:
    """sha256 of the canonical JSON of a value (sorted keys, no spaces): the same on any machine."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hash_bytes(text.encode(errors="surrogatepass"))  # names of files need not be Unicode


def short(value: str) -> str:
    """A hash by its beginning; a version or another value as it is; `absent` for nothing."""
    is_hash = len(value) == 64 and value.isalnum()
    return value[:12] if is_hash else value or "absent"


def hash_path(path: Path) -> str:
    """sha256 of a file, or of the sorted (relative name, hash) pairs of a folder's files."""
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
        return hash_json([[p.relative_to(path).as_posix(), hash_path(p)] for p in files])
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Names of runs: sortable by time, readable aloud, unique.


def new_run_id() -> str:
    """`YYYYMMDD-HHMMSS-xxxx` in UTC with four random characters."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    tail = "".join(secrets.choice(alphabet) for _ in range(4))
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{tail}"


# Seeds derived from the run's one seed. No global random state anywhere.


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed that depends on every part and on their order.

    >>> derive_seed(0, "rollout", 3) == derive_seed(0, "rollout", 3)
    True
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
