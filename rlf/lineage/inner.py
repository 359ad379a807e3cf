"""The turns inside of an agent's call as JSON. Images are contents of their own, which the JSON names."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rlf.core.redact import Redactor
from rlf.lineage.blobs import Blobs
from rlf.tools.execution.stored import StoredTurn
from rlf.types import InnerTurn

_NAMED = re.compile(r'"sha256:([0-9a-f]{64})"')


def inner_json(turns: Sequence[InnerTurn], redactor: Redactor, blobs: Blobs) -> str | None:
    """The turns; None where there are none."""
    if not turns:
        return None
    found = [StoredTurn.of(turn).model_dump(mode="json") for turn in turns]
    _map_images(found, lambda encoded: f"sha256:{blobs.keep(base64.b64decode(encoded))}")
    return redactor.json(found)


def read_inner(text: str | None, blobs: Mapping[str, bytes]) -> tuple[InnerTurn, ...]:
    """What `inner_json` wrote."""
    found = json.loads(text or "[]")
    _map_images(found, lambda name: base64.b64encode(blobs[name.removeprefix("sha256:")]).decode())
    return tuple(StoredTurn.model_validate(turn).turn() for turn in found)


def inner_blobs(text: str | None) -> Iterator[str]:
    """The contents that the JSON names."""
    return (match[1] for match in _NAMED.finditer(text or ""))


def _map_images(turns: Sequence[dict[str, Any]], change: Callable[[str], str]) -> None:
    for turn in turns:
        for made in turn["calls"]:
            result = made["result"]
            result["images"] = [[mime_type, change(data)] for mime_type, data in result.get("images", ())]
            _map_images(result.get("inner", ()), change)


def inner_names(text: str) -> Iterator[str]:
    """The names of the tools that were called."""
    return _names(json.loads(text))


def _names(turns: Sequence[dict[str, Any]]) -> Iterator[str]:
    for turn in turns:
        for made in turn["calls"]:
            yield made["name"]
            yield from _names(made["result"].get("inner", ()))
