"""The OpenAI-compatible server over a model of this machine: one implementation for `rlf serve` and for judges.

A key of a request that cannot be honoured is refused with 400 and its name, never ignored. What loads aiohttp stays in
`rlf.apps.serve.app`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rlf.core.servers import TlsCertificate

__all__ = ["ServeSettings"]


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """How one model is served."""

    name: str
    """Name of the model in requests."""
    host: str = "127.0.0.1"
    port: int = 0
    """0 takes any that is free."""
    api_key: str | None = field(default=None, repr=False)
    """The key that a request must bring as `Authorization: Bearer KEY` or `x-api-key: KEY`; None: nothing."""
    certificate: TlsCertificate | None = None
    """Its certificate, for TLS; None: plain HTTP."""
    strict: bool = False
    """Whether only the keys that judges send are taken, and a limit that does not fit is refused, not lowered."""
    max_queue: int = 256
    """Answers that may wait beside those that are sampled; further requests get 429."""
    max_body_bytes: int = 16_000_000
    body_s: float | None = None
    """Time for a request's body to arrive; None: as any server of rlf's gives it."""
    request_s: float = 600.0
    """Time for one request, from its first byte to the last of its answer."""
    keep_alive_s: float = 10.0
    """Silence in a stream before a comment is sent, so that no client or proxy takes the connection for dead."""
    flush_s: float = 0.03
    """Least time between two chunks of a stream: what is sampled meanwhile goes into one."""
