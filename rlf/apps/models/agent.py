"""`target: {kind: agent}`: a model with tools of its own, which it calls until it has an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator

from rlf.apps.models.prompts import DeclaredPrompt
from rlf.core import nearest
from rlf.core.identity import hash_json
from rlf.core.kinds import wrong_value
from rlf.endpoints.spec import EndpointSpec, SamplingSpec
from rlf.endpoints.template import Template, TemplateText, unknown_names
from rlf.tools.agent_text import AUTO, NONE
from rlf.tools.declaration import ToolDeclaration
from rlf.tools.kind import Limits, ToolKind, ToolRuntime

MAX_DEPTH = 3
"""Agents inside of agents, the outermost included."""


class AgentTool(ToolKind):
    """A loop: the model is asked, its calls are run, until it answers. It ends within the tool's `limits.timeout_s`."""

    kind: Literal["agent"] = "agent"
    endpoints: tuple[EndpointSpec, ...] = Field(min_length=1)
    """Servers of the model, which take `tools`."""
    prompt: TemplateText
    """Jinja2 text over the arguments: the question that the model is asked."""
    system: str | None = None
    """System message, as it is."""
    sampling: SamplingSpec = SamplingSpec()
    tools: tuple[ToolDeclaration, ...] = Field(min_length=1)
    """Tools of the model, each a file or a declaration in place. Only that model sees them."""
    text_calls: str = AUTO
    """How calls are read that the model writes as text, where its server has no parser of its own: the name of a chat
    format, `auto` for whichever format reads them, or `none`: such text is the answer."""
    max_turns: int = Field(default=8, ge=1)
    """Times that the model is asked; the last time it may not call."""
    max_calls: int = Field(default=32, ge=1)
    """Calls of tools within one answer; further ones are refused."""

    @field_validator("text_calls")
    @classmethod
    def _is_a_format(cls, name: str) -> str:
        from rlf.chat.format import FORMATS

        known = [AUTO, NONE, *FORMATS.names()]
        if name not in known:
            raise wrong_value(f"got {name!r}{nearest(name, known)}; expected one of {', '.join(known)}")
        return name

    @property
    def depth(self) -> int:
        """Agents inside of agents, this one included."""
        return 1 + max((tool.target.depth for tool in self.tools if isinstance(tool.target, AgentTool)), default=0)

    def complaints(self, input_schema: Mapping[str, Any]) -> list[str]:
        """Names in the prompt that no argument has, and what is wrong with the model's tools."""
        return self._find_complaints(input_schema, static=False)

    def static_complaints(self, input_schema: Mapping[str, Any]) -> list[str]:
        """The same; of the model's tools only what is known without running them."""
        return self._find_complaints(input_schema, static=True)

    def _find_complaints(self, input_schema: Mapping[str, Any], *, static: bool) -> list[str]:
        found = list[str]()
        if "properties" in input_schema:
            found += unknown_names("prompt", Template(self.prompt).names, set(input_schema["properties"]))
        repeated = [name for name, count in Counter(tool.name for tool in self.tools).items() if count > 1]
        found += [f"its tool {name!r} is declared twice; give each a name of its own" for name in repeated]
        if self.depth > MAX_DEPTH:
            found.append(f"agents are nested {self.depth} deep; at most {MAX_DEPTH} is allowed. Remove one")
        for tool in self.tools:
            if tool.images is not None:
                found.append(f"its tool {tool.name!r} has `images`, which only the policy's own tools get; remove it")
            look = tool.target.static_complaints if static else tool.target.complaints
            found += [f"its tool {tool.name!r}: {complaint}" for complaint in look(tool.input_schema)]
        return found

    async def prepare(self) -> None:
        for tool in self.tools:
            await tool.target.prepare()

    def source_hash(self) -> str:
        """Covers what is asked of which model, and its tools."""
        asked = self.model_dump(
            mode="json", include={"prompt", "system", "sampling", "text_calls", "max_turns", "max_calls"}
        )
        models = [[endpoint.url, endpoint.model] for endpoint in self.endpoints]
        return hash_json([asked, models, [[tool.name, tool.source_hash] for tool in self.tools]])

    async def open(self, limits: Limits) -> ToolRuntime:
        """Looks whether any of the endpoints answers, and opens the model's tools."""
        from rlf.apps.models.loop import AgentRuntime
        from rlf.endpoints.pool import open_pool

        runtime = AgentRuntime(
            await open_pool(self.endpoints),
            DeclaredPrompt(self.prompt, self.system, self.endpoints),
            self.tools,
            text_calls=self.text_calls,
            sampling=self.sampling,
            max_turns=self.max_turns,
            max_calls=self.max_calls,
        )
        await runtime.open()
        return runtime
