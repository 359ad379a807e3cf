"""One trajectory that an agent plays: each call is sampled by the trajectory's own place in the policy, and kept before
it is answered.

A trajectory's calls are sampled one after the other, in the order in which they come: they share one place in the
policy, as the turns of rlf's own loop do, so that what is sampled follows from the trajectory's seed, and so that a
call never waits for a place that its own trajectory holds.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

from rlf.apps.serve import ServeSettings
from rlf.apps.serve.agents import calls
from rlf.apps.serve.agents.calls import Call, CallTree
from rlf.apps.serve.agents.tools import SessionTools, add_steps
from rlf.apps.serve.dialogue import CheckedMessage, Dialogue, TurnOpening, check_messages
from rlf.apps.serve.generation import HostGate, Metrics
from rlf.apps.serve.grammar import CallsForm, SchemaForm
from rlf.apps.serve.model import ServedModel
from rlf.apps.serve.requests import ChatRequest, RecentValues, Refusal, SampledRequest, Tools
from rlf.apps.serve.turns import decode_turn, parse_turn
from rlf.chat import ChatFormat
from rlf.chat.encoding import decode
from rlf.core.errors import RlfError
from rlf.core.text import describe
from rlf.rollout.loop import Setting
from rlf.rollout.rollout import Rollout, with_observation
from rlf.spec.agent import AgentFailure, AgentSpec, OnBreak
from rlf.types.policy import Finish, Policy, Sample, SampleRequest, Sampling, Watch
from rlf.types.tool import ToolCall, ToolResult
from rlf.types.trajectory import MissingRewardCause, StopReason, Trajectory
from rlf.types.world import WorldRecord

_T = TypeVar("_T")
_MEMORY = 1_000_000
"""Of what a session remembers of its conversations: tokens, and characters of those that are continued by an id."""
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "max_completion_tokens")
"""Keys of a request that training sets itself."""


@dataclass(slots=True)
class RequestAttempt:
    """One request, and the requests that repeat it because its answer was lost."""

    number: int
    samples: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    """By the place of the answer among those of the request."""
    is_lost: bool = False
    """Whether its connection ended before the answer was sent."""


class Session:
    """A trajectory under way."""

    has_tokens: ClassVar[bool] = True  # an endpoint keeps its own to itself

    def __init__(
        self, key: str, rollout: Rollout, setting: Setting, agent: AgentSpec, dialogue: Dialogue, *, overrides: bool
    ) -> None:
        """Takes what it plays with.

        Args:
            overrides: whether the setting's sampling wins over what requests ask for.
        """
        self.key = key
        self.rollout = rollout
        self.setting = setting
        self.overrides = overrides
        self.tree = CallTree()
        self.tools = SessionTools(rollout, setting)
        self.counts: Counter[str] = Counter()
        """Of what is no call: repeats, refusals, keys that training overrode."""
        self.scores: dict[str, float] = {}
        self.stop: StopReason | None = None
        """Why the trajectory ends whatever its agent does."""
        self.is_broken = False
        """Whether a prompt that continues nothing was refused."""
        self.is_full = False
        """Whether the latest prompt left no room for a sample."""
        self.broken: MissingRewardCause | None = None
        """Why the trajectory counts for nothing: what answers its calls is down."""
        self.fault: Exception | None = None
        """What the policy or a tool raised: no agent's failure, and raised again where it is played."""
        self.over = asyncio.Event()
        """Set when nothing more is sampled."""
        # What is remembered by the words of a history is this trajectory's alone: others may say the same by other
        # tokens.
        self.dialogue = copy.copy(dialogue)
        self.dialogue.memory, self.dialogue.conversations = RecentValues(_MEMORY), RecentValues(_MEMORY)
        self.dialogue.known, self.dialogue.vision = {}, setting.chat.vision
        self._agent = agent
        self._attempts: dict[bytes, RequestAttempt] = {}
        self._num_attempts = 0
        self._turn = asyncio.Lock()
        self._context: list[int] = []
        """What the trajectory's place in the policy holds."""
        self._num_sampled = 0
        self._started = time.perf_counter()

    def attempt(self, path: str, body: bytes, *, is_retry: bool) -> RequestAttempt:
        """The attempt that a request is. Args: is_retry: whether the client says that it repeats one.

        Equal requests alone are no repeats: an agent may ask the same twice, to sample twice.
        """
        digest = hashlib.blake2b(path.encode() + b"\0" + body, digest_size=16).digest()
        known = self._attempts.get(digest)
        if known is not None and (is_retry or known.is_lost):
            self.counts["repeated"] += 1
            known.is_lost = False
            return known
        self._num_attempts += 1
        made = self._attempts[digest] = RequestAttempt(self._num_attempts)
        return made

    def call_ids(self, attempt: RequestAttempt, index: int, number: int) -> list[str]:
        """Ids for the calls of an answer: nine letters and digits that follow from the trajectory, in their order."""
        place = f"{self.rollout.id}/{self.rollout.seed}/{attempt.number}/{index}"  # some clients sort results by id
        return sorted(hashlib.blake2b(f"{place}/{at}".encode(), digest_size=5).hexdigest()[:9] for at in range(number))

    async def call_tool(self, call: ToolCall) -> ToolResult:
        """Runs a call of the agent in the trajectory's world or by a tool of the spec. Raises Refusal."""
        if self.over.is_set():
            raise Refusal(403, "the trajectory is over", code="over")
        try:
            images = self.tree.calls[-1].images if self.tree.calls else self.rollout.task.images
            result = await self.tools.call(call, images)
        except Exception as fault:
            self._break(fault)
            raise Refusal(503, f"the tools failed: {describe(fault)}", code="tools_failed") from fault
        if not self.tree.take_result(call, result):
            self.counts["tool calls of its own"] += 1
        if self.tools.broken is not None:
            self.end(StopReason.INFRA_FAILURE)
        return result

    def model(self, settings: ServeSettings, metrics: Metrics, attempt: RequestAttempt) -> ServedModel:
        """The policy as one request meets it."""
        return SessionModel(self, settings, metrics, attempt)

    def _break(self, fault: Exception) -> None:
        self.fault = self.fault or fault
        self.over.set()

    def step_world(self) -> None:
        """Notes what was done to the world since the latest call, with that call."""
        if not self.tree.calls:  # what precedes the first call stands with it
            return
        step, last = self.tools.take_step(), self.tree.calls[-1]
        if step is None:
            return
        if last.world is not None:  # a request after it was refused
            step = add_steps(last.world, step)
        last.world = step
        if step.is_over:
            self.end(StopReason.ENV_DONE)

    def end(self, stop: StopReason) -> None:
        """Ends the trajectory, whatever its agent does."""
        self.stop = self.stop or stop
        self.over.set()

    async def repeat_or(self, attempt: RequestAttempt, index: int, sample: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """What is sampled for an answer; that of an earlier request where this one repeats it. Raises Refusal."""
        found = attempt.samples.get(index)
        if found is None or (found.done() and (found.cancelled() or found.exception() is not None)):
            found = asyncio.ensure_future(sample())
            # Takes the error of a sample that no request waits for any more, which asyncio would report as lost.
            found.add_done_callback(lambda done: done.cancelled() or done.exception())
            attempt.samples[index] = found
        try:
            # Shielded: a client that goes away loses its answer, not the sample, which its next request gets.
            sampled: _T = await asyncio.shield(found)
        except asyncio.CancelledError:
            if found.cancelled() and self.over.is_set():  # the trajectory's end, not this client's
                raise Refusal(403, "the trajectory is over", code="over") from None
            raise
        return sampled

    async def sample(self, asked: _Asked, index: int, prompt: list[int], max_tokens: int, how: Sampling) -> Sample:
        """The sample of an answer, which is a call of the trajectory. Raises Refusal."""

        async def draw(parent: Call | None) -> Call:
            started = time.perf_counter()
            sample = await self.draw(asked, prompt, max_tokens, how, self._num_sampled)
            self._num_sampled += len(sample.tokens)
            self.is_full = False
            shown = asked
            if not asked.messages:  # a text, which is shown as a message
                shown = replace(asked, messages=self._write_messages(prompt, parent))
            return self._read(shown, index, prompt, sample, time.perf_counter() - started)

        return (await self.add_call(asked, prompt, draw)).sample

    def _write_messages(self, prompt: list[int], parent: Call | None) -> list[Mapping[str, Any]]:
        """The prompt of a text completion as messages, behind those of the call that it continues."""
        before = [] if parent is None else [*parent.messages, {"role": "assistant", "content": parent.text}]
        new = prompt[0 if parent is None else len(parent.tokens) :]
        return [*before, {"role": "user", "content": decode(self.dialogue.tokenizer, new)}]

    async def add_call(self, asked: _Asked, prompt: list[int], draw: Callable[[Call | None], Awaitable[Call]]) -> Call:
        """Takes a call into the trajectory, in line.

        Args:
            draw: samples it, by the call that its prompt continues. What it raises is a fault of the policy, but for
                Refusal.

        Raises:
            Refusal: nothing is sampled for it.
        """
        async with self._turn:
            self._check_open()
            self.step_world()
            self._check_open()
            parent, link = self.tree.place(prompt, asked.messages, asked.tools, asked.images)
            if self._agent.on_break is OnBreak.FAIL and link not in ("", calls.FIRST):
                self.is_broken = True
                self.over.set()
                raise Refusal(
                    403, f"rollout.agent.on_break: the prompt continues no earlier call: {link}", code="break"
                )
            try:
                call = await draw(parent)
            except Refusal:
                raise
            except Exception as fault:
                self._break(fault)
                raise Refusal(503, f"the policy failed: {describe(fault)}", code="policy_failed") from fault
            call.parent, call.link = parent, link
            self.tree.add(call)
            return call

    async def draw(self, asked: _Asked, prompt: list[int], max_tokens: int, how: Sampling, num_sampled: int) -> Sample:
        """Samples in the trajectory's place, and keeps nothing."""
        is_continued = prompt[: len(self._context)] == self._context
        request = SampleRequest(
            self.rollout.id, prompt, max_tokens, how, self.rollout.seed, num_sampled, not is_continued, asked.images
        )
        sample = await self.setting.policy.sample(request)
        self._context = [*prompt, *sample.tokens]
        if how.num_top is not None and not sample.tops:
            words = "this engine gives the sampled token's log-probability alone: leave out logprobs and tool_choice"
            raise Refusal(400, words, key="logprobs")
        return sample

    def refuse_full(self, num_prompt: int) -> Refusal:
        """Notes a prompt that leaves no room for a sample; what it is answered."""
        self.counts["refused: length"] += 1
        self.is_full = True
        most = self.setting.limits.max_total_tokens
        words = f"rollout.max_total_tokens: {num_prompt} prompt tokens leave no room in {most}"
        return Refusal(400, words, key="messages", code="context_length_exceeded")

    def _check_open(self) -> None:
        if self.over.is_set():
            self.counts["refused: over"] += 1
            raise Refusal(403, "the trajectory is over", code="over")
        if len(self.tree.calls) >= self._agent.max_calls:
            self.counts["refused: max_calls"] += 1
            self.end(StopReason.MAX_TURNS)
            raise Refusal(403, f"rollout.agent.max_calls: {self._agent.max_calls} calls are made", code="max_calls")

    def _read(self, asked: _Asked, index: int, prompt: list[int], sample: Sample, sample_s: float) -> Call:
        chat = None if asked.chat is None else asked.chat.after(prompt)
        text = self.dialogue.text(sample.tokens) if chat is None else decode_turn(chat, tuple(sample.tokens))
        number = len(self.tree.calls)
        shared = asked.messages, asked.tools, asked.opening + text
        if chat is None:
            return Call(number, prompt, sample, *shared, text, (), [], [], sample_s)
        parsed = parse_turn(chat, asked.opening + text, sample.finish is Finish.LENGTH)
        requested = list(parsed.calls) if asked.tools != "[]" else []
        ids = self.call_ids(asked.attempt, index, len(requested))
        read = Call(number, prompt, sample, *shared, parsed.answer, parsed.failures, requested, ids, sample_s)
        read.images = asked.images
        return read

    def trajectory(
        self, stop: StopReason, answer: str | None, broken: MissingRewardCause | None, output: str = ""
    ) -> Trajectory:
        """What there is of it. Args: output: the end of what the agent printed."""
        record, turns = self.tree.write()
        world, task = self.tools.world, self.rollout.task
        kept = WorldRecord("agent") if world is None else world.record
        scores = {**self.scores, **kept.scores}  # those of the world are not the agent's to report
        given = with_observation(task.messages, kept.observation)
        if not turns:
            record.observe(self.setting.chat.prompt(task.messages, ()) if self.has_tokens else ())
        elif [(m.role, m.content) for m in turns[0].asked] == [(m.role, m.content) for m in given]:
            turns[0] = replace(turns[0], asked=())
        state: dict[str, Any] = {"calls": len(turns), "contexts": self.tree.num_rows, **self.counts}
        state |= {} if kept.final_state is None else {"world": kept.final_state}
        return Trajectory(
            id=self.rollout.id,
            task=task,
            sample_index=self.rollout.sample_index,
            tokens=record.tokens,
            action_mask=record.action_mask,
            rollout_logprobs=record.rollout_logprobs,
            turns=tuple(turns),
            stop=stop,
            answer=answer,
            broken=broken,
            duration_s=time.perf_counter() - self._started,
            forks=tuple(record.forks),
            images=self.tree.images if turns or not record.tokens else task.images,
            world=replace(kept, scores=scores, final_state=state | {"output": output}),
        )

    def ending(self, failure: AgentFailure | None, answer: str | None) -> tuple[StopReason, str | None]:
        """Why it ended, and its answer: the agent's, or that of the last call where the agent gives none."""
        last = self.tree.calls[-1] if self.tree.calls else None
        if answer is None and last is not None and failure is None:
            answer = last.answer
        if self.stop is not None:
            return self.stop, answer
        if self.is_full and (failure is not None or answer is None):
            return StopReason.LENGTH, answer
        if failure is not None:
            return (StopReason.ENV_DONE if failure in self._agent.scored else StopReason.INFRA_FAILURE), answer
        if answer is not None:
            return StopReason.ANSWERED, answer
        if last is not None and last.sample.finish is Finish.LENGTH:
            return StopReason.LENGTH, None
        return (StopReason.PARSE_FAILURE if last is not None and last.failures else StopReason.MAX_TURNS), None

    async def close(self) -> None:
        """Ends what is sampled for it, and what comes after is refused."""
        self.over.set()
        samples = [sample for attempt in self._attempts.values() for sample in attempt.samples.values()]
        for sample in samples:
            sample.cancel()
        await asyncio.gather(*samples, return_exceptions=True)
        await self.tools.settle()


@dataclass(slots=True)
class _Asked:
    """What a request asks, as far as its samples are kept with it."""

    attempt: RequestAttempt
    messages: Sequence[Mapping[str, Any]] = ()
    tools: str = "[]"
    chat: ChatFormat | None = None
    opening: str = ""
    """Text of the turn that was forced."""
    images: tuple[str, ...] = ()
    """Those of the messages, in order."""


class _Place:
    """A trajectory's place in the policy as the host of one request. A seed is the place of an answer in it."""

    def __init__(self, session: Session, asked: _Asked, max_tokens: int) -> None:
        self._session = session
        self._asked = asked
        self.num_slots = 1
        self.max_tokens = max_tokens

    def end_tokens(self, tokenizer: Any) -> tuple[int, ...]:
        """Those of the policy's chat format, as in training."""
        return self._session.setting.chat.stop_token_ids

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Nothing: the trajectory is open."""

    def release(self, trajectory_id: str) -> None:
        """Nothing: the trajectory stays open."""

    async def sample(self, request: SampleRequest, watch: Watch | None = None) -> Sample:
        """Not used: requests are conversations of one turn."""
        raise NotImplementedError

    async def complete(
        self, tokens: Sequence[int], max_tokens: int, sampling: Sampling, seed: int, watch: Watch | None = None
    ) -> Sample:
        """The sample of an answer."""
        sample = partial(self._session.sample, self._asked, seed, list(tokens), max_tokens, sampling)
        return await self._session.repeat_or(self._asked.attempt, seed, sample)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class SessionModel(ServedModel):
    """The policy as one request of a trajectory meets it."""

    def __init__(self, session: Session, settings: ServeSettings, metrics: Metrics, attempt: RequestAttempt) -> None:
        self._session = session
        self._asked = _Asked(attempt)
        place = _Place(session, self._asked, session.setting.limits.max_total_tokens)
        gate = HostGate(place, settings.max_queue, metrics)
        super().__init__(gate, session.dialogue, settings)

    def read_messages(self, asked: ChatRequest) -> list[CheckedMessage]:
        """What a request says, which is kept with its samples. Raises Refusal."""
        self._asked.chat = self.dialogue.chat(asked.offered)
        return self._take_messages(asked, asked.messages)

    def _take_messages(self, asked: ChatRequest, messages: Sequence[Mapping[str, Any]]) -> list[CheckedMessage]:
        """Keeps what a request says, and the results of calls that it holds."""
        sees = self.dialogue.vision is not None
        self._asked.messages = checked = check_messages(messages, sees=sees, known=self.dialogue.known)
        self._asked.tools = asked.offered.text
        if unknown := self._session.tree.hear(checked):
            self._session.counts["results of unknown calls"] += unknown
        return checked

    async def encode_chat(self, messages: list[CheckedMessage], tools: Tools) -> tuple[list[int], bool]:
        """Tokens of a conversation, whose images are made ready first. Raises Refusal."""
        images = tuple(image for message in messages for image in message.get("images", ()))
        if images and self.dialogue.vision is not None:
            most = self._session.setting.limits.max_images
            if len(images) > most:
                raise Refusal(400, f"rollout.max_images: got {len(images)} images; at most {most}", key="messages")
            try:
                await self.dialogue.vision.prepare(images)
            except RlfError as fault:
                raise Refusal(400, f"messages: {fault}", key="messages") from fault
        self._asked.images = images
        return await super().encode_chat(messages, tools)

    async def _force_call(
        self, asked: ChatRequest, prompt: list[int], chat: ChatFormat | None, seed: int
    ) -> TurnOpening:
        # Which of several tools is called is the policy's to learn: a forced beginning stands outside of the loss.
        if self._session.overrides and asked.tool_choice == "required" and len(asked.tools) > 1:
            self._session.counts["overridden: tool_choice"] += 1
            return TurnOpening()
        opening = await super()._force_call(asked, prompt, chat, seed)
        self._asked.opening = opening.text
        return opening

    async def _read_form(self, asked: ChatRequest, chat: ChatFormat | None, ends: tuple[int, ...]) -> SchemaForm | None:
        # In training a trainer computes the log-probabilities of all tokens, not of those that a schema lets through.
        if self._session.overrides and asked.schema_text is not None:
            self._session.counts["overridden: response_format"] += 1
            return None
        return await super()._read_form(asked, chat, ends)

    async def _read_calls(
        self, asked: ChatRequest, chat: ChatFormat | None, ends: tuple[int, ...], opening: TurnOpening
    ) -> CallsForm | None:
        if self._session.overrides and any(tool.function.strict for tool in asked.tools):
            self._session.counts["overridden: strict"] += 1
            return None
        return await super()._read_calls(asked, chat, ends, opening)

    @property
    def policy(self) -> Policy:
        """The trajectory's own."""
        return self._session.setting.policy

    async def look_ahead(self, tokens: Sequence[int], sampling: Sampling, seed: int) -> Sample:
        """The next token, which is no call of the trajectory and is kept nowhere."""
        async with self._session._turn:
            return await self._session.draw(self._asked, list(tokens), 1, sampling, 0)

    @property
    def own_stops(self) -> Sequence[str]:
        """Those of the trajectory's setting."""
        return self._session.setting.sampling.stop_strings

    def choose_settings(self, asked: SampledRequest) -> tuple[float, float, int, float]:
        """The setting's own; outside of training the agent's, where it gives them."""
        given, ours = asked.model_fields_set, self._session.setting.sampling
        if self._session.overrides:
            for key in sorted(given.intersection(_SAMPLING)):
                if getattr(asked, key) != getattr(ours, key, None):
                    self._session.counts[f"overridden: {key}"] += 1
            return ours.temperature, ours.top_p, ours.top_k, ours.min_p
        temperature, top_p, top_k, min_p = (
            getattr(asked if key in given else ours, key) for key in ("temperature", "top_p", "top_k", "min_p")
        )
        return temperature, top_p, max(0, top_k), min_p

    def _find_room(self, asked: SampledRequest, num_prompt: int) -> int:
        limits = self._session.setting.limits
        room = limits.max_total_tokens - num_prompt
        if room < 1:
            raise self._session.refuse_full(num_prompt)
        room = min(room, limits.max_new_tokens or room)
        return room if self._session.overrides else min(room, asked.limit or room)

    def _draw_seeds(self, asked: SampledRequest) -> list[int]:
        return list(range(asked.n))

    def make_ids(self, index: int, number: int) -> list[str]:
        """Ids that follow from the trajectory: templates write them, so that random ones would change the tokens."""
        return self._session.call_ids(self._asked.attempt, index, number)
