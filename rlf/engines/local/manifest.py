"""A checkpoint's files compared with its manifest. No torch: `rlf runs verify` uses it."""

from __future__ import annotations

import json
from pathlib import Path

from rlf.core.identity import hash_path

MANIFEST = "manifest.json"
"""File with the hash of every other file of the folder."""


def find_damage(checkpoint: Path, sha256: str | None = None) -> str | None:
    """The damage to a checkpoint, in words; None where every file is there with the hash of the manifest.

    Args:
        sha256: the manifest's own hash; None: not known.
    """
    manifest = checkpoint / MANIFEST
    if not checkpoint.is_dir():
        return "the folder is gone"
    try:
        digests: dict[str, str] = json.loads(manifest.read_text())
        if sha256 is not None and hash_path(manifest) != sha256:
            return f"{MANIFEST} differs from what was written"
        for name, digest in digests.items():
            if Path(name).name != name:
                return f"{MANIFEST} names {name!r}, which is not a file of the checkpoint"
            if not (checkpoint / name).is_file():
                return f"{name} is gone"
            if hash_path(checkpoint / name) != digest:
                return f"{name} differs from what was written"
    except (OSError, ValueError, AttributeError) as error:
        return f"{MANIFEST} cannot be read: {error}"
    return None
