"""Names that ring attention imports of flash attention: importable, and not there."""

from __future__ import annotations

from typing import Any, NoReturn


def all_gather(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Is not there."""
    raise NotImplementedError("ring attention needs flash attention, which needs a GPU")
