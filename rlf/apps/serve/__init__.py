"""The OpenAI-compatible server over a model of this machine: one implementation for `rlf serve` and for judges.

A key of a request that cannot be honoured is refused with 400 and its name, never ignored. What loads aiohttp stays in
`rlf.apps.serve.app` and `rlf.apps.serve.app`.
"""

from rlf.apps.serve.settings import ServeSettings

__all__ = ["ServeSettings"]
