"""Endpoints made ready for use. Loads aiohttp when called."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlf.core import RlfError
from rlf.core.redact import Redactor
from rlf.endpoints.failure import KEY_REFUSED
from rlf.endpoints.spec import EndpointSpec

if TYPE_CHECKING:
    from rlf.endpoints.pool import EndpointPool

logger = logging.getLogger(__name__)

_OPENING_S = 10.0


async def open_pool(specs: Sequence[EndpointSpec]) -> EndpointPool:
    """The endpoints as one. Raises RlfError when a key is missing or refused, or none of them can be used."""
    from rlf.endpoints.pool import EndpointPool

    pool = EndpointPool(specs)
    failures = await pool.check(deadline_s=_OPENING_S)
    found = [f"{spec.url}: {failure.text}" for spec, failure in zip(specs, failures, strict=True) if failure]
    refused = any(failure is not None and failure.status in KEY_REFUSED for failure in failures)
    if len(found) < len(specs) and not refused:
        for line in found:
            logger.warning("endpoint %s; the others are asked", line)
        return pool
    await pool.close()
    redact = Redactor(os.environ, said=[spec.model_dump(mode="json") for spec in specs]).text
    if refused:
        raise RlfError(redact(f"an endpoint refused the key: {'; '.join(found)}. Set it to one that is accepted."))
    raise RlfError(redact(f"no endpoint can be used: {'; '.join(found)}. Start the server, or correct `url`."))
