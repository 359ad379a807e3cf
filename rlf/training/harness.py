"""The parts that both engines build from a plan: chat format, worlds, tools, rewards, limits. One implementation."""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from rlf.chat.format import ChatFormat, open_format
from rlf.chat.settings import FailurePolicy, HistoryPolicy
from rlf.core import RlfError
from rlf.core.meter import Meter
from rlf.core.redact import Redactor
from rlf.rewards.function import RewardFunction
from rlf.rewards.term import RewardContext
from rlf.rollout.loop import Setting
from rlf.rollout.rollout import ChatPolicy, RolloutLimits
from rlf.tools.execution.executor import Executor
from rlf.tools.kind import Faults
from rlf.types.events import Notice
from rlf.types.policy import Policy, Sampling
from rlf.types.score import Scored
from rlf.types.task import Task
from rlf.types.tool import ToolInvoker
from rlf.types.trajectory import FailureClass

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlf.core import Fault
    from rlf.environments.pool import WorldPool
    from rlf.rollout.by_text import TextPlayer
    from rlf.rollout.collect import Player
    from rlf.spec import LoadedSpec
    from rlf.spec.models import RunSpec
    from rlf.tools.execution.tape import Tape
    from rlf.training.batch import Batch


PLAYED_BY_AGENT = (
    "rollout.agent: this is played by rlf's own loop, and the spec's trajectories by an agent. Add rollout.agent=null, "
    "or evaluate by `rlf eval`."
)
"""Of what plays by the loop alone."""


class Agents(AbstractAsyncContextManager[Any], Protocol):
    """The programs that play trajectories in place of the loop, and where they reach the policy."""

    def player(self, setting: Setting, *, overrides: bool) -> Player:
        """What plays a collection.

        Args:
            overrides: whether the setting's sampling wins over what a program asks for.
        """

    def forwarding(self, player: TextPlayer) -> Player:
        """What plays a collection with the model behind an endpoint, as the player of rlf's own loop asks it."""

    async def certify(self, harness: Harness, policy: Policy, tasks: Sequence[Task], seed: int) -> Notice:
        """Plays tasks before the first step; what a run keeps of it. Raises CheckError where the spec wants more."""


class Demonstrations(Protocol):
    """What the first steps of a run imitate, as trajectories."""

    @property
    def num_steps(self) -> int:
        """How many steps that are."""

    async def of_step(self, step: int) -> list[Scored]:
        """Those of a step, which follow from the run's seed and the step's number."""

    async def heldout(self) -> list[Scored]:
        """Those that no step imitates."""


class Teaching(Protocol):
    """What a teacher is shown beside what the policy knew."""

    def add_rows(self, batch: Batch, used: Sequence[Scored]) -> Batch:
        """The batch of trajectories, with how the teacher reads them."""


def import_app(key: str, app: str, module: str) -> ModuleType:
    """A module of an app, by name: it may be deleted, and nothing of the core imports one.

    Args:
        key: of the spec, which needs it.
    """
    try:
        return importlib.import_module(f"rlf.apps.{app}.{module}")
    except ModuleNotFoundError as fault:
        raise RlfError(f"{key}: this needs the app `{app}`, which is not here ({fault}).") from fault


def find_unwritable(loaded: LoadedSpec) -> list[Fault]:
    """Faults of the demonstrations of a checked spec, which may be no rows or not writable in the model's format."""
    if loaded.spec.data.demonstrations is None:
        return []
    try:
        found: list[Fault] = import_app("data.demonstrations", "demos", "steps").find_demonstration_faults(loaded)
    except RlfError as error:
        return [loaded.fault(("data", "demonstrations"), str(error))]
    return found


def open_demonstrations(spec: RunSpec, harness: Harness) -> Demonstrations | None:
    """The demonstrations of a spec; None where it has none. Raises RlfError."""
    if spec.data.demonstrations is None:
        return None
    shown: Demonstrations = import_app("data.demonstrations", "demos", "steps").StepDemonstrations(spec, harness)
    return shown


