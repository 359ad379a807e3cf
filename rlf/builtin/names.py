"""The `builtin:` names of a spec and the files they stand for."""

from __future__ import annotations

from pathlib import Path

from rlf.core.errors import RlfError
from rlf.core.registry import nearest

BUILTIN = "builtin:"
"""Prefix of these names in a spec."""

_HERE = Path(__file__).parent
_FILES = {
    "encyclopedia": "train validation heldout",
    "episodes": "train heldout",
    "programs": "train heldout",
    "shop": "train heldout train_shuffled heldout_shuffled orders_train orders_heldout orders_mixed_train "
    "orders_mixed_heldout demonstrations",
    "rooms": "train heldout train_three",
}
_MODELS = ("agent", "bookkeeper", "clerk", "games", "guesser", "reader", "small", "tiny")
_PATHS = {
    **{f"{of}/{name}": f"{of}/data/{name}.jsonl" for of, names in _FILES.items() for name in names.split()},
    **{name: f"{name}/checkpoint" for name in _MODELS},
    "shop/database": "shop/data/shop.sqlite",
}


def builtin_names() -> list[str]:
    """All names, without the prefix."""
    return sorted(_PATHS)


def builtin_path(name: str) -> Path:
    """The file or folder of a builtin, e.g. `encyclopedia/train` or `tiny`. Raises RlfError for an unknown name."""
    if name not in _PATHS:
        known = ", ".join(BUILTIN + other for other in builtin_names())
        raise RlfError(
            f"unknown builtin {name!r}{nearest(name, builtin_names())} (known: {known}). Write one of these."
        )
    return _HERE / _PATHS[name]
