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
from typing import Annotated, Any, TypeVar

import jsonschema_rs
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlf.apps.build.kind import BuildShape
from rlf.apps.build.task import Join, ProofFailure, Scenario, Value, ends_of, refuse_leak
from rlf.core import RlfError, RunError, hash_json
from rlf.core.files import write_whole
from rlf.core.leaks import SearchedText
from rlf.core.meter import COST, Meter
from rlf.core.readings import compile_schema
from rlf.core.text import describe
from rlf.data.templates import ColumnTemplate, ColumnTemplateFault
from rlf.endpoints.openai import Completion, NoAnswer, json_schema_format
from rlf.endpoints.pool import Caller, EndpointPool
from rlf.endpoints.spec import EndpointFailure, SamplingSpec
from rlf.tools.agent_text import harmless
from rlf.types import Outcome

logger = logging.getLogger(__name__)

PROMPTS = Path(__file__).with_name("prompts")
_FENCED = re.compile(r"^\s*```(?:json)?\s*\n(.*?)\n\s*```\s*$", re.DOTALL)
_MAX_ERROR_CHARS = 1_500
_MAX_REFUSAL_CHARS = 160
_TOKENS = ("prompt_tokens", "completion_tokens")

SPENT: ContextVar[Counter[str]] = ContextVar("spent")
"""The cost of the answers of the task at hand when they were given, and how many each stage took."""

M = TypeVar("M", bound=BaseModel)
Check = Callable[[M], None]
"""Raises ValueError with what is wrong with an answer, in words for the model."""


_NO_ANSWERS = frozenset(reason.value for reason in NoAnswer)
_NOTHING = "(no answer)"
"""Stands for an empty answer among the messages: servers refuse one without words."""


class _Silence(Exception):
    """The model ended without words; it is asked again, as for an answer that cannot be used."""


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
        meter: Meter,
    ) -> None:
        """Takes the folder of kept answers, the name that stands for the model in it, and the limits.

        Args:
            budget: the most of `tokens` and `cost_usd` that new answers may cost.
            structured: whether the server is given the answer's JSON Schema, as long as it takes one.
            meter: what new answers of the build have cost so far.
        """
        self._pool, self._cache, self._model, self._sampling = pool, cache, model, sampling
        self._prompts, self._repairs, self._deadline_s = prompts, repairs, deadline_s
        self._budget, self._structured = budget, structured
        self._meter = meter
        self._locks: dict[str, asyncio.Lock] = {}
        self._counted: set[str] = set()
        self._schemas_refused: set[str] = set()

    async def ask(
        self, stage: str, answer: type[M], values: Mapping[str, Any], check: Check[M] | None = None, *, draw: int = 0
    ) -> M:
        """The answer of a stage, as a model of it.

        Args:
            values: what the stage's prompt names.
            draw: distinguishes questions that are asked alike.

        Raises:
            Unproven: no answer was valid after all repairs, or the model refused.
            RlfError: the budget is spent, or the endpoint cannot be used.
        """
        messages = [{"role": "user", "content": self.prompt(stage, values)}]
        for attempt in range(self._repairs + 1):
            text = await self._find_text(stage, answer, messages, draw)
            try:
                fenced = _FENCED.match(text)
                found = answer.model_validate_json(fenced[1] if fenced else text.strip())
                if check is not None:
                    check(found)
            except ProofFailure as fault:
                sort, reason = str(fault), f"{fault}: {fault.detail}"
            except (ValidationError, ValueError) as error:
                sort, reason = f"{stage}: no usable answer", _usage_words(error)
            else:
                if attempt:
                    SPENT.get()[f"repaired/{stage}"] += 1
                return found
            messages = [
                *messages,
                {"role": "assistant", "content": text or _NOTHING},
                {"role": "user", "content": f"That cannot be used: {reason}\nAnswer again, with JSON alone."},
            ]
        raise ProofFailure(f"{sort} after {self._repairs} repairs")

    def prompt(self, stage: str, values: Mapping[str, Any]) -> str:
        """The text of a stage's prompt. Raises RlfError."""
        path = prompt_file(stage, self._prompts)
        try:
            return ColumnTemplate(str(path)).render(_harmless(values))
        except ColumnTemplateFault as fault:
            raise RlfError(f"{path}: {fault}") from fault

    async def _find_text(
        self, stage: str, answer: type[BaseModel], messages: Sequence[Mapping[str, Any]], draw: int
    ) -> str:
        """The model's text: the kept one where the same was asked before."""
        asked = {"model": self._model, "messages": list(messages), "sampling": self._sampling.body(), "draw": draw}
        key = hash_json(asked)
        path = self._cache / key[:2] / f"{key}.json"
        async with self._locks.setdefault(key, asyncio.Lock()):  # tasks that ask the same wait for one answer
            found = _read_kept(path)
            if found is None:
                await self._keep_answer(path, stage, answer, messages)
                found = _read_kept(path)
        assert found is not None, f"{path} was written"
        usage = {} if key in self._counted else found["usage"]
        self._counted.add(key)
        SPENT.get().update({**usage, f"answers/{stage}": 1})
        return str(found["text"])

    async def _keep_answer(
        self, path: Path, stage: str, answer: type[BaseModel], messages: Sequence[Mapping[str, Any]]
    ) -> None:
        self._check_budget()
        try:
            completion = await self._request_completion(stage, answer, messages)
            kept = {"stage": stage, "text": completion.text, "usage": completion.usage.by_unit()}
        except _Silence as silence:  # kept too, so that a build that continues does not ask again
            kept = {"stage": stage, "text": "", "reason": str(silence), "usage": {}}
        write_whole(path, json.dumps(kept, ensure_ascii=False))

    async def _request_completion(
        self, stage: str, answer: type[BaseModel], messages: Sequence[Mapping[str, Any]]
    ) -> Completion:
        try:
            return await self._send_messages(stage, answer, messages)
        except EndpointFailure as failure:
            if failure.unit in _NO_ANSWERS:
                raise _Silence(failure.text) from failure
            if failure.outcome is Outcome.TOOL_ERROR:
                said = " ".join(failure.text.split())[:_MAX_REFUSAL_CHARS]
                raise ProofFailure(f"{stage}: the endpoint refused the request: {said}") from failure
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
            if failure.outcome is not Outcome.TOOL_ERROR or failure.unit in _NO_ANSWERS:
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


