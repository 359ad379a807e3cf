"""Other people's servers, asked with care: HTTP with guarded addresses, and models behind the OpenAI protocol.

Nothing here knows tools or rewards. A failure is an `EndpointFailure` with an outcome, never a library's exception.
`http` and `pool` load aiohttp and are imported where they are used.
"""

__all__: list[str] = []
