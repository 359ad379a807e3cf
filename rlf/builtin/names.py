"""The `builtin:` names of a spec and the files they stand for."""

from __future__ import annotations

from pathlib import Path

from rlf.core.errors import RlfError
from rlf.core.registry import nearest

BUILTIN = "builtin:"
"""Prefix of these names in a spec."""

_HERE = Path(__file__).parent
_FILES = {f"encyclopedia/{split}": f"encyclopedia/data/{split}.jsonl" for split in ("train", "validation", "heldout")}
_QUESTIONS = {
    f"{of}/{split}": f"{of}/data/{split}.jsonl" for of in ("shop", "programs") for split in ("train", "heldout")
}
_ORDERS = {
    f"shop/{name}_{split}": f"shop/data/{name}_{split}.jsonl"
    for name in ("orders", "orders_mixed")
    for split in ("train", "heldout")
} | {f"shop/{split}_shuffled": f"shop/data/{split}_shuffled.jsonl" for split in ("train", "heldout")}
_SPLITS_BY_GAME = {
    "rooms": ("train", "heldout", "train_three"),
    "bisect": ("train", "heldout", "heldout_wide"),
    "compose": ("train", "heldout", "heldout_composition"),
}
_GAMES = {
    f"{game}/{split}": f"{game}/data/{split}.jsonl" for game, splits in _SPLITS_BY_GAME.items() for split in splits
}
_MODELS = {name: f"{name}/checkpoint" for name in ("clerk", "games", "guesser", "prober", "reader", "small", "tiny")}
_PATHS = {**_FILES, **_QUESTIONS, **_ORDERS, **_GAMES, **_MODELS, "shop/database": "shop/data/shop.sqlite"}


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
