"""Shared code of a world's functions where some change it: each trajectory has its own database.

Deployed behind `runtime`, without the imports of it.
"""

import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlf.apps.build.runtime import _CONNECTIONS, UnknownKey, _connection, _find, _normal, _single, _unknown


def receipt(relation: str, names: list[str], values: list[str | int]) -> int:
    """The number of a change, known only to the call that made it."""
    return 10_000 + zlib.crc32(":".join(map(str, [relation, *names, *values])).encode()) % 90_000


def _exchange(tool: dict[str, Any], subject: Any, other: Any) -> dict[str, int]:
    """Two things change values."""
    kind, (relation,) = tool["kind"], tool["relations"].values()
    rows = []
    for name in (_single(subject, "name"), _single(other, "name")):
        row = _find(kind, ["name", relation], _normal(name))
        if row is None:
            raise _unknown(kind, name)
        rows.append(row)
    (first, value), (second, another) = rows
    if first == second:
        raise UnknownKey(f"got {first!r} twice; there is nothing to exchange")
    for name, new in ((first, another), (second, value)):
        _connection().execute(f'UPDATE "{kind}" SET "{relation}" = ? WHERE key = ?', (new, _normal(name)))
    return {"receipt": receipt(relation, [first, second], [value, another])}


class StatefulWorld:
    """The tables as they are at first, and the functions over them, which are its methods."""

    def __init__(self) -> None:
        self._own = sqlite3.connect(":memory:", check_same_thread=False)

    def reset(self) -> None:
        """Copies the tables."""
        path = Path(__file__).with_name("world.db").absolute()
        seed = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
        seed.backup(self._own)
        seed.close()

    def score(self) -> dict[str, float]:
        """How many rows were changed."""
        return {"changes": float(self._own.total_changes)}

    def close(self) -> None:
        """Closes the tables."""
        self._own.close()

    def _call(self, function: Callable[..., Any], **arguments: Any) -> Any:
        _CONNECTIONS[:] = [self._own]
        return function(**arguments)
