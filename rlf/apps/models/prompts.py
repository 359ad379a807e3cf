"""The prompts of models that are asked as tools, agents and users, filled in from what is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from rlf.endpoints.openai import Completion
from rlf.endpoints.spec import EndpointSpec
from rlf.endpoints.template import Template, TemplateFault, refuse_method
from rlf.tools.agent_text import harmless, special_tokens
from rlf.tools.results import ToolFailure
from rlf.types import Outcome


class DeclaredPrompt:
    """The messages that begin a conversation, by the templates of a declaration.

    The arguments are the words of another model: none of them opens a role or becomes a special token.
    """

    def __init__(self, prompt: str, system: str | None, endpoints: Sequence[EndpointSpec]) -> None:
        """Args: endpoints: who is asked."""
        self.tokens = special_tokens(*(endpoint.model for endpoint in endpoints))
        """The special and added tokens of the model, where they are known."""
        self._prompt = Template(prompt, finalize=_make_finalizer(self.tokens))
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


@cache
def _make_finalizer(tokens: frozenset[str]) -> Callable[[Any], Any]:
    """What is printed of an argument: as Jinja2 prints it, without special tokens. Numbers and the like hold none."""

    def finalize(value: Any) -> Any:
        printed = refuse_method(value)
        return harmless(str(printed), tokens) if isinstance(printed, str | list | tuple | Mapping) else printed

    return finalize


def shown_answer(completion: Completion) -> str:
    """An answer in words, marked where the token limit cut it."""
    return f"{completion.text}\n[cut at the model's token limit]" if completion.is_truncated else completion.text
