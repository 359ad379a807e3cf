"""`target: {kind: model}`: another model, asked once per call."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from rlf.apps.models.prompts import DeclaredPrompt, shown_answer
from rlf.core.identity import hash_json
from rlf.core.kinds import wrong_value
from rlf.core.readings import compile_schema
from rlf.endpoints.openai import Completion, Images, NoAnswer, json_schema_format
from rlf.endpoints.spec import EndpointFailure, EndpointSpec, SamplingSpec
from rlf.endpoints.template import Template, TemplateText, unknown_names
from rlf.tools.declaration import Schema
from rlf.tools.encoding import NoSuchPart, part_at
from rlf.tools.kind import CallContext, Limits, ToolKind, ToolRuntime
from rlf.tools.outputs import to_text
from rlf.tools.results import ToolFailure, inner_deadline_s, tool_failure
from rlf.types import Outcome, ToolOutput

if TYPE_CHECKING:
    from rlf.endpoints.pool import Caller, EndpointPool


_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n?```", re.DOTALL)


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
    response_schema: Schema | None = None
    """JSON Schema of the answer: the server is asked to keep to it, and an answer that breaks it is refused."""
    response: str | None = None
    """Where the result lies in an answer that is JSON, as `verdict.text`; by default all of it."""

    @model_validator(mode="after")
    def _asks_what_the_api_takes(self) -> Self:
        only_chat = [key for key in ("system", "response_schema") if getattr(self, key) is not None]
        if only_chat and self.api is not Api.CHAT:
            raise wrong_value(f"`{only_chat[0]}` is for `api: chat`; got {self.api.value!r}. Remove it")
        if self.response is not None and self.api is Api.IMAGE:
            raise wrong_value("`response` is for text; got `api: image`. Remove it")
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
        from rlf.endpoints.pool import open_pool

        return ModelRuntime(self, await open_pool(self.endpoints))


class ModelRuntime(ToolRuntime):
    """Asks one model."""

    isolation = "remote"
    ends_when_cancelled = True

    def __init__(self, tool: ModelTool, pool: EndpointPool) -> None:
        """Takes what is asked, and whom."""
        self._pool, self._prompt, self._api = pool, DeclaredPrompt(tool.prompt, tool.system, tool.endpoints), tool.api
        self._sampling, self._response, schema = tool.sampling, tool.response, tool.response_schema
        self._format = None if schema is None else json_schema_format("answer", schema)
        self._schema = None if schema is None else compile_schema(schema)
        self.held.push_async_callback(pool.close)

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        from rlf.endpoints.pool import Caller

        caller = Caller(inner_deadline_s(context), context.meter, context.deadline.waiting)
        try:
            answer = await self._ask_model(arguments, caller)
        except EndpointFailure as failure:
            raise tool_failure(failure) from failure
        if isinstance(answer, Images):
            return ToolOutput("", images=answer.images)
        if answer.is_truncated:
            context.meter.add({NoAnswer.TRUNCATED.value: 1})
        return self._make_output(answer)

    async def _ask_model(self, arguments: Mapping[str, Any], caller: Caller) -> Completion | Images:
        if self._api is Api.IMAGE:
            return await self._pool.images(self._prompt.text(arguments), caller, extra=self._sampling.body())
        if self._api is Api.COMPLETION:
            return await self._pool.complete(self._prompt.text(arguments), caller, sampling=self._sampling)
        messages = self._prompt.messages(arguments)
        return await self._pool.chat(messages, caller, sampling=self._sampling, response_format=self._format)

    def _make_output(self, completion: Completion) -> ToolOutput:
        if self._response is None and self._schema is None:
            return ToolOutput(completion.text if self._api is Api.COMPLETION else shown_answer(completion))
        answer = _read_json(completion)
        if self._schema is not None:
            fault = next(self._schema.iter_errors(answer), None)
            if fault is not None:
                place = "".join(f"[{part!r}]" for part in fault.instance_path)
                text = f"the model's answer{place} breaks `response_schema`: {fault.message}"
                raise ToolFailure(Outcome.OUTPUT_REJECTED, text)
        try:
            part = answer if self._response is None else part_at(answer, self._response)
        except NoSuchPart as fault:
            raise ToolFailure(Outcome.OUTPUT_REJECTED, str(fault)) from fault
        return ToolOutput(to_text(part), structured=part if isinstance(part, dict | list) else None)


def _read_json(completion: Completion) -> Any:
    """The answer as JSON, in a code fence or not. Raises ToolFailure for any other."""
    text = completion.text.strip()
    fenced = _FENCED.fullmatch(text)
    try:
        return json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError) as fault:
        why = "was cut at the token limit" if completion.is_truncated else f"is not JSON ({completion.finish_reason})"
        words = f"the model's answer {why}; it begins {completion.text[:120]!r}"
        raise ToolFailure(Outcome.OUTPUT_REJECTED, words) from fault
