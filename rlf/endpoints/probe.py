"""Whether an endpoint can be used, asked before a run needs it: is it there, and does it take the key?

Many hosts list their models to anybody, so that a list proves no key. Where it does not, a chat without messages is
asked for: a host judges the key before the body, and has nothing to answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from rlf.endpoints.failure import KEY_REFUSED, EndpointFailure
from rlf.endpoints.http import HttpClient, HttpRequest
from rlf.endpoints.spec import EndpointSpec

_NO_LIST: Final = frozenset({404, 405, 429})
"""Statuses by which a host that works may refuse to list its models."""


async def endpoint_fault(
    client: HttpClient, spec: EndpointSpec, headers: Mapping[str, str], deadline_s: float
) -> EndpointFailure | None:
    """Why the endpoint cannot be used; None for one that answers, be it that it lists no models."""

    async def fault_of(request: HttpRequest) -> EndpointFailure | None:
        try:
            await client.send(request, deadline_s=deadline_s)
        except EndpointFailure as failure:
            return failure
        return None

    listing = f"{spec.url}/models"
    fault = await fault_of(HttpRequest("GET", listing, headers))
    if fault is not None and fault.status not in _NO_LIST | KEY_REFUSED:
        return fault
    if not spec.credentials:
        return fault if _refuses_key(fault) else None
    if fault is None and _refuses_key(await fault_of(HttpRequest("GET", listing))):
        return None
    body = json.dumps({"model": spec.model, "messages": [], "max_tokens": 1}).encode()
    fault = await fault_of(HttpRequest("POST", f"{spec.url}/chat/completions", headers, body, repeatable=True))
    return fault if _refuses_key(fault) else None


def _refuses_key(fault: EndpointFailure | None) -> bool:
    return fault is not None and fault.status in KEY_REFUSED
