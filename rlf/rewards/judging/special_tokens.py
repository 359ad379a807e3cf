"""The special and added tokens of a judge's tokenizer, read from its files where they lie on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlf.builtin.names import BUILTIN, builtin_path

_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.json")


def special_tokens(model: str) -> frozenset[str]:
    """The tokens of a folder, a `builtin:` name, or a Hugging Face id in the hub's cache; none of any other name.

    White space and plain words are left out: a tokenizer that holds them as added tokens gives them no meaning.
    """
    found = {token for name in _FILES for token in _list_tokens(_read_json(model, name))}
    return frozenset(token for token in found if token.strip() and not token.replace("_", "").isalnum())


def _read_json(model: str, name: str) -> Any:
    file = _find_file(model, name)
    if file is None:
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _find_file(model: str, name: str) -> Path | None:
    if model.startswith(BUILTIN):
        return builtin_path(model.removeprefix(BUILTIN)) / name
    if Path(model).is_dir():
        return Path(model) / name
    if model.count("/") > 1 or model.startswith((".", "/")):
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(model, name)
    except HFValidationError:
        return None  # the name that a server has given its model
    return Path(cached) if isinstance(cached, str) else None


def _list_tokens(content: Any) -> Iterator[str]:
    """Every token that one of the files names, whichever it is."""
    if not isinstance(content, dict):
        return
    yield from (key for key, value in content.items() if isinstance(value, int) and not isinstance(value, bool))
    for key, value in content.items():
        if key.endswith("_token") or key in ("added_tokens", "added_tokens_decoder", "additional_special_tokens"):
            if key == "added_tokens_decoder" and isinstance(value, dict):
                value = list(value.values())
            for each in value if isinstance(value, list) else [value]:
                token = each.get("content") if isinstance(each, dict) else each
                if isinstance(token, str):
                    yield token
