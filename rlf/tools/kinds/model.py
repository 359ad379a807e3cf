"""`target: {kind: model}`: another model, asked once per call."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from rlf.core.hashing import hash_json
from rlf.endpoints import EndpointSpec, SamplingSpec
from rlf.endpoints.opening import open_pool
from rlf.endpoints.template import Template, TemplateText
from rlf.tools.kind import ToolKind, ToolRuntime
from rlf.tools.limits import Limits
from rlf.tools.remote import Prompt, unknown_names
from rlf.tools.schema import compile_schema


class Api(StrEnum):
    """How the model is asked."""

    CHAT = "chat"
    """The prompt is a user's message; the result is the assistant's."""
    COMPLETION = "completion"
    """The result is the text that continues the prompt."""
    IMAGE = "image"
    """The result is the image that the prompt describes; `sampling.extra` holds `size` and the like."""


class ModelTool(ToolKind):
    """A chat, completion or image model behind an OpenAI-compatible server."""

    kind: Literal["model"] = "model"
    endpoints: tuple[EndpointSpec, ...] = Field(min_length=1)
    """Servers of the model; the least busy one is asked, and another one where it fails."""
    api: Api = Api.CHAT
    prompt: TemplateText
    """Jinja2 text over the arguments."""
    system: str | None = None
    """System message, as it is."""
    sampling: SamplingSpec = SamplingSpec()
    response_schema: dict[str, Any] | None = None
    """JSON Schema of the answer: the server is asked to keep to it, and an answer that breaks it is refused."""
    response: str | None = None
    """Where the result lies in an answer that is JSON, as `verdict.text`; by default all of it."""

    @field_validator("response_schema")
    @classmethod
    def _is_a_schema(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        try:
            if schema is not None:
                compile_schema(schema)
        except ValueError as fault:
            raise _fault(f"no JSON Schema 2020-12: {fault}. Correct it") from fault
        return schema

    @model_validator(mode="after")
    def _asks_what_the_api_takes(self) -> Self:
        only_chat = [key for key in ("system", "response_schema") if getattr(self, key) is not None]
        if only_chat and self.api is not Api.CHAT:
            raise _fault(f"`{only_chat[0]}` is for `api: chat`; got {self.api.value!r}. Remove it")
        if self.response is not None and self.api is Api.IMAGE:
            raise _fault("`response` is for text; got `api: image`. Remove it")
        return self

    def complaints(self, input_schema: Mapping[str, Any]) -> list[str]:
        """Names in the prompt that no argument has."""
        if "properties" not in input_schema:
            return []
        return unknown_names("prompt", Template(self.prompt).names, set(input_schema["properties"]))

    def source_hash(self) -> str:
        """Covers what is asked and of which model where; not the weights behind that name."""
        asked = self.model_dump(mode="json", exclude={"endpoints"})
        return hash_json([asked, [[endpoint.url, endpoint.model] for endpoint in self.endpoints]])

    async def open(self, limits: Limits) -> ToolRuntime:
        """Reads the keys and looks whether any of the endpoints answers."""
        from rlf.tools.model import ModelRuntime

        return ModelRuntime(
            await open_pool(self.endpoints),
            Prompt(self.prompt, self.system),
            api=self.api,
            sampling=self.sampling,
            response_schema=self.response_schema,
            response=self.response,
        )


def _fault(reason: str) -> PydanticCustomError:
    return PydanticCustomError("model_tool", "{reason}", {"reason": reason})
