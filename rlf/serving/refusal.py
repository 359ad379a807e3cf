"""Why a request is not answered."""

from __future__ import annotations


class Refusal(Exception):
    """A request that is not answered, with its status. The message is for its sender."""

    def __init__(
        self, status: int, message: str, *, key: str | None = None, code: str | None = None, retry_s: int | None = None
    ) -> None:
        """Takes the words.

        Args:
            key: the key of the request that is at fault.
            code: a word for programs, as OpenAI's API has it.
            retry_s: when to try again.
        """
        super().__init__(message)
        self.status = status
        self.key = key
        self.code = code
        self.retry_s = retry_s

    @property
    def kind(self) -> str:
        """The type of the error, as OpenAI's and Anthropic's APIs both name it."""
        return _KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")


_KINDS = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}