def _read_kept(path: Path) -> dict[str, Any] | None:
    """A kept answer; None where there is none, or only a damaged file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {"text": found["text"], "usage": Counter(found["usage"])}
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as fault:
        logger.warning("%s: the kept answer is damaged and is asked for again: %s", path, describe(fault))
        return None


def _harmless(value: Any) -> Any:
    """Values of a prompt, which are the words of a model as a rule: none opens a role."""
    if isinstance(value, Mapping):
        return {name: _harmless(child) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return [_harmless(child) for child in value]
    return harmless(value) if isinstance(value, str) else value


def prompt_file(stage: str, folder: Path | None) -> Path:
    """The file of a stage's prompt: the one in the user's own folder where there is one."""
    name = f"{stage}.md.jinja"
    return folder / name if folder is not None and (folder / name).is_file() else PROMPTS / name


def _usage_words(error: ValueError) -> str:
    """Describes the faults of an answer to the model."""
    if isinstance(error, ValidationError):
        found = [f"{'.'.join(map(str, each['loc'])) or 'the answer'}: {each['msg']}" for each in error.errors()]
        return "; ".join(found)[:_MAX_ERROR_CHARS]
    return str(error)[:_MAX_ERROR_CHARS]


# A language model's answers at each stage, and the checks before anything runs.

# `{2}` in a sub-question stands for the answer of sub-question 2.
_PLACEHOLDER = re.compile(r"\{(\d+)\}")


class ModelAnswer(BaseModel):
    """An answer; keys beside the ones asked for are left out."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class DraftStep(ModelAnswer):
    """One sub-question."""

    question: Annotated[str, Field(min_length=1)]
    answer: int | float | Annotated[str, Field(min_length=1, max_length=200)]
    needs: tuple[int, ...] = ()


class Draft(ModelAnswer):
    """A decomposed question."""

    question: Annotated[str, Field(min_length=1)]
    steps: Annotated[tuple[DraftStep, ...], Field(min_length=1, max_length=40)]
    join: Join = Join.VALUE
    answer: int | float | str

    @property
    def ends(self) -> tuple[int, ...]:
        """The steps that no other needs."""
        return ends_of([step.needs for step in self.steps])

    @property
    def joined(self) -> str:
        """The answer that the values at the ends make. Raises ValueError where the join does not go with them."""
        values: list[Value] = [self.steps[end].answer for end in self.ends]
        if self.join not in (Join.VALUE, Join.LIST) and any(isinstance(value, str) for value in values):
            raise ValueError(f"`join` is {self.join}, but not all answers are numbers")
        if self.join is Join.DIFFERENCE and len(values) != 2:
            raise ValueError("`join` is difference, which needs two numbers")
        if self.join is Join.VALUE and len(values) != 1:
            raise ValueError("`join` is value, but several answers are needed by no sub-question; write `list`")
        return self.join.of(values)


class Verdicts(ModelAnswer):
    """Verdicts on a decomposed question."""

    dependency: Annotated[int, Field(ge=0, le=1)]
    atomic: Annotated[int, Field(ge=0, le=1)]
    unforced: Annotated[int, Field(ge=0, le=1)]
    complete: Annotated[int, Field(ge=0, le=1)]


class Guess(ModelAnswer):
    """An answer without tools."""

    answer: int | float | str


class Document(ModelAnswer):
    """A tool's document."""

    name: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{2,60}$")]
    description: Annotated[str, Field(min_length=10, max_length=2000)]
    parameters: Mapping[str, Any]


class Merged(Document):
    """A document that replaces others."""

    replaces: tuple[int, ...]


