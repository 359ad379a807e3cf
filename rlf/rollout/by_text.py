"""One trajectory of a model behind a server: messages go out, a message comes back, its calls are run.

The server keeps its tokens to itself, so a trajectory holds none: `tokens`, masks and log-probabilities are empty, the
turns' offsets are 0, and nothing can be learned from it. Its turns, calls, results, failures and answer are as of any
other. What the server counted is in `TextPlayer.usage`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rlf.chat.history import ASKS, LEFT_OUT, SUMMARY
from rlf.chat.settings import ContextLimit, WhenFull
from rlf.core.errors import OutageError
from rlf.core.images import read_image_file
from rlf.core.meter import Meter
from rlf.endpoints.openai import Completion, NoAnswer, RequestedCall, image_part, text_part
from rlf.endpoints.pool import Caller, EndpointPool
from rlf.endpoints.spec import EndpointFailure, SamplingSpec
from rlf.rollout.disturbed import Disturbed
from rlf.rollout.rollout import (
    NOT_RUN,
    Rollout,
    RolloutLimits,
    call_with_images,
    find_broken,
    run_calls,
    with_observation,
    world_cause,
)
from rlf.tools.agent_text import TextCalls, read_call, show_results
from rlf.tools.kind import Faults
from rlf.types import (
    CallRecord,
    FailureClass,
    Image,
    Message,
    Outcome,
    ParseFailure,
    StopReason,
    ToolCall,
    ToolInvoker,
    ToolResult,
    Trajectory,
    Turn,
    WorldFailure,
)
from rlf.types.trajectory import SAMPLER, MissingRewardCause
from rlf.types.world import Episode, Worlds, shown_tools


class TurnWatch(Protocol):
    """Sees turns as they come."""

    def begin(self) -> None:
        """Takes that a turn begins; the last one may have been cut off."""

    def grow(self, text: str, *, is_over: bool = False) -> None:
        """Takes the text of a turn so far, calls that are written as text included."""

    def correct(self, written: str, correction: str) -> None:
        """Takes what a model wrote and what it is answered, where that is no call that can be run."""


@dataclass(frozen=True, slots=True)
class TextPlayer:
    """Plays trajectories with a model behind an OpenAI-compatible server."""

    pool: EndpointPool
    tools: ToolInvoker
    limits: RolloutLimits
    """Tokens are those that the server counts."""
    sampling: SamplingSpec
    """Its seed is replaced by each trajectory's own."""
    timeout_s: float
    """Of one request, with all that is tried again."""
    room: asyncio.Semaphore
    """Trajectories that are played at once."""
    meter: Meter
    """Counts what requests cost."""
    text_calls: TextCalls
    """Reads calls that the model writes as text, where its server reads none."""
    usage: dict[str, dict[str, float]]
    """What the server counted, by trajectory: `prompt_tokens`, `completion_tokens`, `cost_usd`."""
    watch: TurnWatch | None = None
    worlds: Worlds | None = None
    """Where each trajectory's world comes from; None: there are only tools."""
    faults: Faults | None = None
    """How tools and worlds are disturbed; None: they are not."""
    context: ContextLimit | None = None
    """When a new context begins, by what the server counts of a turn; None: never."""

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Nothing is kept of a trajectory before it is played."""

    def release(self, trajectory_id: str) -> None:
        """Nothing is kept of a trajectory that is over."""

    async def play(self, rollout: Rollout, *, cut_off: Callable[[Trajectory], None] | None = None) -> Trajectory:
        """Plays one trajectory to its end."""
        async with self.room:
            playing = TextPlay(self, rollout)
            try:
                return playing.trajectory(await playing.run())
            except asyncio.CancelledError:
                if cut_off is not None and playing.turns:
                    cut_off(playing.trajectory(StopReason.CANCELLED))
                raise
            finally:
                try:
                    await self.tools.end_trajectory(rollout.id)
                finally:
                    if playing.world is not None:
                        await playing.world.close()


class TextPlay:
    """The state of one trajectory under way."""

    def __init__(
        self, player: TextPlayer, rollout: Rollout, before: Sequence[Mapping[str, Any]] = (), turns: Sequence[Turn] = ()
    ) -> None:
        """Takes what is played.

        Args:
            before: messages of an earlier part of the conversation, which the task's come after.
            turns: those of that part.
        """
        self._player, self._rollout, self._limits = player, rollout, player.limits
        self._started = time.perf_counter()
        task = rollout.task
        self._before, self._own = before, task.messages
        self.messages: list[Any] = [*before, *map(message_of, task.messages)]
        """The conversation so far, in the OpenAI form."""
        self._unasked: Any = None
        """The last message without the request of a summary that was added to it; None: it has none."""
        self.world = None if player.worlds is None else player.worlds.open(rollout.id, task)
        tools, self._text_calls = shown_tools(player.worlds, player.tools.descriptions, task), player.text_calls
        self._disturbed: Disturbed | None = None
        if player.faults is not None:
            self._disturbed = Disturbed(player.faults, task.id, tools)
            tools = self._disturbed.tools
            self._text_calls = player.text_calls.with_tools(tools)
        self._tools = [tool.as_openai() for tool in tools]
        self._meter = Meter(player.meter)
        self._sampling = player.sampling.model_copy(update={"seed": rollout.seed % (1 << 31)})
        self.turns = [*turns]
        self._num_before = len(self.turns)
        self._num_calls = self._num_failed_turns = 0
        self._answer: str | None = None
        self._broken: MissingRewardCause | None = None

    async def run(self) -> StopReason:
        """Plays turns until one ends the trajectory."""
        try:
            if self.world is not None:
                self._own = with_observation(self._own, await self.world.reset())
                self.messages = [*self._before, *map(message_of, self._own)]
            stop: StopReason | None = None
            while stop is None:
                stop = await self._turn()
                self._player.usage[self._rollout.id] = dict(self._meter.usage)
            if self.world is not None and stop is not StopReason.INFRA_FAILURE:
                await self.world.score(self.turns)
        except WorldFailure as failure:
            self._broken = world_cause(failure)
            return StopReason.INFRA_FAILURE
        return stop

    def trajectory(self, stop: StopReason) -> Trajectory:
        """The trajectory so far."""
        return Trajectory(
            id=self._rollout.id,
            task=self._rollout.task,
            sample_index=self._rollout.sample_index,
            tokens=(),
            action_mask=(),
            rollout_logprobs=(),
            turns=tuple(self.turns),
            stop=stop,
            answer=self._answer,
            broken=self._broken,
            duration_s=time.perf_counter() - self._started,
            world=None if self.world is None else self.world.record,
        )

    async def _turn(self) -> StopReason | None:
        """Plays one turn; None when the trajectory continues."""
        started, watch = time.perf_counter(), self._player.watch
        if watch is not None:
            watch.begin()
        try:
            completion = await self._player.pool.chat(
                self.messages,
                Caller(self._player.timeout_s, self._meter, watch=None if watch is None else watch.grow),
                sampling=self._sampling,
                tools=self._tools,
            )
        except EndpointFailure as failure:
            return self._fail(failure, time.perf_counter() - started)
        if watch is not None:
            watch.grow(completion.text, is_over=True)
        if self._unasked is not None:
            return self._summarise(completion, time.perf_counter() - started)
        failures: tuple[ParseFailure, ...] = ()
        if self._tools:
            completion, failures = await self._text_calls.read_turn(completion)
        thought = f"<think>\n{completion.reasoning}\n</think>\n\n" if completion.reasoning else ""
        text, sample_s = thought + completion.text, time.perf_counter() - started
        turn = Turn(0, 0, 0, text, failures=failures, sample_s=sample_s)
        self.turns.append(turn)
        if failures and not completion.calls:
            return self._correct(completion, failures)
        if not completion.calls:
            if completion.is_truncated:
                return StopReason.LENGTH
            self._answer = completion.text.strip()
            self.messages.append(completion.message())
            if self.world is None:
                return StopReason.ANSWERED
            return await self._answer_in_world(self.world, completion)
        if self._is_last_turn and self.world is None:
            self.turns[-1] = replace(
                turn, calls=tuple(CallRecord(self._read_call(call)[0], NOT_RUN) for call in completion.calls)
            )
            return StopReason.MAX_TURNS
        stop = await self._act_on(completion, turn)
        if self.world is None or stop is StopReason.INFRA_FAILURE:
            return stop
        step = self.world.take_step()
        self.turns[-1] = replace(self.turns[-1], world=step)
        if step.is_over:
            return StopReason.ENV_DONE
        return stop or (StopReason.MAX_TURNS if self._is_last_turn else None)

    @property
    def _is_last_turn(self) -> bool:
        return len(self.turns) - self._num_before >= self._limits.max_turns

    async def _answer_in_world(self, world: Episode, completion: Completion) -> StopReason | None:
        """Lets the world answer a turn that calls nothing. Raises WorldFailure."""
        if world.speaks:
            await world.reply(self._answer or "")
        step = world.take_step()
        self.turns[-1] = replace(self.turns[-1], world=step)
        if step.is_over or step.reply is None:
            return StopReason.ENV_DONE if step.is_over else StopReason.ANSWERED
        self.messages.append({"role": "user", "content": step.reply})
        return StopReason.MAX_TURNS if self._is_last_turn else self._stop_when_full(completion)

    def _stop_when_full(self, completion: Completion) -> StopReason | None:
        """Why no further turn can be sampled, where the tokens are used up; a full context is made ready to be left."""
        used = completion.usage.prompt_tokens + completion.usage.completion_tokens
        full, num_later = self._player.context, 0
        if full and full.when_full is WhenFull.SUMMARIZE and used > full.limit:
            self._unasked, full = self.messages[-1]["content"], None
            said = self._unasked
            self.messages[-1]["content"] = f"{said}\n\n{ASKS}" if isinstance(said, str) else [*said, text_part(ASKS)]
        for message in reversed(self.messages if full is not None and used > full.limit else ()):
            if full is not None and message["role"] == "tool" and num_later >= full.keep_last:
                message["content"] = min(message["content"], LEFT_OUT, key=len)
            num_later += message["role"] == "assistant"
        return StopReason.LENGTH if used >= self._limits.max_total_tokens else None

    def _summarise(self, completion: Completion, sample_s: float) -> StopReason | None:
        """Begins a new context with a summary, and the last turns."""
        assert self._player.context is not None, "a summary without a context"
        self.messages[-1]["content"], self._unasked = self._unasked, None
        self.turns.append(Turn(0, 0, 0, completion.text, sample_s=sample_s))
        turns = [at for at, message in enumerate(self.messages) if message["role"] == "assistant"]
        keep = min(self._player.context.keep_last, len(turns))
        kept = self.messages[turns[-keep] :] if keep else []
        opening = with_observation(self._own, f"{SUMMARY} {completion.text.strip()}")
        self.messages = [*self._before, *map(message_of, opening), *kept]
        return StopReason.MAX_TURNS if self._is_last_turn else None

    def _correct(self, completion: Completion, failures: Sequence[ParseFailure]) -> StopReason | None:
        """Answers a turn that cannot be read with what was wrong, as often as the limits let."""
        self._num_failed_turns += 1
        if self._num_failed_turns > self._limits.max_parse_failures:
            return StopReason.PARSE_FAILURE_LIMIT
        if self._limits.is_lost(self.turns[self._num_before :]):
            return StopReason.INVALID_CALLS
        if self._is_last_turn:
            return StopReason.MAX_TURNS
        words = "\n".join(failure.message for failure in failures)
        if self._player.watch is not None:
            self._player.watch.correct(failures[0].raw, words)
        self.messages += [completion.message(), {"role": "user", "content": words}]
        return None

    def _fail(self, failure: EndpointFailure, sample_s: float) -> StopReason:
        """A model that says nothing has failed the task; a server that does not answer has not been tried.

        Raises OutageError where waiting for the server is in vain.
        """
        if failure.outcome is Outcome.GONE:
            raise OutageError(f"the model's server: {failure.text}.") from failure
        if failure.unit not in (*NoAnswer,):
            self._broken = MissingRewardCause(SAMPLER, f"the model's server: {failure.outcome}: {failure.text}")
            return StopReason.INFRA_FAILURE
        truncated = failure.unit == NoAnswer.TRUNCATED
        kind = FailureClass.TRUNCATED if truncated else FailureClass.EMPTY
        found = ParseFailure(kind, failure.text, "", 0, structural=True)
        self.turns.append(Turn(0, 0, 0, "", failures=(found,), sample_s=sample_s))
        return StopReason.LENGTH if truncated else StopReason.PARSE_FAILURE

    async def _act_on(self, completion: Completion, turn: Turn) -> StopReason | None:
        started = time.perf_counter()
        calls = [replace(call, id=call.id or f"call_{len(self.turns)}_{n}") for n, call in enumerate(completion.calls)]
        records = [CallRecord(self._read_call(call)[0], NOT_RUN) for call in calls]
        try:
            await run_calls(records, range(len(calls)), lambda place: self._run(calls[place]), self.world)
        finally:
            self.turns[-1] = replace(turn, calls=tuple(records), tools_s=time.perf_counter() - started)
        self._broken = find_broken(records)
        if self._broken is not None:
            return StopReason.INFRA_FAILURE
        results = [record.result for record in records]
        if self._limits.is_lost(self.turns[self._num_before :]):
            return StopReason.INVALID_CALLS
        shown = replace(completion, calls=tuple(calls))
        self.messages += show_results(shown, results, max_images=self._limits.max_images)
        return self._stop_when_full(completion)

    async def _run(self, call: RequestedCall) -> ToolResult:
        """The result of one call, or why it was not run."""
        self._num_calls += 1
        made, unreadable = self._read_call(call)
        refused = self._refuse(made.name) or unreadable
        if refused is None:
            return await (self._invoke(made) if self._disturbed is None else self._disturbed.invoke(made, self._invoke))
        if self._player.watch is not None:
            self._player.watch.correct(f"{call.name}({call.arguments})", refused.text)
        return refused

    async def _invoke(self, call: ToolCall) -> ToolResult:
        of_calls = [image for turn in self.turns for record in turn.calls for image in record.result.images]
        images = [*self._rollout.task.images, *(image.reference for image in of_calls)]
        images = images[: max(self._limits.max_images, len(self._rollout.task.images))]
        return await call_with_images(self._player.tools, call, images, trajectory_id=self._rollout.id)

    def _read_call(self, call: RequestedCall) -> tuple[ToolCall, ToolResult | None]:
        """The call of a request, and why it cannot be run."""
        made, unreadable = read_call(call)
        return (made if self._disturbed is None else self._disturbed.restore(made)), unreadable

    def _refuse(self, name: str) -> ToolResult | None:
        """Why a call is not run, whatever its arguments; None for one that is."""
        limit = self._limits.max_tool_calls
        if limit is not None and self._num_calls > limit:
            return ToolResult(Outcome.LIMIT_REACHED, "No tool calls are left. Answer with what you know.")
        if self._disturbed is None and not self._rollout.task.may_use(name):
            return ToolResult(Outcome.UNKNOWN_TOOL, f"no tool {name!r:.80}")
        return None


def message_of(message: Message) -> dict[str, Any]:
    """A message in the OpenAI form, with its images as parts."""
    if not message.images:
        return {"role": message.role, "content": message.content}
    first, *rest = message.texts
    parts = [text_part(first)] if first else []
    for reference, text in zip(message.images, rest, strict=True):
        file = read_image_file(reference)
        parts.append(image_part(Image(file.data, file.mime_type)))
        parts += [text_part(text)] if text else []
    return {"role": message.role, "content": parts}
