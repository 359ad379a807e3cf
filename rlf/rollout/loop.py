"""One trajectory: generate, parse, invoke, update, until the answer.

A trajectory waits for its own tools only. Both engines call this loop; they differ in the policy they bring.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rlf.chat.format import ChatFormat
from rlf.chat.marks import ParsedTurn
from rlf.chat.settings import FailurePolicy, WhenFull
from rlf.core.plain_json import frozen
from rlf.rollout.rollout import (
    NOT_RUN,
    OVER_LIMIT,
    ChatPolicy,
    Prefix,
    Rollout,
    RolloutLimits,
    TokenRecord,
    call_with_images,
    find_broken,
    run_calls,
    tool_name,
    version_changes,
    with_observation,
    world_cause,
    world_name,
)
from rlf.tools.kind import Faults
from rlf.types.policy import Finish, Policy, Sample, SampleRequest, Sampling
from rlf.types.tool import Outcome, ToolCall, ToolInvoker, ToolResult
from rlf.types.trajectory import CallRecord, MissingRewardCause, StopReason, Trajectory, Turn
from rlf.types.world import WorldFailure, Worlds, WorldStep, shown_tools

if TYPE_CHECKING:
    from rlf.rollout.contexts import Contexts
    from rlf.rollout.disturbed import Disturbed

_DEFAULT = ChatPolicy()


@frozen
class Setting:
    """Everything that all trajectories of a collection share."""

    policy: Policy
    chat: ChatFormat
    tools: ToolInvoker
    limits: RolloutLimits
    sampling: Sampling
    handling: ChatPolicy = _DEFAULT
    """What is repaired, what follows a failure, where sampling of a turn stops."""
    worlds: Worlds | None = None
    """Where each trajectory's world comes from; None: there are only tools."""
    faults: Faults | None = None
    """How tools and worlds are disturbed; None: they are not."""

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Announces trajectories to the policy in their logical order, before any of them is played."""
        self.policy.open(trajectory_ids)

    async def play(self, rollout: Rollout, *, cut_off: Callable[[Trajectory], None] | None = None) -> Trajectory:
        """Plays one trajectory to its end, as `play`."""
        return await play(rollout, self, cut_off=cut_off)

    def release(self, trajectory_id: str) -> None:
        """Ends a trajectory. Safe to call twice."""
        self.policy.release(trajectory_id)


async def play(
    rollout: Rollout, setting: Setting, *, cut_off: Callable[[Trajectory], None] | None = None
) -> Trajectory:
    """Plays one trajectory to its end. `open` must have announced it to the policy.

    Args:
        cut_off: takes what there is of a trajectory that is cancelled after its first turn was sampled.
    """
    playing = _Play(rollout, setting)
    try:
        return await playing.run(cut_off)
    finally:
        # The policy first: its slot goes to a waiting trajectory, while tools may take seconds to give back what they
        # hold. The world last, and whatever the tools raise: its episode would stay taken from the pool for good.
        setting.policy.release(rollout.id)
        try:
            await setting.tools.end_trajectory(rollout.id)
        finally:
            if playing.world is not None:
                await playing.world.close()


class _Play:
    """The state of one trajectory under way."""

    def __init__(self, rollout: Rollout, setting: Setting) -> None:
        self.started = time.perf_counter()
        self.rollout = rollout
        self.setting = setting
        self.limits = setting.limits
        self.tools = shown_tools(setting.worlds, setting.tools.descriptions, rollout.task)
        self.chat = setting.chat
        """As it reads the turn under way."""
        self.disturbed: Disturbed | None = None
        if setting.faults is not None:
            from rlf.rollout.disturbed import Disturbed

            self.disturbed = Disturbed(setting.faults, rollout.task.id, self.tools)
            self.tools = self.disturbed.tools
            self.chat = setting.chat.with_tools(self.tools)
        self.handling = setting.handling
        self.messages = rollout.task.messages
        """The prompt's, with what the world says first."""
        self.images = list(rollout.task.images)
        """What the tokens hold places of."""
        self.prefix = rollout.prefix
        self.record = TokenRecord(())
        self.world = None if setting.worlds is None else setting.worlds.open(rollout.id, rollout.task)
        self.turns: list[Turn] = [] if self.prefix is None else [*self.prefix.turns]
        self.num_prefix_turns = len(self.turns)
        self.contexts: Contexts | None = None
        """Where the next turn's context begins; None: it is all that was before."""
        self.num_calls = 0
        self.num_sampled = 0
        self.num_failed_turns = 0
        self.answer: str | None = None
        self.broken: MissingRewardCause | None = None

    async def run(self, cut_off: Callable[[Trajectory], None] | None) -> Trajectory:
        try:
            stop = await self._begin()
            while stop is None:
                stop = await self._turn()
            stop = await self._score(stop)
        except asyncio.CancelledError:
            # Turns of a prefix are another trajectory's: without a turn of its own there is nothing to keep.
            if cut_off is not None and len(self.turns) > self.num_prefix_turns:
                cut_off(self._trajectory(StopReason.CANCELLED))
            raise
        return self._trajectory(stop)

    async def _begin(self) -> StopReason | None:
        """Resets the world, and puts down the prompt or the prefix."""
        await self._make_ready(self.images)
        stop = None
        # A world that fails ends the trajectory only after its tokens are there: what is recorded has a prompt, also
        # where nothing was sampled.
        try:
            observation = None if self.world is None else await self.world.reset()
            self.messages = with_observation(self.messages, observation)
        except WorldFailure as failure:
            stop = self._break(world_cause(failure))
        if self.handling.forks or self.handling.context is not None:
            from rlf.rollout.contexts import Contexts

            self.contexts = Contexts(self.chat, self.handling, self.messages, self.tools)
        if self.prefix is None:
            self.record = TokenRecord(self.chat.prompt(self.messages, self.tools))
            return stop
        self.record = self.prefix.record()
        return stop or await self._go_through(self.prefix)

    async def _make_ready(self, images: Sequence[str]) -> None:
        """Makes images ready off the event loop, before they are rendered."""
        if images and self.chat.vision is not None:
            await self.chat.vision.prepare(images)

    async def _score(self, stop: StopReason) -> StopReason:
        """Lets the world score its final state; why the trajectory ended."""
        if self.world is None or stop is StopReason.INFRA_FAILURE:
            return stop
        # Nothing more is sampled: a score may take as long as a judge does, and the policy's slot is not held for it.
        # `play` releases once more, which does nothing.
        self.setting.policy.release(self.rollout.id)
        try:
            await self.world.score(self.turns)
        except WorldFailure as failure:
            return self._break(world_cause(failure))
        return stop

    def _break(self, cause: MissingRewardCause) -> StopReason:
        """Records what broke the trajectory."""
        self.broken = cause
        return StopReason.INFRA_FAILURE

    async def _go_through(self, prefix: Prefix) -> StopReason | None:
        """Counts what a prefix used, and makes its calls again. A result that differs leaves no state to resume."""
        for at, turn in enumerate(prefix.turns):
            records = [CallRecord(record.call, NOT_RUN) for record in turn.calls]
            # Tokens of the prefix are taken as they are, but tools and worlds are fresh: only the same calls in the
            # same order bring them to the state in which the next turn was sampled.
            replays = prefix.replays_calls or self.world is not None
            if replays:
                await self._invoke(records)
            else:
                # As `_invoke` counts: calls over the limit used none of it.
                self.num_calls += sum(record.result.outcome is not Outcome.LIMIT_REACHED for record in turn.calls)
            self.num_sampled += turn.end - turn.start
            self.num_failed_turns += bool(turn.failures and not turn.calls)
            self.images += [image for shown in self._images(turn.calls) for image in shown]
            # A result that came out otherwise is no failure of the policy: the turns that follow would answer what it
            # never saw, so the trajectory is left out and not scored.
            for before, now in zip(turn.calls, records, strict=True) if replays else ():
                if (before.result.outcome, before.result.text) != (now.result.outcome, now.result.text):
                    was, found = (f"{one.result.outcome} {one.result.text!r:.120}" for one in (before, now))
                    broken, name = find_broken([now]), tool_name(now.call.name)
                    if broken:  # kept as it came: an outage is seen by the trajectory's calls
                        self.turns[at] = dataclasses.replace(turn, calls=tuple(records))
                    return self._break(broken or self._differs(name, "called", found, was))
            if stop := await self._step_again(turn):
                return stop
        await self._make_ready(self.images)
        return None

    def _differs(self, name: str, how: str, found: str, before: str) -> MissingRewardCause:
        """What came out otherwise once leaves no state to continue from: it is up, and not waited for."""
        words = f"{name}: {how} again for the trajectory's prefix: {found}; before: {before}"
        return MissingRewardCause(name, words, may_pass=False)

    async def _step_again(self, turn: Turn) -> StopReason | None:
        """Lets the world answer a turn of a prefix again, and compares what that did to it."""
        if self.world is None or turn.world is None:
            return None
        if turn.world.reply is not None:
            # A format reads a turn by what stands before it (thinking that a prompt opened), so the text alone is not
            # enough to find the answer that the world was given.
            parsed = self.chat.after(self.record.tokens[: turn.start]).parse(turn.text, truncated=False)
            try:
                await self.world.reply(parsed.answer or "")
            except WorldFailure as failure:
                return self._break(world_cause(failure))
        step = self.world.take_step()
        if step == turn.world:
            return None
        name = world_name(self.world.record)
        return self._break(self._differs(name, "played", f"{step!r:.200}", f"{turn.world!r:.200}"))

    def _trajectory(self, stop: StopReason) -> Trajectory:
        return Trajectory(
            id=self.rollout.id,
            task=self.rollout.task,
            sample_index=self.rollout.sample_index,
            tokens=self.record.tokens,
            action_mask=self.record.action_mask,
            rollout_logprobs=self.record.rollout_logprobs,
            turns=tuple(self.turns),
            stop=stop,
            answer=self.answer,
            broken=self.broken,
            duration_s=time.perf_counter() - self.started,
            forks=tuple(self.record.forks),
            images=tuple(self.images),
            num_prefix_turns=self.num_prefix_turns,
            prefix_of="" if self.prefix is None else self.prefix.trajectory.id,
            world=None if self.world is None else self.world.record,
        )

    async def _turn(self) -> StopReason | None:
        """Plays one turn; None when the trajectory continues."""
        context = None if self.contexts is None else self.contexts.next(self.turns, self.record)
        if context is not None:
            self.record.fork(context)
        left = self.limits.max_total_tokens - len(self.record.segment)
        budget = left if self.limits.max_new_tokens is None else min(left, self.limits.max_new_tokens)
        if budget <= 0:
            return StopReason.LENGTH
        started = time.perf_counter()
        start = len(self.record.tokens)
        is_summary = self.contexts is not None and self.contexts.is_asked(self.turns, self.record)
        # The segment and not all tokens: a fork leaves out text that the turn under way does not follow.
        self.chat = self.chat.after(self.record.segment)
        sample = await self._sample_turn(budget, fresh=context is not None)
        self.record.act(sample.tokens, sample.logprobs)
        text = self.chat.decode(sample.tokens)
        parsed, repairs = self.handling.read(self.chat, text, truncated=sample.finish is Finish.LENGTH)
        # A turn is made of it whenever more of it is known, in less time than by `replace`.
        draft = partial(
            Turn,
            start=start,
            end=len(self.record.tokens),
            text=text,
            failures=(failures := parsed.failures),
            sample_s=time.perf_counter() - started,
            repairs=repairs,
            num_penalised=len(self.handling.failures_with(parsed, FailurePolicy.PENALISE)) if failures else 0,
            versions=tuple(version_changes(start, sample.versions)) if sample.versions else (),
        )
        if self.contexts is None or not is_summary:
            return await self._act_on(parsed, draft, sample)
        # Whatever a summary holds, a call too, is text for the next context.
        self.contexts.summaries.append(len(self.turns))
        self.turns.append(draft(observation_end=len(self.record.tokens), failures=(), repairs=(), num_penalised=0))
        return StopReason.MAX_TURNS if len(self.turns) >= self.limits.max_turns else None

    async def _act_on(self, parsed: ParsedTurn, draft: partial[Turn], sample: Sample) -> StopReason | None:
        """Answers, or invokes the calls and feeds back what they return."""
        stop = self._stop_before_tools(parsed, sample)
        end = len(self.record.tokens)
        restore = None if self.disturbed is None else self.disturbed.restore
        records = [CallRecord(call if restore is None else restore(call), NOT_RUN) for call in parsed.calls]
        started = time.perf_counter()
        # Calls of a last turn change nothing that the policy sees. They run where they count all the same: a world is
        # scored by its state after them, and the one turn of a single-turn rollout by their results.
        counts = self.world is not None or self.rollout.is_single_turn
        is_run = stop is None or (stop is StopReason.MAX_TURNS and counts)
        # The turn is put down also where its calls are cancelled, so that the trajectory has their results, those of
        # cancelled calls included: `run_calls` writes each into `records` at once.
        try:
            if is_run:
                await self._invoke(records)
        finally:
            if records:
                draft = partial(draft, calls=tuple(records), tools_s=time.perf_counter() - started)
            self.turns.append(turn := draft(observation_end=end))
        if records and (broken := find_broken(records)) is not None:
            stop = self._break(broken)
        if stop in (None, StopReason.MAX_TURNS) and self.limits.is_lost(self.turns):
            stop = StopReason.INVALID_CALLS
        if self.world is not None and stop is not StopReason.INFRA_FAILURE:
            stop, step = await self._step_world(parsed, stop)
            draft = partial(draft, world=step)
            # A reply takes the place of an observation: an answer has no results to feed back.
            if stop is None and step is not None and step.reply is not None:
                reply, closed = step.reply, self._is_closed(sample)
                stop = self._feed(lambda note: self.chat.user_turn(reply + note, closed=closed, turn=turn.text))
                self.turns[-1] = draft(observation_end=len(self.record.tokens))
                return stop
        if stop is None:
            stop = await self._observe(parsed, records, sample, turn.text)
        if self.world is not None or len(self.record.tokens) != end:
            self.turns[-1] = draft(observation_end=len(self.record.tokens))
        return stop

    async def _step_world(
        self, parsed: ParsedTurn, stop: StopReason | None
    ) -> tuple[StopReason | None, WorldStep | None]:
        """What the turn did to the world, which may answer an answer; whether the trajectory then ends."""
        assert self.world is not None, "a step without a world"
        try:
            if stop is StopReason.ANSWERED and self.world.speaks:
                await self.world.reply(parsed.answer or "")
        except WorldFailure as failure:
            return self._break(world_cause(failure)), None
        step = self.world.take_step()
        if step.is_over:
            return StopReason.ENV_DONE, step
        if stop is StopReason.ANSWERED and step.reply is not None:
            return (StopReason.MAX_TURNS if len(self.turns) >= self.limits.max_turns else None), step
        return stop, step

    def _stop_before_tools(self, parsed: ParsedTurn, sample: Sample) -> StopReason | None:
        """Why the trajectory ends with this turn as it stands; None when its calls are to be run."""
        if parsed.answer is not None:
            self.answer = parsed.answer
            return StopReason.ANSWERED
        # A failure beside a call that runs is corrected with its result, and uses up no try.
        if parsed.failures and not parsed.calls:
            self.num_failed_turns += 1
        if sample.finish is Finish.LENGTH:
            return StopReason.LENGTH
        if self.handling.failures_with(parsed, FailurePolicy.END):
            return StopReason.PARSE_FAILURE
        if self.num_failed_turns > self.limits.max_parse_failures:
            return StopReason.PARSE_FAILURE_LIMIT
        is_last = self.rollout.is_single_turn or len(self.turns) + 1 >= self.limits.max_turns
        return StopReason.MAX_TURNS if is_last else None

    async def _sample_turn(self, max_tokens: int, *, fresh: bool) -> Sample:
        """Samples to the end of a turn: past the end of a call's tag where that stands inside a string or thinking."""
        sample = await self._sample(self.record.segment, max_tokens, fresh=fresh)
        while self.handling.stop_after_call and self._is_inside(sample) and len(sample.tokens) < max_tokens:
            context = [*self.record.segment, *sample.tokens]
            more = await self._sample(context, max_tokens - len(sample.tokens))
            # The end of the last piece is that of the turn: the strings before it ended nothing.
            sample = Sample(sample.tokens + more.tokens, sample.logprobs + more.logprobs, more.finish)
        return sample

    def _is_inside(self, sample: Sample) -> bool:
        """Whether sampling stopped at a string that ends calls where no call ends."""
        if sample.finish is Finish.LENGTH or self._is_closed(sample):
            return False
        return not self.chat.is_after_call(self.chat.decode(sample.tokens))

    async def _sample(self, tokens: Sequence[int], max_tokens: int, *, fresh: bool = False) -> Sample:
        request = SampleRequest(
            trajectory_id=self.rollout.id,
            tokens=tokens,
            max_tokens=max_tokens,
            sampling=self.setting.sampling,
            seed=self.rollout.seed,
            num_sampled=self.num_sampled,
            fresh=fresh,
            images=tuple(self.images),
        )
        sample = await self.setting.policy.sample(request)
        self.num_sampled += len(sample.tokens)
        return sample

    async def _invoke(self, records: list[CallRecord]) -> None:
        """Runs a turn's calls side by side, each into its place; those over the trajectory's limit are answered so."""
        limit = self.limits.max_tool_calls
        num_allowed = len(records) if limit is None else max(0, min(len(records), limit - self.num_calls))
        self.num_calls += num_allowed
        records[num_allowed:] = [CallRecord(record.call, OVER_LIMIT) for record in records[num_allowed:]]
        call = self._call if self.disturbed is None else partial(self.disturbed.invoke, carry_out=self._call)
        await run_calls(records, range(num_allowed), lambda place: call(records[place].call), self.world)

    async def _call(self, call: ToolCall) -> ToolResult:
        """One call; a tool that the task's row leaves out is as unknown as one that is declared nowhere."""
        if self.rollout.task.may_use(call.name):
            return await call_with_images(self.setting.tools, call, self.images, trajectory_id=self.rollout.id)
        known = ", ".join(tool.name for tool in self.tools) or "none"
        return ToolResult(Outcome.UNKNOWN_TOOL, f"no tool {call.name!r:.80} (known: {known})")

    async def _observe(
        self, parsed: ParsedTurn, records: Sequence[CallRecord], sample: Sample, text: str
    ) -> StopReason | None:
        """Feeds results and corrections back, in the order of the turn's text."""
        results = iter(record.result.text for record in records)
        texts = [next(results) if isinstance(item, ToolCall) else item.message for item in parsed.observed]
        of_calls = self._images(records)
        shown = [image for of_one in of_calls for image in of_one]
        of_each = iter(of_calls)
        images = [next(of_each) if isinstance(item, ToolCall) else [] for item in parsed.observed] if of_calls else []
        await self._make_ready(shown)

        def render(note: str) -> list[int]:
            shown = [*texts[:-1], texts[-1] + note]
            return self.chat.observation(shown, closed=self._is_closed(sample), turn=text, images=images)

        # Images count only with the tokens that hold their places: an observation that found no room shows none.
        if stop := self._feed(render):
            return stop
        self.images += shown
        return None

    def _is_closed(self, sample: Sample) -> bool:
        return bool(sample.tokens) and sample.tokens[-1] in self.chat.stop_token_ids

    def _feed(self, render: Callable[[str], list[int]]) -> StopReason | None:
        """Puts an observation down where it leaves room for another turn, with a request where the context is full."""
        observation, full, size = render(""), self.handling.context, len(self.record.segment)
        if full and full.when_full is WhenFull.SUMMARIZE and size + len(observation) > full.limit:
            from rlf.chat.history import ASKS

            observation = render(f"\n\n{ASKS}")
        # `>=`: an observation that fills the context to its last token leaves none to sample.
        if size + len(observation) >= self.limits.max_total_tokens:
            return StopReason.LENGTH
        self.record.observe(observation)
        return None

    def _images(self, records: Sequence[CallRecord]) -> list[list[str]]:
        """The images of each call's result, as many as the trajectory may still hold; empty without any."""
        left = self.limits.max_images - len(self.images)
        if left <= 0 or not self.chat.shows_results or not any(record.result.images for record in records):
            return []
        images: list[list[str]] = []
        for record in records:
            images.append([image.reference for image in record.result.images[:left]])
            left -= len(images[-1])
        return images
