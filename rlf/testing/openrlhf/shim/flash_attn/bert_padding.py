"""Names that packing imports of flash attention: importable, and not there."""

from __future__ import annotations

from typing import Any, NoReturn


def _absent(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise NotImplementedError("packing needs flash attention, which needs a GPU")


index_first_axis = pad_input = rearrange = unpad_input = _absent
