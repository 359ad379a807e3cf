"""Parts of a request."""

from __future__ import annotations

from typing import Any


class TokensPrompt(dict[str, Any]):
    """A prompt as token ids, under `prompt_token_ids`."""