def open_teaching(spec: RunSpec, harness: Harness) -> Teaching | None:
    """Of a spec whose teacher is shown something; None where it has no teacher, or sees what the policy sees."""
    settings = spec.train.algorithm
    if not settings.needs_teacher:
        return None
    from rlf.algo.advantages.distillation import Distillation

    if not isinstance(settings, Distillation) or not (settings.demonstrations or settings.shows_failures):
        return None
    module = import_app("train.algorithm", "demos", "teaching")
    teaching: Teaching = module.TeacherPrompts(settings, harness, 4 * spec.rollout.max_total_tokens)
    return teaching


def open_agents(spec: RunSpec, tokenizer: PreTrainedTokenizerBase, redact: Callable[[str], str]) -> Agents | None:
    """The agents of a spec, to be entered; None where it has none. Raises RlfError."""
    agent = spec.rollout.agent
    if agent is None:
        return None
    module = import_app("rollout.agent", "serve", "agents")
    agents: Agents = module.AgentServer(
        agent, tokenizer, spec.chat, gold=spec.data.gold_columns, max_concurrency=spec.most_at_once, redact=redact
    )
    return agents


@dataclass(frozen=True, slots=True)
class Harness:
    """Everything of a run that is not the policy. Engines work within `opened`."""

    chat: ChatFormat
    tools: Executor
    reward: RewardFunction
    worlds: WorldPool | None
    """None: there are only tools."""
    limits: RolloutLimits
    training: Sampling
    evaluation: Sampling
    greedy: Sampling
    handling: ChatPolicy
    meter: Meter
    """Counts what tools and judges cost."""
    training_faults: Faults | None = None
    evaluation_faults: Faults | None = None
    agents: Agents | None = None
    """What plays in place of the loop; None: the loop plays."""

    def player(self, policy: Policy, sampling: Sampling, **changes: Any) -> Player:
        """What plays a collection: the agent of the spec, or the loop.

        An agent's own settings hold in evaluations; in training they would change what is explored.

        Args:
            changes: fields of the setting in place of the harness's own.
        """
        faults = self.training_faults if sampling is self.training else self.evaluation_faults
        setting = Setting(policy, self.chat, self.tools, self.limits, sampling, self.handling, self.worlds, faults)
        setting = replace(setting, **changes) if changes else setting
        return setting if self.agents is None else self.agents.player(setting, overrides=sampling is self.training)

    def setting(self, policy: Policy, sampling: Sampling) -> Setting:
        """The setting of rlf's own loop. Raises RlfError where an agent plays in its place."""
        player = self.player(policy, sampling)
        if not isinstance(player, Setting):
            raise RlfError(PLAYED_BY_AGENT)
        return player

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Harness]:
        """Opens worlds, tools and rewards; leaving the context closes them. Raises RlfError."""
        async with AsyncExitStack() as stack:
            if self.worlds is not None:
                await stack.enter_async_context(self.worlds)
            await stack.enter_async_context(self.tools)
            await stack.enter_async_context(self.reward)
            if self.agents is not None:
                await stack.enter_async_context(self.agents)
            yield self


@dataclass(frozen=True, slots=True)
class Traffic:
    """A run's additions to tool calls beside the spec: redaction, recording, replay, costs."""

    redact: Callable[[str], str] = field(default_factory=lambda: Redactor(os.environ).text)
    """Strikes secrets out of what tools say; by default those that the environment's variables name as such."""
    record: Path | None = None
    """File that every call and its result are appended to."""
    record_rewards: Path | None = None
    """File that the calls of reward terms are appended to, which no trajectory holds."""
    replay: Tape | None = None
    """Where results come from in place of the tools."""
    meter: Meter = field(default_factory=Meter)
    """Counts what tools and judges cost, as they do."""
    elsewhere: ToolInvoker | None = None
    """Runs the calls of tools with `limits.scope: job`; None: this process."""


