"""Tools that ask other machines: the prompts that begin, the answers that come back, and failures as the executor takes
them. Tools of this machine load none of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from rlf.core import nearest
from rlf.endpoints import Completion, EndpointFailure
from rlf.endpoints.attribution import KEY_REFUSED
from rlf.endpoints.spec import describe_credentials
from rlf.endpoints.template import Template, TemplateFault
from rlf.tools.results import ToolFailure
from rlf.types import Outcome

_NONE: Mapping[str, str] = MappingProxyType({})


def tool_failure(failure: EndpointFailure, headers: Mapping[str, str] = _NONE) -> ToolFailure:
    """The same failure as the executor takes it; where the key in `headers` was refused, with where it comes from."""
    is_about_key = failure.outcome is Outcome.SERVICE_ERROR and failure.status in KEY_REFUSED
    credentials = describe_credentials(headers) if is_about_key else ""
    text = f"{failure.text} ({credentials})" if credentials else failure.text
    return ToolFailure(failure.outcome, text, failure.retry_after_s)


class Prompt:
    """The messages that begin a conversation, by the templates of a declaration."""

    def __init__(self, prompt: str, system: str | None) -> None:
        self._prompt = Template(prompt)
        self._system = system

    def text(self, arguments: Mapping[str, Any]) -> str:
        """The prompt alone. Raises ToolFailure where the arguments do not fill it in."""
        try:
            return self._prompt.render(arguments)
        except TemplateFault as fault:
            raise ToolFailure(Outcome.INVALID_ARGUMENTS, f"the arguments make no prompt: {fault}") from fault

    def messages(self, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        """System and user message."""
        system = [{"role": "system", "content": self._system}] if self._system is not None else []
        return [*system, {"role": "user", "content": self.text(arguments)}]


def shown_answer(completion: Completion) -> str:
    """An answer in words, marked where the token limit cut it."""
    return f"{completion.text}\n[cut at the model's token limit]" if completion.is_truncated else completion.text


def unknown_names(key: str, names: Collection[str], known: Collection[str]) -> list[str]:
    """Complaints about names in the template of a key that nothing fills in."""
    declared = ", ".join(sorted(known)) or "none"
    return [
        f"the template in `{key}` names {name!r}{nearest(name, list(known))} (arguments: {declared}); "
        "declare it in inputSchema, or correct the name"
        for name in sorted(set(names) - set(known))
    ]
