"""Trajectories written by hand: the `tests:` of a term, and lines of a JSONL file.

What a reward looks at is written (answer, gold, columns, turns with calls and failures), what it does not is made up:
the prompt is one token, a turn's sampled tokens follow each other, probabilities are 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from rlf.core.kinds import StrictModel, wrong_value
from rlf.core.plain_json import NoJsonValue, json_value
from rlf.types import (
    CallRecord,
    FailureClass,
    Message,
    Outcome,
    ParseFailure,
    StopReason,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
    WorldRecord,
    WorldStep,
)


class CallFacts(StrictModel, allow_inf_nan=False):
    """One tool call."""

    name: str
    """The tool's."""
    arguments: Mapping[str, Any] = {}
    """As the model wrote them."""
    result: str = ""
    """What the model read."""
    structured: Any = None
    """The result as JSON values, which the model does not read; null: it has none."""
    outcome: Outcome = Outcome.OK


class TurnFacts(StrictModel, allow_inf_nan=False):
    """One generation and its tool calls."""

    text: str = ""
    """What the policy sampled."""
    calls: tuple[CallFacts, ...] = ()
    """In the order of the text."""
    failures: tuple[FailureClass, ...] = ()
    """Calls and answers that could not be read."""
    num_tokens: int | None = Field(default=None, ge=1)
    """Sampled tokens; None: one per word of `text`, at least one."""
    reward: float | None = None
    """What the world gave for it; None: nothing, or there is no world."""


class TrajectoryFacts(StrictModel, allow_inf_nan=False):
    """The parts of a trajectory that a reward looks at."""

    question: str = ""
    """What was asked."""
    gold: Any = None
    """The task's right answer, or a list of them."""
    columns: Mapping[str, Any] = {}
    """The columns of the task's row."""
    answer: str | None = None
    """The final answer; None where none was given."""
    turns: tuple[TurnFacts, ...] = ()
    """Without any: one turn whose text is the answer, or no turn without an answer."""
    scores: Mapping[str, float] = {}
    """What the world says of its final state, by the score's name; empty: there is no world."""
    stop: StopReason | None = None
    """Why it ended; None: `answered` with an answer, else `max_turns`."""

    @field_validator("gold", "columns")
    @classmethod
    def _as_json_has_it(cls, value: Any) -> Any:
        try:
            return json_value(value)
        except NoJsonValue as error:
            raise wrong_value(str(error).rstrip(".")) from error

    def trajectory(self, name: str = "example", task_id: str | None = None) -> Trajectory:
        """The trajectory of these facts; `task_id` is that of its group, None for one of its own."""
        written = self.turns or ((TurnFacts(text=self.answer),) if self.answer is not None else ())
        turns, tokens = [], 1
        for facts in written:
            end = tokens + (facts.num_tokens or max(1, len(facts.text.split())))
            turns.append(_make_turn(facts, tokens, end))
            tokens = end
        stop = StopReason.ANSWERED if self.answer is not None else StopReason.MAX_TURNS
        task = Task(task_id or name, (Message("user", self.question),), self.gold, columns=self.columns)
        mask = [False] + [True] * (tokens - 1)
        has_world = self.scores or any(facts.reward is not None for facts in written)
        return Trajectory(
            name,
            task,
            0,
            [0] * tokens,
            mask,
            [0.0] * tokens,
            tuple(turns),
            self.stop or stop,
            self.answer,
            world=WorldRecord("example", scores=dict(self.scores)) if has_world else None,
        )


class Example(TrajectoryFacts):
    """A trajectory with the value that the term must give it."""

    expect: float | None
    """The term's value, before scale and weight, met within 1e-6; null: it cannot be scored."""


def _make_turn(facts: TurnFacts, start: int, end: int) -> Turn:
    calls = tuple(
        CallRecord(
            ToolCall(call.name, call.arguments), ToolResult(call.outcome, call.result, structured=call.structured)
        )
        for call in facts.calls
    )
    failures = tuple(ParseFailure(kind, str(kind), facts.text, 0, structural=False) for kind in facts.failures)
    step = None if facts.reward is None else WorldStep(reward=facts.reward)
    return Turn(start, end, end, facts.text, calls, failures, world=step)
