"""What plays outside of a run: a model behind a server with its tools, and how the lineage keeps what was played.

Evaluations, conversations and branches of a trajectory are one thing in the lineage: an evaluation, whose recorded plan
has a section that says what it was.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rlf.chat import ChatFormat, detect_format, encode_data
from rlf.core.errors import RlfError
from rlf.core.files import run_folder
from rlf.core.identity import hash_json, new_run_id
from rlf.data import load_tasks
from rlf.endpoints.spec import SamplingSpec
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import EVALUATION, ParentKind, RunRecord
from rlf.lineage.run import start_run
from rlf.plan import plan_to_json
from rlf.rollout.collect import rollout_metrics
from rlf.runs.place import check_runs_folder, open_lineage
from rlf.runs.plans import check_spec
from rlf.runs.provenance import code_patch, hide_secrets, made_here, recorded_files
from rlf.runs.targets import Target
from rlf.spec.model_files import model_location
from rlf.spec.models import ChatSpec
from rlf.training.harness import PLAYED_BY_AGENT, Harness, Traffic, build_harness
from rlf.types import EvaluationFinished, RunFinished, RunStatus, Scored
from rlf.types.policy import Sampling

if TYPE_CHECKING:
    from rlf.rollout.by_text import TextPlayer
    from rlf.spec.models import RunSpec

EVALUATION_SECTION = "evaluation"
"""Of a recorded plan: what makes it an evaluation."""


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """The settings that decide an evaluation's numbers beside spec and data; the lineage keeps them."""

    target: str
    """As `Target.name`."""
    modes: tuple[str, ...]
    """`sampled`, `greedy`."""
    step: int
    """Updates that the model has seen; 0 where that is not known."""
    batch: int | None
    """Trajectories that are played together; None: all of a mode."""
    endpoint: Mapping[str, Any] | None = None
    """Address and name of the model of a server."""
    model: str | None = None
    """The model that was named where it is no run's: a folder or an id."""
    groups: int | None = None
    """Of the training set, those that training begins with, sampled as in training; None: the evaluation set."""

    @classmethod
    def recorded(cls, record: RunRecord) -> EvaluationSettings:
        """Those of a recorded evaluation."""
        values = dict(record.plan[EVALUATION_SECTION])
        return cls(**(values | {"modes": tuple(values["modes"])}))

    @property
    def key(self) -> tuple[object, ...]:
        """The part that decides the results, beside spec and model."""
        return (self.modes, self.step, self.batch, self.endpoint, *(() if self.groups is None else (self.groups,)))


@asynccontextmanager
async def open_text_players(
    target: Target,
    traffic: Traffic,
    notify: Callable[[str, str], None],
    usage: dict[str, dict[str, float]],
    *,
    takes_agents: bool = False,
) -> AsyncIterator[tuple[Harness, Callable[[Sampling], TextPlayer]]]:
    """The harness of a model behind a server, entered, and what plays it.

    Args:
        usage: takes what the server counts, by trajectory.
        takes_agents: whether the caller has the spec's agent play in place of the player.
    """
    from rlf.chat.repair import stand_in
    from rlf.endpoints.pool import open_pool
    from rlf.rollout.by_text import TextPlayer
    from rlf.tools.agent_text import AUTO, TextCalls

    spec, endpoint = target.spec, target.endpoint
    assert endpoint is not None, f"{target.name} is on this machine"
    if spec.rollout.agent is not None and not takes_agents:
        raise RlfError(PLAYED_BY_AGENT)
    # The format is the server's own: a stand-in takes its place, which renders and reads nothing.
    plain = spec.model_copy(update={"chat": ChatSpec(format="hermes")})
    harness = build_harness(  # a token of the server's tokenizer, which is unknown, counts as four bytes
        plain, stand_in("hermes").tokenizer, notify, traffic, count_tokens=lambda text: len(text.encode()) // 4 + 1
    )
    room = asyncio.Semaphore(spec.rollout.max_concurrency)
    text_calls = TextCalls(AUTO, harness.tools.descriptions)
    pool = await open_pool([endpoint])

    def player_of(sampling: Sampling) -> TextPlayer:
        top_p = None if sampling.top_p == 1.0 else sampling.top_p
        how = SamplingSpec(temperature=sampling.temperature, top_p=top_p, max_tokens=spec.rollout.max_new_tokens)
        return TextPlayer(
            pool,
            harness.tools,
            harness.limits,
            how,
            endpoint.timeout_s * 2,
            room,
            harness.meter,
            text_calls,
            usage,
            worlds=harness.worlds,
            faults=spec.eval.faults,
            context=spec.rollout.context,
        )

    try:
        async with harness.opened():
            yield harness, player_of
    finally:
        await pool.close()


