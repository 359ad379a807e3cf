"""The turns inside of an agent's call as JSON. Images are contents of their own, which the JSON names."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlf.core.redact import Redactor
from rlf.lineage.blobs import Blobs
from rlf.types import InnerTurn
from rlf.types.written import find_results, write

# The stored JSON names contents by hash, and is searched without being decoded.
_NAMED = re.compile(r'"sha256:([0-9a-f]{64})"')


def inner_json(turns: Sequence[InnerTurn], redactor: Redactor, blobs: Blobs) -> str | None:
    """The turns; None where there are none."""
    found = write(turns)
    for result in find_results([{"inner": found}]):
        for image in result.get("images", ()):
            image["data"] = f"sha256:{blobs.keep(base64.b64decode(image['data']))}"
    return redactor.json(found) if found else None


def read_inner(text: str, blobs: Mapping[str, bytes]) -> Any:
    """The written form of what `inner_json` wrote."""
    return json.loads(_NAMED.sub(lambda name: json.dumps(base64.b64encode(blobs[name[1]]).decode()), text))


def inner_blobs(text: str | None) -> Iterator[str]:
    """The contents that the JSON names."""
    return (match[1] for match in _NAMED.finditer(text or ""))


def inner_names(text: str) -> Iterator[str]:
    """The names of the tools that were called."""
    return _iterate_names(json.loads(text))


def _iterate_names(turns: Sequence[dict[str, Any]]) -> Iterator[str]:
    for turn in turns:
        for made in turn.get("calls", ()):
            yield made.get("call", made)["name"]
            yield from _iterate_names(made["result"].get("inner", ()))
