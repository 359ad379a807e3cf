"""The paths that answer, by what their clients speak."""

from collections.abc import Mapping

from rlf.apps.serve.dialects.anthropic import Messages
from rlf.apps.serve.dialects.dialect import Dialect
from rlf.apps.serve.dialects.openai import Chat, Completions
from rlf.apps.serve.dialects.responses import Responses

DIALECTS: Mapping[str, type[Dialect]] = {
    "/v1/chat/completions": Chat,
    "/v1/completions": Completions,
    "/v1/responses": Responses,
    "/v1/messages": Messages,
}
JUDGES = (Chat, Completions)
"""Those that judges speak."""

__all__ = ["DIALECTS", "JUDGES"]