def save_trajectories(
    played: Sequence[Scored],
    mode: str,
    target: Target,
    runs_folder: Path,
    command: Sequence[str],
    about: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Saves trajectories of a target as an evaluation with one mode; returns its id.

    Args:
        about: further sections of the recorded plan.
    """
    check_runs_folder(runs_folder)
    run_id, step, cwd = new_run_id(), target.step or 0, Path.cwd()
    settings = EvaluationSettings(target.name, (mode,), step, None)
    spec = {"spec": target.spec.model_dump(mode="json", by_alias=True)}
    plan = spec if target.plan is None else json.loads(plan_to_json(target.plan))
    plans = [] if target.plan is None else [target.plan]
    files = tuple(file for each in plans for file in recorded_files(each, cwd))
    with open_lineage(runs_folder, create=True, url=target.spec.lineage.url) as store:
        hide_secrets(store, plans)
        record = RunRecord(
            name=target.spec.name,
            engine=EVALUATION,
            seed=target.spec.seed,
            plan={**plan, EVALUATION_SECTION: asdict(settings), **about},
            plan_hash=hash_json([mode, target.name, run_id]),
            parent_id=None if target.record is None else target.record.id,
            parent_kind=None if target.record is None else ParentKind.EVALUATION,
            parent_step=target.step,
            **made_here(run_id, run_folder(runs_folder, run_id), store, command, cwd, plans),
            files=files,
        )
        start_run(store, record, code_patch())
        with Recorder(store, run_id) as recorder:
            recorder(EvaluationFinished(step, mode, rollout_metrics(played), played))
            recorder(RunFinished(RunStatus.FINISHED, step))
    return run_id


@dataclass(frozen=True, slots=True)
class ShownToken:
    """One token of a prompt."""

    id: int
    text: str
    is_special: bool
    """Whether it is an added token, which no data can write."""


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """One message of a prompt."""

    role: str
    content: str
    num_tokens: int
    """Of the content alone, as data."""


@dataclass(frozen=True, slots=True)
class ShownPrompt:
    """The prompt of the policy, before the first token that it samples."""

    format: str
    reason: str
    """Why it is this format."""
    text: str
    tokens: tuple[ShownToken, ...]
    messages: tuple[ShownMessage, ...]
    tools: tuple[str, ...]
    stop_tokens: tuple[str, ...]

    @property
    def num_special(self) -> int:
        """How many of the tokens are special."""
        return sum(token.is_special for token in self.tokens)


def show_prompt(files: Sequence[Path], overrides: Sequence[str]) -> ShownPrompt:
    """The prompt of the first training row. Raises SpecError or RlfError for what is wrong."""
    from rlf.chat.encoding import markup_ids
    from rlf.chat.vision import Vision, load_processor

    spec, chat = open_chat(files, overrides)
    task = load_tasks(**spec.data.train.model_dump())[0]
    tools = [tool.description_for_model for tool in spec.tools]
    if task.images:
        chat.see(Vision(load_processor(model_location(spec.model.path))))
    ids, special = chat.prompt(task.messages, tools), markup_ids(chat.tokenizer)
    chosen = "the spec names it"
    name, reason = detect_format(chat.tokenizer) if spec.chat.format == "auto" else (spec.chat.format, chosen)
    return ShownPrompt(
        format=name,
        reason=reason,
        text=chat.decode(ids if chat.vision is None else chat.vision.collapsed(ids)),
        tokens=tuple(ShownToken(token, chat.decode([token]), token in special) for token in ids),
        messages=tuple(
            ShownMessage(message.role, message.content, len(encode_data(chat.tokenizer, message.content)))
            for message in task.messages
        ),
        tools=tuple(tool.name for tool in tools),
        stop_tokens=tuple(chat.decode([token]) for token in chat.stop_token_ids),
    )


def open_chat(files: Sequence[Path], overrides: Sequence[str]) -> tuple[RunSpec, ChatFormat]:
    """A checked spec and its chat format over the tokenizer of its model."""
    from rlf.chat.encoding import load_tokenizer
    from rlf.training.harness import build_chat

    spec = check_spec(files, overrides, trains=False).plan.spec
    return spec, build_chat(spec, load_tokenizer(model_location(spec.model.path)))
