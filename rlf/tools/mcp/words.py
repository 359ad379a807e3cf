"""Names that rlf's MCP client and `rlf tools serve` use beyond the protocol, and the largest message that is read.

Other peers pass over what they do not know.
"""

from __future__ import annotations

SERVER_NAME = "rlf-tools"
"""Name under which `rlf tools serve` presents itself."""
TRAJECTORY = "rlf/trajectory"
"""Key of a call's `_meta`: which trajectory calls, so that its state is kept apart."""
OUTCOME = "rlf/outcome"
"""Key of a result's `_meta`: how the call ended, since MCP knows only that it failed."""
TRAJECTORY_ENDED = "notifications/rlf/trajectory_ended"
"""Method that names the trajectory whose state the server may drop; params: `trajectory`."""
MAX_MESSAGE_BYTES = 16_000_000
"""Size of one message on the wire; a larger one is refused unread."""
NO_ANSWER = -31_999
"""JSON-RPC error code, rlf's own, of an error that stands in for an answer; its data says what is known of it."""


def too_large(size_bytes: int | None = None) -> str:
    """Reason in the error for such a message."""
    size = f"{size_bytes:,} bytes" if size_bytes is not None else "more bytes than that"
    return f"the server answered with {size}; at most {MAX_MESSAGE_BYTES:,} are read"
