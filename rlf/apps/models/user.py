"""`env: {kind: model}`: a user that another model plays, over a world of its own or over none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field

from rlf.core.identity import hash_json
from rlf.endpoints.spec import EndpointFailure, EndpointSpec, SamplingSpec
from rlf.endpoints.template import Template, TemplateText
from rlf.environments.kind import EnvSpec
from rlf.environments.world import MakeWorld, Step, World
from rlf.tools.agent_text import harmless, special_tokens
from rlf.tools.results import ToolFailure
from rlf.types import Outcome, Task, ToolCall, ToolDescription

if TYPE_CHECKING:
    from rlf.endpoints.pool import EndpointPool


class ModelEnv(EnvSpec):
    """A user that another model plays: it answers each turn of the policy that calls nothing.

    `system` describes the person that the model plays, with goals; the policy never sees it. With `world`, that
    world's tools and scores are there too, and the user does not see what they do. Scores beside the world's are
    `turns`, the number of the user's answers, and `ended`, 1 where the user ended the conversation. A server that does
    not answer is the world's failure.
    """

    kind: Literal["model"] = "model"
    endpoints: tuple[EndpointSpec, ...] = Field(min_length=1)
    """Servers of the model; the least busy one is asked, and another one where it fails."""
    system: TemplateText
    """Jinja2 text over the row's columns: who the user is, what they know and want, and to write `stop` at the end."""
    greeting: str | None = None
    """Greets the user, so that it says the first words; None: the row's prompt is its first words."""
    stop: str = Field("###STOP###", min_length=1)
    """Text by which the user ends the conversation; the policy does not see it."""
    max_replies: int = Field(16, ge=1)
    """Answers of the user, after which the conversation ends."""
    sampling: SamplingSpec = SamplingSpec()
    """Its seed, where it has one, is added to the world's."""
    world: EnvSpec | None = None
    """The world that the policy works in meanwhile, which says nothing itself; its limits count for nothing."""

    @property
    def speaks(self) -> bool:
        """Always."""
        return True

    @property
    def score_names(self) -> tuple[str, ...] | None:
        """The world's, and the user's."""
        inner = () if self.world is None else self.world.score_names
        return None if inner is None else (*inner, "turns", "ended")

    def describe_tools(self) -> Sequence[ToolDescription]:
        """The world's."""
        return () if self.world is None else self.world.tools

    def static_complaints(self) -> list[str]:
        """The world's."""
        return [] if self.world is None else self._of_world(self.world.static_complaints())

    def complaints(self) -> list[str]:
        """The world's, and that of one that speaks too."""
        if self.world is None:
            return []
        if self.world.speaks:
            return ["world: both the world and the user would answer turns without calls; remove one of them"]
        return self._of_world(self.world.complaints())

    def _of_world(self, complaints: Sequence[str]) -> list[str]:
        return [f"world: {complaint}" for complaint in complaints]

    def missing_columns(self, columns: Collection[str]) -> list[str]:
        """Names in `system` that no column has, and what the world needs."""
        missing = sorted(Template(self.system).names - {*columns, "task"})
        return [*missing, *(() if self.world is None else self.world.missing_columns(columns))]

    def source_hash(self) -> str:
        """Covers what the model is shown and which one is asked where, not its weights; and the world."""
        said = self.model_dump(mode="json", include={"system", "greeting", "stop", "max_replies", "sampling"})
        models = [[endpoint.url, endpoint.model] for endpoint in self.endpoints]
        return hash_json([said, models, None if self.world is None else self.world.source_hash()])

    def contained(self) -> Self:
        """The world below where it cannot end this process."""
        return self if self.world is None else self.model_copy(update={"world": self.world.contained()})

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MakeWorld]:
        """Looks whether any of the endpoints answers, and opens the world."""
        from rlf.endpoints.pool import open_pool

        async with AsyncExitStack() as stack:
            pool = await open_pool(self.endpoints)
            stack.push_async_callback(pool.close)
            make_inner = None if self.world is None else await stack.enter_async_context(self.world.open())

            async def make() -> World:
                return _ModelWorld(self, pool, None if make_inner is None else await make_inner())

            yield make


class _ModelWorld(World):
    """One conversation."""

    def __init__(self, spec: ModelEnv, pool: EndpointPool, inner: World | None) -> None:
        self._spec, self._pool, self._inner = spec, pool, inner
        self._messages: list[Mapping[str, Any]] = []
        """As the model that plays the user sees it: the policy's words are its user's."""
        self._seed = 0
        self._tokens = special_tokens(*(endpoint.model for endpoint in spec.endpoints))
        self._num_replies = 0
        self._is_ended = False
        self.ends_when_cancelled = inner is None or inner.ends_when_cancelled
        self.shows_state = inner is not None and inner.shows_state

    async def reset(self, task: Task, seed: int) -> str | None:
        said = None if self._inner is None else await self._inner.reset(task, seed)
        self._seed = seed % 2**31
        system = Template(self._spec.system).render({"task": task.id, **task.columns})
        self._messages = [{"role": "system", "content": system}]
        if self._spec.greeting is None:
            self._messages.append({"role": "assistant", "content": task.question})
            return said
        words = await self._ask_user(self._spec.greeting)
        return "\n\n".join(part for part in (said, words) if part)

    async def call(self, call: ToolCall) -> Step:
        assert self._inner is not None, "a call of a world that has no tools"
        return await self._inner.call(call)

    async def reply(self, text: str) -> Step:
        words = await self._ask_user(text)
        self._num_replies += 1
        return Step(words or None, done=self._is_ended or self._num_replies >= self._spec.max_replies)

    async def _ask_user(self, said: str) -> str:
        """Asks the user for its next words. Raises ToolFailure where no server answers."""
        from rlf.endpoints.pool import Caller

        # The policy's words, which must open no role of the model that grades them by its answers.
        self._messages.append({"role": "user", "content": harmless(said, self._tokens)})
        spec = self._spec
        sampling = spec.sampling
        if sampling.seed is not None:
            sampling = sampling.model_copy(update={"seed": (sampling.seed + self._seed) % 2**31})
        try:
            caller = Caller(spec.limits.step_s, spec.meter)
            answer = await self._pool.chat(self._messages, caller, sampling=sampling)
        except EndpointFailure as failure:
            words = f"the model that plays the user: {failure.outcome}: {failure.text}"
            raise ToolFailure(Outcome.INFRA, words) from failure
        words, stop, _ = answer.text.partition(spec.stop)
        if not words.strip() and not stop:  # as a call in place of words
            raise ToolFailure(Outcome.INFRA, "the model that plays the user wrote no words")
        self._messages.append({"role": "assistant", "content": answer.text})
        self._is_ended = bool(stop)
        return words.strip()

    async def score(self) -> Mapping[str, float]:
        inner = {} if self._inner is None else await self._inner.score()
        return {**inner, "turns": float(self._num_replies), "ended": float(self._is_ended)}

    async def state(self) -> Any:
        return None if self._inner is None else await self._inner.state()

    async def gold(self) -> Sequence[ToolCall | str] | None:
        return None if self._inner is None else await self._inner.gold()

    async def close(self) -> None:
        if self._inner is not None:
            await self._inner.close()
