"""An open model tool: one request per call."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from rlf.endpoints import Completion, EndpointFailure, NoAnswer, Pictures, SamplingSpec, json_schema_format
from rlf.endpoints.pool import Caller, EndpointPool
from rlf.tools.failure import ToolFailure, shorten
from rlf.tools.json_path import NoSuchPart, part_at
from rlf.tools.kind import CallContext, ToolRuntime
from rlf.tools.remote import Prompt, inner_deadline_s, tool_failure
from rlf.tools.results import to_text
from rlf.tools.schema import compile_schema
from rlf.types import Outcome, ToolOutput

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n?```", re.DOTALL)


class ModelRuntime(ToolRuntime):
    """Asks one model."""

    isolation = "remote"
    ends_when_cancelled = True

    def __init__(
        self,
        pool: EndpointPool,
        prompt: Prompt,
        *,
        api: str,
        sampling: SamplingSpec,
        response_schema: Mapping[str, Any] | None,
        response: str | None,
    ) -> None:
        """Takes whom to ask and what, by which `api`, and the form of the answer and the path to the result in it."""
        self._pool, self._prompt, self._api, self._sampling = pool, prompt, api, sampling
        self._format = None if response_schema is None else json_schema_format("answer", response_schema)
        self._schema = None if response_schema is None else compile_schema(response_schema)
        self._response = response

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one call."""
        caller = Caller(inner_deadline_s(context), context.meter, context.hold.waiting)
        try:
            answer = await self._ask(arguments, caller)
        except EndpointFailure as failure:
            raise tool_failure(failure) from failure
        if isinstance(answer, Pictures):
            return ToolOutput("", images=answer.images)
        if answer.is_truncated:
            context.meter.add({NoAnswer.TRUNCATED.value: 1})
        return self._output(answer)

    async def close(self) -> None:
        """Closes the connections."""
        await self._pool.close()

    async def _ask(self, arguments: Mapping[str, Any], caller: Caller) -> Completion | Pictures:
        if self._api == "image":
            return await self._pool.images(self._prompt.text(arguments), caller, extra=self._sampling.body())
        if self._api == "completion":
            return await self._pool.complete(self._prompt.text(arguments), caller, sampling=self._sampling)
        messages = self._prompt.messages(arguments)
        return await self._pool.chat(messages, caller, sampling=self._sampling, response_format=self._format)

    def _output(self, completion: Completion) -> ToolOutput:
        if self._response is None and self._schema is None:
            return ToolOutput(completion.text if self._api == "completion" else shown_answer(completion))
        answer = _read_json(completion)
        if self._schema is not None:
            fault = next(self._schema.iter_errors(answer), None)
            if fault is not None:
                place = "".join(f"[{part!r}]" for part in fault.instance_path)
                text = f"the model's answer{place} breaks `response_schema`: {shorten(fault.message)}"
                raise ToolFailure(Outcome.OUTPUT_REJECTED, text)
        try:
            part = answer if self._response is None else part_at(answer, self._response)
        except NoSuchPart as fault:
            raise ToolFailure(Outcome.OUTPUT_REJECTED, str(fault)) from fault
        return ToolOutput(to_text(part), structured=part if isinstance(part, dict | list) else None)


def shown_answer(completion: Completion) -> str:
    """An answer in words, marked where the token limit cut it."""
    return f"{completion.text}\n[cut at the model's token limit]" if completion.is_truncated else completion.text


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