class Merge(ModelAnswer):
    """All documents after integration."""

    tools: Annotated[tuple[Merged, ...], Field(min_length=1)]


class Distractors(ModelAnswer):
    """Documents of tools that no sub-question needs."""

    tools: tuple[Document, ...]


class DraftCall(ModelAnswer):
    """The call that answers a sub-question."""

    step: int
    arguments: Mapping[str, Any]


class Deployed(ModelAnswer):
    """A function with its data."""

    data: Mapping[str, Any]
    code: Annotated[str, Field(min_length=10, max_length=20_000)]
    calls: tuple[DraftCall, ...] = ()


def check_draft(draft: Draft, scenario: Scenario, shape: BuildShape) -> None:
    """Raises ValueError where a draft is not of the shape that was asked for, or does not hold together."""
    for number, step in enumerate(draft.steps):
        if any(not 0 <= need < number for need in step.needs):
            raise ValueError(f"sub-question {number} needs one that comes after it")
        named = {int(found) for found in _PLACEHOLDER.findall(step.question)}
        if named != set(step.needs):
            raise ValueError(
                f"sub-question {number} lists {sorted(step.needs)} in `needs` and names {sorted(named)} as {{n}}: a "
                "chain whose steps pass no answer on is forced"
            )
        for earlier in draft.steps[:number]:
            if SearchedText(step.question).find(earlier.answer):
                raise ValueError(f"sub-question {number} names an earlier answer instead of {{n}}")
    _check_shape(draft, scenario, shape)
    if str(draft.answer).strip().casefold() != draft.joined.casefold():
        raise ValueError(f"`answer` is {draft.answer!r}, and the sub-questions make {draft.joined!r}")
    question = SearchedText(draft.question)
    for step in draft.steps:
        refuse_leak("the question", step.answer, question)


def _check_shape(draft: Draft, scenario: Scenario, shape: BuildShape) -> None:
    depths: list[int] = []
    for step in draft.steps:
        if len(step.needs) > 1:
            raise ValueError("a sub-question needs at most one other")
        depths.append(1 + max((depths[need] for need in step.needs), default=0))
    lengths = [depths[end] for end in draft.ends]
    if sum(lengths) != len(draft.steps):
        raise ValueError("two chains share a sub-question")
    hops = shape.hops if scenario.is_chain else (1, 1)
    parallel = shape.parallel if scenario.is_parallel else (1, 1)
    if not all(hops[0] <= length <= hops[1] for length in lengths):
        raise ValueError(f"chains have {lengths} sub-questions; expected {hops[0]} to {hops[1]}")
    if not parallel[0] <= len(lengths) <= parallel[1]:
        raise ValueError(f"there are {len(lengths)} chains; expected {parallel[0]} to {parallel[1]}")


def check_document(document: Document, draft: Draft) -> None:
    """Raises ValueError for a document that is no tool's, or that names an answer."""
    parameters = document.parameters
    try:
        compile_schema(dict(parameters))
    except (jsonschema_rs.ValidationError, ValueError) as fault:
        raise ValueError(f"`parameters` is not a JSON Schema: {fault}") from fault
    if parameters.get("type") != "object" or not isinstance(parameters.get("properties"), dict):
        raise ValueError("`parameters` must be a schema of an object with `properties`")
    if not set(parameters.get("required", ())) <= set(parameters["properties"]):
        raise ValueError("`required` names something that is not a property")
    if not all(name.isidentifier() for name in parameters["properties"]):
        raise ValueError("parameters must have names that Python allows")
    searched = SearchedText(json.dumps([document.name, document.description, parameters], ensure_ascii=False))
    for answer in (*(step.answer for step in draft.steps), draft.joined):
        refuse_leak("a tool's document", answer, searched)


def check_merge(merge: Merge, documents: Sequence[Document], draft: Draft) -> None:
    """Raises ValueError if documents are lost, duplicated, or no longer documents."""
    replaced = sorted(number for tool in merge.tools for number in tool.replaces)
    if replaced != list(range(len(documents))):
        raise ValueError(f"each tool from 0 to {len(documents) - 1} must appear in one `replaces`; got {replaced}")
    names = [tool.name for tool in merge.tools]
    if len(set(names)) < len(names):
        raise ValueError("two tools have one name")
    for tool in merge.tools:
        check_document(tool, draft)


def check_scaled(scaled: Document, before: Document, draft: Draft, *, may_require: bool) -> None:
    """Raises ValueError where calls that worked before would not work after."""
    check_document(scaled, draft)
    old, new = set(before.parameters.get("required", ())), set(scaled.parameters.get("required", ()))
    if not old <= new or (new > old and not may_require):
        raise ValueError(f"`required` was {sorted(old)} and is {sorted(new)}: earlier calls would not work")
    changed = [
        name
        for name in old
        if scaled.parameters["properties"][name].get("type") != before.parameters["properties"][name].get("type")
    ]
    if changed:
        raise ValueError(f"required parameters have other types: {', '.join(changed)}")
