"""`kind: python`: a reward function of the user's own, or one written for TRL or verl, as it is."""

from __future__ import annotations

from collections.abc import Mapping, Set
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from enum import StrEnum
from inspect import Parameter, signature
from typing import Any, ClassVar, Literal, get_args

from pydantic import Field

from rlf.core import RlfError
from rlf.core.callables import CallableName
from rlf.core.definitions import find_definition
from rlf.rewards.calling import OwnFunction, TookTooLong, check_function
from rlf.rewards.normalization import plain_turn
from rlf.rewards.term import Range, RewardContext, Scorer, Scoring, Stage, Term, Verdict
from rlf.types import Trajectory


class CallConvention(StrEnum):
    """The convention that the parameters of a function follow."""

    AUTO = "auto"
    """By its parameters: `completions` makes it TRL's, `solution_str` and `ground_truth` verl's, else rlf's."""
    RLF = "rlf"
    """`fn(trajectory, **columns) -> float`."""
    TRL = "trl"
    """`fn(prompts, completions, **columns) -> list[float]`, called with lists of one."""
    VERL = "verl"
    """`fn(data_source, solution_str, ground_truth, extra_info)`, which returns a number or `{"score": number}`."""


class PythonTerm(Term):
    """`fn(trajectory, **columns)`, where columns are those of the task's row that the function has parameters for.

    Functions for TRL and verl are taken as they are. With `stage: turn` it returns a list: a number or None per turn.

    `async def` runs on the event loop, any number at once. A plain function runs on a thread beside the event loop,
    one call at a time, so that it need not be thread-safe. A call that is not over after `timeout_s` is asked to end
    and left behind, and the trajectory is unscorable; with four such calls still running the term gives up. What waits
    outside of Python cannot be ended: it belongs behind `async def` or into a process of its own.
    """

    judges_turns: ClassVar[bool] = True

    kind: Literal["python"] = "python"
    callable: CallableName
    """`package.module:name`, or `path/file.py:name` relative to the file that says so."""
    shape: CallConvention = CallConvention.AUTO
    timeout_s: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    """Time that one call has; past it the trajectory is unscorable."""
    range: Range | None = None
    """Least and greatest value; one outside is a fault of the function. None: any finite number."""

    @property
    def bounds(self) -> tuple[float, float]:
        return (-float("inf"), float("inf")) if self.range is None else self.range

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """Columns that the function cannot be called without: its parameters without a default, rlf's own aside."""
        parameters, shape = self._read_signature()
        own = {*_OFFERED, *list(parameters)[: shape is CallConvention.RLF]}
        named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        needed = [name for name, each in parameters.items() if each.kind in named and each.default is Parameter.empty]
        return {name: ("callable",) for name in needed if name not in own}

    def prepare(self) -> None:
        check_function(self.callable)
        self.prepare_unrun()

    def prepare_unrun(self) -> None:
        parameters, shape = self._read_signature()
        first = next(iter(parameters.values()), None)
        kinds = set() if first is None else {first.annotation, *get_args(first.annotation)} & {str, int, float}
        if shape is CallConvention.RLF and first is not None and (first.name in _VALUES or kinds):
            raise RlfError(
                f"the first parameter of {self.callable}, `{first.name}`, would get the whole trajectory. Write e.g. "
                f"`def {self.callable.rpartition(':')[2]}(trajectory, answer)`: the model's answer is "
                "`trajectory.answer`, and parameters after it are columns."
            )

    def _read_signature(self) -> tuple[dict[str, Parameter], CallConvention]:
        """Its parameters, none where the source does not settle them, and the convention that they follow."""
        found = find_definition(self.callable)
        parameters = {} if found is None else dict(signature(found.stub).parameters)
        return parameters, _detect_shape(parameters) if self.shape is CallConvention.AUTO else self.shape

    def open(self, context: RewardContext) -> AbstractAsyncContextManager[Scorer]:
        """The function with its thread."""
        return nullcontext(_Caller(self))


