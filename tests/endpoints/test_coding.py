"""Bodies are unpacked the same however they come in pieces, and none that is cut passes for whole."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.endpoints.http import BodyFault, Unpacker


def _raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACK = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": _raw,
    "identity": bytes,
    "x-gzip": lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:]),
}


def unpack(coding: str, pieces: Sequence[bytes]) -> bytes:
    unpacker = Unpacker(coding)
    found = b"".join(part for piece in pieces for part in unpacker.feed(piece))
    unpacker.finish()
    return found


def _pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


@settings(deadline=None)
@given(st.sampled_from(sorted(PACK)), st.binary(max_size=300), st.lists(st.integers(0, 1000), max_size=8))
def test_any_pieces_of_a_body_unpack_to_the_whole(coding: str, data: bytes, cuts: list[int]) -> None:
    packed = PACK[coding](data)
    assert unpack(coding, _pieces(packed, cuts)) == data
    assert unpack(coding, [packed[at : at + 1] for at in range(len(packed))]) == data


@pytest.mark.parametrize("coding", ["gzip", "deflate", "Deflate"])
def test_a_body_that_is_cut_anywhere_is_none(coding: str) -> None:
    packed = PACK[coding](b"The town of Ambry lies at the river Sill.")
    for length in range(1, len(packed)):
        with pytest.raises(BodyFault):
            unpack(coding, [packed[:length]])
    assert unpack(coding, []) == b""


@pytest.mark.parametrize("pad", [b"\0", b"\0" * 512, b"garbage"])
def test_what_follows_the_end_is_left_out(pad: bytes) -> None:
    packed = gzip.compress(b"whole")
    assert unpack("gzip", [packed + pad]) == unpack("gzip", [packed, pad]) == b"whole"


def test_a_bomb_comes_in_small_pieces() -> None:
    pieces = Unpacker("gzip").feed(gzip.compress(bytes(20_000_000)))
    sizes = [len(piece) for piece in pieces]
    assert (sum(sizes), max(sizes)) == (20_000_000, 65_536)


def test_units_without_end_that_unpack_to_nothing_are_a_fault() -> None:
    assert unpack("gzip", [gzip.compress(b"") * 200 + gzip.compress(b"whole")]) == b"whole"
    with pytest.raises(BodyFault):
        unpack("gzip", [gzip.compress(b"") * 1_000] * 20)


@pytest.mark.parametrize("body", [b"plain text", b"\x1f\x8b\x08\xff\xff\xff\xff\xff\xff", b"\x78\x9c\xff\xff\xff"])
def test_what_is_not_packed_is_a_fault(body: bytes) -> None:
    for coding in ("gzip", "deflate"):
        with pytest.raises(BodyFault):
            unpack(coding, [body])
