"""Other people's servers, asked with care: HTTP with guarded addresses, and models behind the OpenAI protocol.

Nothing here knows tools or rewards. A failure is an `EndpointFailure` with an outcome, never a library's exception.
What loads aiohttp stays in its module: `rlf.endpoints.http` and `rlf.endpoints.pool` are imported where they are used,
and the names below are loaded when they are first asked for.
"""

from typing import TYPE_CHECKING

from rlf.core.registry import lazily

if TYPE_CHECKING:
    from rlf.endpoints.openai import (
        Completion,
        Images,
        NoAnswer,
        RequestedCall,
        TokenLogprob,
        image_part,
        json_schema_format,
        text_part,
    )
    from rlf.endpoints.spec import EndpointFailure, EndpointSpec, Prices, SamplingSpec, Usage

__all__ = [
    "Completion",
    "EndpointFailure",
    "EndpointSpec",
    "Images",
    "NoAnswer",
    "Prices",
    "RequestedCall",
    "SamplingSpec",
    "TokenLogprob",
    "Usage",
    "image_part",
    "json_schema_format",
    "text_part",
]

_ANSWERS = (
    "Completion",
    "Images",
    "NoAnswer",
    "RequestedCall",
    "TokenLogprob",
    "image_part",
    "json_schema_format",
    "text_part",
)
_SPEC = ("EndpointFailure", "EndpointSpec", "Prices", "SamplingSpec", "Usage")
__getattr__ = lazily(__name__, dict.fromkeys(_ANSWERS, "openai") | dict.fromkeys(_SPEC, "spec"))