def build_harness(
    spec: RunSpec,
    tokenizer: PreTrainedTokenizerBase,
    notify: Callable[[str, str], None],
    traffic: Traffic | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> Harness:
    """Builds the parts from their declarations. Raises RlfError for what cannot be built.

    Args:
        notify: takes notices of tools and reward terms: a level and the words.
        traffic: None: tools are called, and nothing is recorded.
        count_tokens: of a tool's result; None: by the tokenizer.
    """
    chat = build_chat(spec, tokenizer)
    rollout = spec.rollout
    limits = RolloutLimits(
        max_turns=rollout.max_turns,
        max_total_tokens=rollout.max_total_tokens,
        max_new_tokens=rollout.max_new_tokens,
        max_tool_calls=rollout.max_tool_calls,
        max_images=rollout.max_images,
        max_parse_failures=rollout.max_parse_failures,
        max_failed_turns=rollout.max_failed_turns,
    )
    for place, faults in (("rollout", rollout.faults), ("eval", spec.eval.faults)):
        if faults is not None and (faults.renamed or faults.nested) and not chat.names_tools:
            raise RlfError(
                f"{place}.faults: {chat.name} writes calls without the name of a tool, so that `renamed` and `nested` "
                "change nothing that the model sees. Remove these two, or use another `chat.format`."
            )
    handling = chat_policy(spec, chat)
    call_ends = chat.call_ends if handling.stop_after_call else ()
    stop_strings = (*chat.stop_strings, *call_ends, *rollout.stop)
    plain = Sampling(stop_token_ids=chat.stop_token_ids, stop_strings=stop_strings)
    training = replace(
        plain, temperature=rollout.temperature, top_p=rollout.top_p, top_k=rollout.top_k, min_p=rollout.min_p
    )
    traffic = traffic or Traffic()
    worlds = None
    if spec.env is not None:
        from rlf.environments.pool import WorldPool

        worlds = WorldPool(spec.env, seed=spec.seed, redact=traffic.redact, meter=traffic.meter, copies=True)
    tools = Executor(
        (*spec.tools, *(() if worlds is None else worlds.declarations)),
        seed=spec.seed,
        max_concurrency=rollout.max_tool_concurrency,
        count_tokens=count_tokens or (lambda text: len(tokenizer.encode(text, add_special_tokens=False))),
        redact=traffic.redact,
        notify=notify,
        record=traffic.record,
        record_rewards=traffic.record_rewards,
        replay=traffic.replay,
        meter=traffic.meter,
        elsewhere=traffic.elsewhere,
    )
    return Harness(
        chat=chat,
        tools=tools,
        reward=RewardFunction(
            spec.rewards, RewardContext(tools.for_rewards, spec.seed, notify, traffic.meter), spec.success
        ),
        worlds=worlds,
        limits=limits,
        training=training,
        evaluation=replace(plain, temperature=spec.eval.temperature),
        greedy=replace(plain, temperature=0.0),
        handling=handling,
        meter=traffic.meter,
        training_faults=rollout.faults,
        evaluation_faults=spec.eval.faults,
        agents=open_agents(spec, tokenizer, traffic.redact),
    )


def chat_policy(spec: RunSpec, chat: ChatFormat) -> ChatPolicy:
    """What is repaired, and what follows failures. Raises RlfError where no call ends before its turn."""
    declared = spec.chat
    if declared.stop_after_call and not chat.call_ends:
        raise RlfError(
            "chat.stop_after_call: got true; in the model's chat format a call ends with the turn, so that there is "
            "nothing to stop at. Remove it."
        )
    policies = dict(declared.failures)
    otherwise = policies.pop("default", FailurePolicy.FEEDBACK)
    failures = {FailureClass(kind): policy for kind, policy in policies.items()}
    forks = declared.history is HistoryPolicy.FORK and not chat.by_name
    return ChatPolicy(declared.repair, failures, otherwise, declared.stop_after_call, forks, spec.rollout.context)


def build_chat(spec: RunSpec, tokenizer: PreTrainedTokenizerBase) -> ChatFormat:
    """The chat format that the spec names, or that the model's template shows."""
    return open_format(spec.chat.format, tokenizer, spec.shown_tools, spec.chat.thinking_tag)
