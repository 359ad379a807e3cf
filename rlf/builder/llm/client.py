"""A language model that is asked for JSON: every answer is kept, paid once, validated, and repaired a few times."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rlf.builder.proof import Unproven
from rlf.core import RlfError, RunError, hash_json
from rlf.core.files import write_whole
from rlf.core.meter import COST, Meter
from rlf.data.columns import Template, TemplateFault
from rlf.endpoints import Completion, EndpointFailure, SamplingSpec, json_schema_format
from rlf.endpoints.pool import Caller, EndpointPool
from rlf.types import Outcome

logger = logging.getLogger(__name__)

PROMPTS = Path(__file__).parents[1] / "prompts"
_FENCED = re.compile(r"^\s*```(?:json)?\s*\n(.*?)\n\s*```\s*$", re.DOTALL)
_MAX_ERROR_CHARS = 1_500
_MAX_REFUSAL_CHARS = 160
_TOKENS = ("prompt_tokens", "completion_tokens")

SPENT: ContextVar[Counter[str]] = ContextVar("spent")
"""The cost of the answers of the task at hand when they were given, and how many each stage took."""

M = TypeVar("M", bound=BaseModel)
Check = Callable[[M], None]
"""Raises ValueError with what is wrong with an answer, in words for the model."""


class Client:
    """Asks for the stages of a build."""

    def __init__(
        self,
        pool: EndpointPool,
        cache: Path,
        *,
        model: str,
        sampling: SamplingSpec,
        prompts: Path | None,
        repairs: int,
        deadline_s: float,
        budget: Mapping[str, float],
        structured: bool,
    ) -> None:
        """Takes the folder of kept answers, the name that stands for the model in it, and the limits.

        Args:
            budget: the most of `tokens` and `cost_usd` that new answers may cost.
            structured: whether the server is given the answer's JSON Schema, as long as it takes one.
        """
        self._pool, self._cache, self._model, self._sampling = pool, cache, model, sampling
        self._prompts, self._repairs, self._deadline_s = prompts, repairs, deadline_s
        self._budget, self._structured = budget, structured
        self._meter = Meter()
        self._locks: dict[str, asyncio.Lock] = {}
        self._counted: set[str] = set()
        self._schemas_refused: set[str] = set()

    async def ask(
        self, stage: str, answer: type[M], values: Mapping[str, Any], check: Check[M] | None = None, *, draw: int = 0
    ) -> M:
        """The answer of a stage, as a model of it.

        Args:
            values: what the stage's prompt names.
            draw: tells apart questions that are asked alike.

        Raises:
            Unproven: no answer was valid after all repairs, or the model refused.
            RlfError: the budget is spent, or the endpoint cannot be used.
        """
        messages = [{"role": "user", "content": self.prompt(stage, values)}]
        for attempt in range(self._repairs + 1):
            text = await self._find_text(stage, answer, messages, draw)
            try:
                found = answer.model_validate_json(_strip_fence(text))
                if check is not None:
                    check(found)
            except (ValidationError, ValueError) as error:
                reason = _usage_words(error)
            else:
                if attempt:
                    SPENT.get()[f"repaired/{stage}"] += 1
                return found
            messages = [
                *messages,
                {"role": "assistant", "content": text},
                {"role": "user", "content": f"That cannot be used: {reason}\nAnswer again, with JSON alone."},
            ]
        raise Unproven(f"{stage}: no usable answer after {self._repairs} repairs")

    def prompt(self, stage: str, values: Mapping[str, Any]) -> str:
        """The text of a stage's prompt. Raises RlfError."""
        path = prompt_file(stage, self._prompts)
        try:
            return Template(str(path)).render(values)
        except TemplateFault as fault:
            raise RlfError(f"{path}: {fault}") from fault

    async def _find_text(
        self, stage: str, answer: type[BaseModel], messages: Sequence[Mapping[str, Any]], draw: int
    ) -> str:
        """The model's text: the kept one where the same was asked before."""
        asked = {"model": self._model, "messages": list(messages), "sampling": self._sampling.body(), "draw": draw}
        key = hash_json(asked)
        path = self._cache / key[:2] / f"{key}.json"
        async with self._locks.setdefault(key, asyncio.Lock()):  # tasks that ask the same wait for one answer
            if not path.is_file():
                await self._keep_answer(path, stage, answer, messages)
        found = json.loads(path.read_text(encoding="utf-8"))
        usage = {} if key in self._counted else found["usage"]
        self._counted.add(key)
        SPENT.get().update({**usage, f"answers/{stage}": 1})
        return str(found["text"])

    async def _keep_answer(
        self, path: Path, stage: str, answer: type[BaseModel], messages: Sequence[Mapping[str, Any]]
    ) -> None:
        self._check_budget()
        completion = await self._request_completion(stage, answer, messages)
        kept = {"stage": stage, "text": completion.text, "usage": completion.usage.by_unit()}
        write_whole(path, json.dumps(kept, ensure_ascii=False))

    async def _request_completion(
        self, stage: str, answer: type[BaseModel], messages: Sequence[Mapping[str, Any]]
    ) -> Completion:
        try:
            return await self._send_messages(stage, answer, messages)
        except EndpointFailure as failure:
            if failure.outcome is Outcome.TOOL_ERROR:
                said = " ".join(failure.text.split())[:_MAX_REFUSAL_CHARS]
                raise Unproven(f"{stage}: the endpoint refused the request: {said}") from failure
            raise RunError(
                f"the endpoint failed: {failure.text}. Run the build again: it continues, and repeats no request."
            ) from failure

    async def _send_messages(
        self, stage: str, answer: type[BaseModel], messages: Sequence[Mapping[str, Any]]
    ) -> Completion:
        """The answer, with its schema where the server takes it; one that refuses a stage's is not sent it again."""
        ask = partial(self._pool.chat, messages, Caller(self._deadline_s, self._meter), sampling=self._sampling)
        if not self._structured or stage in self._schemas_refused:
            return await ask()
        try:
            return await ask(response_format=json_schema_format(stage, answer.model_json_schema()))
        except EndpointFailure as failure:
            if failure.outcome is not Outcome.TOOL_ERROR:
                raise
            completion = await ask()
            if stage not in self._schemas_refused:  # by another task meanwhile
                logger.warning(
                    "%s: the server refuses JSON Schemas; requests continue without one: %s", stage, failure.text
                )
            self._schemas_refused.add(stage)
            return completion

    def _check_budget(self) -> None:
        spent = {"tokens": sum(self._meter.usage.get(unit, 0.0) for unit in _TOKENS), COST: self._meter.cost_usd}
        for unit, most in self._budget.items():
            if spent[unit] >= most:
                raise RunError(
                    f"build.budget.{unit}: {spent[unit]:g} are spent, and {most:g} were allowed. Allow more and run "
                    "the build again: it continues, and repeats no request."
                )


def prompt_file(stage: str, folder: Path | None) -> Path:
    """The file of a stage's prompt: the one in the user's own folder where there is one."""
    name = f"{stage}.md.jinja"
    return folder / name if folder is not None and (folder / name).is_file() else PROMPTS / name


def _strip_fence(text: str) -> str:
    """The JSON of an answer, without a fence around it."""
    fenced = _FENCED.match(text)
    return fenced[1] if fenced else text.strip()


def _usage_words(error: ValueError) -> str:
    """Describes the faults of an answer to the model."""
    if isinstance(error, ValidationError):
        found = [f"{'.'.join(map(str, each['loc'])) or 'the answer'}: {each['msg']}" for each in error.errors()]
        return "; ".join(found)[:_MAX_ERROR_CHARS]
    return str(error)[:_MAX_ERROR_CHARS]
