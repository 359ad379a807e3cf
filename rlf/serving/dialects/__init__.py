"""The paths that answer, by what their clients speak."""

from collections.abc import Mapping

from rlf.serving.dialects.dialect import Dialect
from rlf.serving.dialects.openai import Chat, Completions

DIALECTS: Mapping[str, type[Dialect]] = {"/v1/chat/completions": Chat, "/v1/completions": Completions}

__all__ = ["DIALECTS"]