_OFFERED = ("prompts", "completions", "completion_ids", "data_source", "solution_str", "ground_truth", "extra_info")
"""Parameters of TRL's and verl's functions that are no columns."""


class _Caller:
    """Calls one function in the shape it has."""

    def __init__(self, term: PythonTerm) -> None:
        self._term = term
        self._function = OwnFunction(term.callable, term.timeout_s)
        self._shape = _detect_shape(self._function.parameters) if term.shape is CallConvention.AUTO else term.shape

    async def score(self, trajectory: Trajectory, scoring: Scoring) -> Verdict:
        """What the function returns: a number, or None when it cannot score."""
        columns, taken = trajectory.task.columns, self._function.taken
        try:
            match self._shape:
                case CallConvention.TRL:
                    offered = {name: [value] for name, value in columns.items()} | _for_trl(trajectory)
                    return self._read_verdict(await self._function(**taken(offered)))
                case CallConvention.VERL:
                    return self._read_verdict(await self._function(**taken(dict(columns) | _for_verl(trajectory))))
            return self._read_verdict(await self._function(trajectory, **taken(columns, after=1)))
        except TookTooLong as error:
            return Verdict(None, str(error), is_unanswered=True)

    def _read_verdict(self, value: Any) -> Verdict:
        name = self._term.callable
        if self._shape is CallConvention.VERL and isinstance(value, Mapping):
            value = value.get("score")
        if self._shape is CallConvention.TRL and value is not None:
            values = _read_list(name, value)
            if len(values) != 1:
                raise ValueError(f"{name} returned {len(values)} values for one completion")
            value = values[0]
        if value is None:
            return Verdict(None, f"{name} returned None")
        if self._term.stage is Stage.TURN:
            of_turns = _read_list(name, value)
            return Verdict(
                None, turn_values=tuple(None if each is None else _read_number(name, each) for each in of_turns)
            )
        return Verdict(_read_number(name, value))


def _read_list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, str | bytes | Mapping | Set):  # whose elements are no numbers, or in no order
        with suppress(TypeError):
            return list(value)
    raise TypeError(f"{name} returned {repr(value)[:80]}, which is not a list of numbers")


def _read_number(name: str, value: Any) -> float:
    if not isinstance(value, str | bytes):
        with suppress(TypeError, ValueError):
            return float(value)
    raise TypeError(f"{name} returned {repr(value)[:80]}, which is not a number")


_VALUES = ("answer", "completion", "gold", "prediction", "prompt", "question", "response", "text")
"""Names of a text, which nobody gives to a trajectory."""


def _detect_shape(parameters: Mapping[str, Parameter]) -> CallConvention:
    if "completions" in parameters:
        return CallConvention.TRL
    if {"solution_str", "ground_truth"} <= parameters.keys():
        return CallConvention.VERL
    return CallConvention.RLF


def _for_trl(trajectory: Trajectory) -> dict[str, Any]:
    """The batch of one that TRL gives for conversational data."""
    prompt = [{"role": message.role, "content": message.content} for message in trajectory.task.messages]
    completion: list[dict[str, str]] = []
    for turn in trajectory.turns:
        completion.append({"role": "assistant", "content": plain_turn(turn.text)})
        completion += [{"role": "tool", "name": r.call.name, "content": r.result.text} for r in turn.calls]
    completion = completion or [{"role": "assistant", "content": ""}]  # as TRL has a model that says nothing
    first = trajectory.turns[0].start if trajectory.turns else len(trajectory.tokens)
    return {"prompts": [prompt], "completions": [completion], "completion_ids": [list(trajectory.tokens[first:])]}


def _for_verl(trajectory: Trajectory) -> dict[str, Any]:
    """Arguments as verl's reward managers give them; the solution is every turn with its tools' results."""
    columns, parts = trajectory.task.columns, list[str]()
    for turn in trajectory.turns:
        parts += [plain_turn(turn.text), *(record.result.text for record in turn.calls)]
    return {
        "data_source": columns.get("data_source", ""),
        "solution_str": "\n".join(parts),
        "ground_truth": trajectory.task.answer,
        "extra_info": columns.get("extra_info"),
    }
