"""Bodies unpacked piece by piece, so that no more than a cap is ever held, and with a check that they end. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zlib import _Decompress

ACCEPTED: Final = "gzip, deflate"
"""What requests ask for."""
_PIECE_BYTES: Final = 65_536
_MAX_UNITS: Final = 10_000
"""Units of one body: empty ones unpack to nothing that a cap would notice, but take time."""
_GZIP: Final = frozenset({"gzip", "x-gzip"})
_PLAIN: Final = frozenset({"", "identity"})
_GZIP_MAGIC: Final = b"\x1f"


class BodyFault(ValueError):
    """Packed data that cannot be unpacked, or does not end."""


def is_known_coding(coding: str) -> bool:
    """Whether a `Content-Encoding` can be read."""
    return coding.strip().lower() in _PLAIN | _GZIP | {"deflate"}


class Unpacker:
    """Unpacks one body."""

    def __init__(self, coding: str) -> None:
        """Takes its `Content-Encoding`, which must be known."""
        self._coding = coding.strip().lower()
        self._is_plain = self._coding in _PLAIN
        self._unit: _Decompress | None = None
        self._num_units = 0
        """Units of it that have ended."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What more of the body unpacks to. Raises BodyFault."""
        if self._is_plain:
            yield data
            return
        is_full = False  # zlib may hold more than it has given, though it has taken all
        while data or is_full:
            if self._unit is None:
                if self._num_units and not self._begins_unit(data):
                    return
                self._unit = zlib.decompressobj(self._window_bits(data))
            try:
                piece = self._unit.decompress(data, _PIECE_BYTES)
            except zlib.error as fault:
                raise BodyFault(f"its {self._coding} data is broken") from fault
            if piece:
                yield piece
            is_full, data = len(piece) == _PIECE_BYTES, self._unit.unconsumed_tail
            if self._unit.eof:
                is_full, data = False, self._unit.unused_data
                self._unit, self._num_units = None, self._num_units + 1
                if self._num_units > _MAX_UNITS:
                    raise BodyFault(f"its {self._coding} data has more than {_MAX_UNITS:,} units")

    def finish(self) -> None:
        """Raises BodyFault where the body ended before its data did."""
        if self._unit is not None:
            raise BodyFault(f"its {self._coding} data is cut")

    def _begins_unit(self, data: bytes) -> bool:
        """Whether what follows a unit is the next one of gzip (RFC 1952, 2.2); anything else is padding."""
        return self._coding in _GZIP and data.startswith(_GZIP_MAGIC)

    def _window_bits(self, data: bytes) -> int:
        """Gzip, or zlib, or as some servers write `deflate`, neither header (RFC 9110, 8.4.1.2)."""
        if self._coding in _GZIP:
            return 16 + zlib.MAX_WBITS
        return zlib.MAX_WBITS if data[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS
