"""Endpoints made ready for use. Loads aiohttp when called."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlf.core import RlfError
from rlf.endpoints.spec import EndpointSpec

if TYPE_CHECKING:
    from rlf.endpoints.pool import EndpointPool

logger = logging.getLogger(__name__)

_OPENING_S = 10.0


async def open_pool(specs: Sequence[EndpointSpec]) -> EndpointPool:
    """The endpoints as one. Raises RlfError when a key is missing or none of them can be used."""
    from rlf.endpoints.pool import EndpointPool

    pool = EndpointPool(specs)
    failures = await pool.check(deadline_s=_OPENING_S)
    found = [f"{spec.url}: {failure.text}" for spec, failure in zip(specs, failures, strict=True) if failure]
    if len(found) < len(specs):
        for line in found:
            logger.warning("endpoint %s; the others are asked", line)
        return pool
    await pool.close()
    raise RlfError(f"no endpoint can be used: {'; '.join(found)}. Start the server, or correct `url`.")
