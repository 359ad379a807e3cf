"""The search: texts are tried on tasks of the training set, and a model rewrites them by what went wrong.

GEPA (arXiv:2507.19457), as the package `gepa` has it, chooses which texts are rewritten and which stay; here its texts
are played by rlf's loop and scored by the spec's rewards. What was played and written is kept in a file, so that the
same command continues a search that was stopped: GEPA's choices follow from the seed and from what the file says.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from rlf.core.errors import RlfError, SpecError
from rlf.core.identity import derive_seed, hash_json
from rlf.core.meter import Meter
from rlf.core.plain_json import Jsonable
from rlf.core.yaml_text import dump_yaml
from rlf.data.tasks import load_tasks
from rlf.endpoints.pool import Caller, EndpointPool, open_pool
from rlf.endpoints.spec import EndpointFailure, EndpointSpec
from rlf.rollout.collect import collect
from rlf.runs.players import open_text_players
from rlf.runs.targets import Target, open_target
from rlf.spec import load_spec, write_back
from rlf.training.counting import evaluation_rollout, has_answered
from rlf.training.harness import Harness, Traffic, build_harness
from rlf.types import Scored, Task, ToolCall, ToolDescription, ToolInvoker, ToolResult

if TYPE_CHECKING:
    from rlf.rollout.collect import Player
    from rlf.types.policy import Sampling

SYSTEM = "system message"
"""The name of that text in a search; others are those of tools."""
_TOOL = "description of tool "
_START = "Answer the user. Call the tools where they help."
"""What a search begins with where the spec has no system message."""
_MARKS = ("{{", "{%", "{#")
_TRIES = 3
_REFLECTION_S = 300.0
_MAX_TEXT = 2000
"""Characters of a result or turn that the rewriting model is shown."""

T = TypeVar("T")
Texts = dict[str, str]


@dataclass(frozen=True, slots=True)
class PromptResult(Jsonable):
    """What a search found."""

    name: str
    """The spec's."""
    target: str
    num_texts: int
    """Sets of texts that were tried on all validation tasks, the first included."""
    num_rollouts: int
    num_sampled: int
    """Tokens that the texts were tried with; 0 for a model behind a server, which keeps them to itself."""
    num_rewrites: int
    before: float
    """Mean reward of the first texts on the validation tasks, which no rewriting saw."""
    after: float
    """Of the best ones."""
    texts: Mapping[str, str]
    """The best ones that differ from the first."""
    file: Path | None
    """The spec with them; None where the first were the best."""
    cost_usd: float


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How much is searched."""

    num_rollouts: int
    """Of all texts together."""
    num_tasks: int
    """Tasks of the training set, of which one half is seen by the rewriting model and the other chooses."""


class _Described:
    """Tools under other descriptions. A `ToolInvoker`."""

    def __init__(self, tools: ToolInvoker, texts: Mapping[str, str]) -> None:
        self._tools, self._texts = tools, texts

    @property
    def descriptions(self) -> tuple[ToolDescription, ...]:
        own = self._tools.descriptions
        return tuple(replace(tool, description=self._texts.get(_TOOL + tool.name, tool.description)) for tool in own)

    async def invoke(self, call: ToolCall, *, trajectory_id: str) -> ToolResult:
        return await self._tools.invoke(call, trajectory_id=trajectory_id)

    async def end_trajectory(self, trajectory_id: str) -> None:
        await self._tools.end_trajectory(trajectory_id)


class _Kept:
    """What was played and written, in a file that grows line by line."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        whole, _, cut = text.rpartition("\n")
        if cut:  # a line that a kill cut; what follows must not be written behind it
            file.write_text(whole + "\n" if whole else "", encoding="utf-8")
        self._values: dict[str, Any] = dict(json.loads(line) for line in whole.splitlines())
        self._file = file.open("a", encoding="utf-8")

    def get(self, key: str) -> Any:
        return self._values.get(key)

    def keep(self, key: str, value: Any) -> None:
        self._values[key] = value
        self._file.write(json.dumps([key, value]) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class Adapter:
    """The spec as GEPA sees it: texts in, scores and what happened out. A `gepa.GEPAAdapter`."""

    propose_new_texts = None

    def __init__(
        self,
        target: Target,
        harness: Harness,
        player_of: Callable[[Sampling], Player],
        kept: _Kept,
        wait: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._target, self._harness, self._player_of = target, harness, player_of
        self._kept, self._wait = kept, wait
        self._first_system = target.spec.data.train.system
        self._tasks_by_system: dict[str, dict[str, Task]] = {}
        self.num_rollouts = 0
        self.sampled = dict[str, int]()
        """Tokens by what was played; the same again is read from what is kept."""

    @property
    def is_template(self) -> bool:
        """Whether the spec's system message is filled in from the row's columns."""
        return self._first_system is not None and any(mark in self._first_system for mark in _MARKS)

    def tasks(self, system: str) -> dict[str, Task]:
        """The training set's tasks under a system message, by id. Raises SpecError for a template that is none."""
        if system not in self._tasks_by_system:
            source = self._target.spec.data.train.model_dump() | {"system": self.as_system(system)}
            tasks = load_tasks(**source, declared=self._target.spec.tool_names)
            self._tasks_by_system[system] = {task.id: task for task in tasks}
        return self._tasks_by_system[system]

    def as_system(self, text: str) -> str:
        """A text as the spec's key takes it, which is a template and may be the name of one's file."""
        if self.is_template:
            return text
        raw = text.replace("endraw", "end raw") if any(mark in text for mark in _MARKS) else None
        return text.rstrip() if raw is None else f"{{% raw %}}{raw}{{% endraw %}}"

    def evaluate(self, batch: list[str], candidate: Texts, capture_traces: bool = False) -> Any:
        """Plays each task of a batch, greedily, with texts."""
        key = hash_json(candidate)
        # Once each: a batch is filled up with tasks that it has where the set is small.
        missing = [task for task in dict.fromkeys(batch) if self._kept.get(f"{key} {task}") is None]
        if missing:
            try:
                tasks = self.tasks(candidate[SYSTEM])
            except SpecError as fault:  # a rewritten template that is none
                for task in missing:
                    self._kept.keep(f"{key} {task}", [0.0, {"Feedback": f"The text is no template: {fault}"}, 0])
            else:
                self._wait(self._play([tasks[task] for task in missing], candidate, key))
        values = [self._kept.get(f"{key} {task}") for task in batch]
        self.num_rollouts += len(batch)
        self.sampled |= {f"{key} {task}": num for task, (_, _, num) in zip(batch, values, strict=True)}
        traces = [record for _, record, _ in values]
        return import_module("gepa").EvaluationBatch(
            batch, [float(score) for score, _, _ in values], traces if capture_traces else None
        )

    async def _play(self, tasks: Sequence[Task], texts: Texts, key: str) -> None:
        """Keeps each task once; what something outside the policy broke is played again. Raises RlfError."""
        done, broken = set[str](), ""

        def take(item: Scored) -> None:  # as soon as it is over: a kill behind it has nothing paid again
            if item.reward is not None and has_answered(item):
                done.add(task := item.trajectory.task.id)
                self._kept.keep(f"{key} {task}", [item.reward, in_words(item), item.trajectory.num_sampled])

        player: Any = self._player_of(self._harness.greedy)
        player = replace(player, tools=_Described(player.tools, texts))
        for number in range(_TRIES):
            left = [task for task in tasks if task.id not in done]
            rollouts = [evaluation_rollout(task, "prompt", number, self._target.spec.seed, 0) for task in left]
            for item in await collect(rollouts, player, self._harness.reward, step=0, on_scored=take):
                if item.trajectory.task.id not in done:
                    broken = item.trajectory.error or "; ".join(score.reason or "" for score in item.scores)
        if len(done) < len(tasks):
            raise RlfError(f"prompt: {len(tasks) - len(done)} tasks got no reward in {_TRIES} tries: {broken}")

    def make_reflective_dataset(
        self, candidate: Texts, eval_batch: Any, components_to_update: list[str]
    ) -> dict[str, list[dict[str, Any]]]:
        """What the rewriting model sees of a batch, for each text that it writes."""
        return {name: list(eval_batch.trajectories) for name in components_to_update}


def in_words(item: Scored) -> dict[str, str]:
    """A trajectory in words: what was asked, what was written and called, and how it was scored."""
    trajectory, lines = item.trajectory, list[str]()
    for turn in trajectory.turns:
        lines.append(turn.text[:_MAX_TEXT])
        lines += [
            f"-> {record.call.name}({json.dumps(dict(record.call.arguments))}): {record.result.outcome}: "
            f"{record.result.text[:_MAX_TEXT]}"
            for record in turn.calls
        ]
        lines += [f"-> {failure.message}" for failure in turn.failures]
    scores = [f"{score.term}: {score.value}{f' ({score.reason})' if score.reason else ''}" for score in item.scores]
    gold = trajectory.task.answer
    feedback = [f"reward {item.reward:g}", *scores, f"it ended: {trajectory.stop}"]
    feedback += [] if gold is None else [f"expected answer: {gold}"]
    asked = trajectory.task.messages[-1].content
    return {"Inputs": asked, "Generated Outputs": "\n".join(lines), "Feedback": "; ".join(feedback)}


class _Writer:
    """The model that rewrites texts."""

    def __init__(self, pool: EndpointPool, kept: _Kept, wait: Callable[[Coroutine[Any, Any, str]], str]) -> None:
        self._pool, self._kept, self._wait = pool, kept, wait
        self.meter, self._times = Meter(), dict[str, int]()
        self.num = 0
        self.failure: RlfError | None = None
        """Why it answers no more. gepa logs what it raises, and would ask on until the rollouts are used up."""

    def __call__(self, prompt: str | list[dict[str, Any]]) -> str:
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        asked = hash_json(messages)
        # The same question may come again, and its answer then be another one.
        self._times[asked] = times = self._times.get(asked, 0) + 1
        key, self.num = f"{asked} {times}", self.num + 1
        if (known := self._kept.get(key)) is None:
            known = self._wait(self._ask(messages))
            self._kept.keep(key, known)
        return str(known)

    async def _ask(self, messages: Sequence[Mapping[str, Any]]) -> str:
        if self.failure is not None:
            raise self.failure
        try:
            return (await self._pool.chat(messages, Caller(_REFLECTION_S, self.meter))).text
        except EndpointFailure as failure:
            text = f"prompt: the model that rewrites: {failure.outcome}: {failure.text.rstrip('.')}"
            self.failure = RlfError(f"{text}. The same command continues the search.")
            raise self.failure from failure


def check_writer(writer: EndpointSpec) -> None:
    """Raises RlfError where no search can begin: gepa is not installed, or the model that rewrites cannot be asked."""
    if importlib.util.find_spec("gepa") is None:
        raise RlfError("prompt: the package gepa is not installed. Write `pip install 'rlf[prompt]'`.")

    async def reach() -> None:
        await (await open_pool([writer])).close()

    asyncio.run(reach())


def search(
    files: Sequence[Path],
    overrides: Sequence[str],
    options: SearchOptions,
    *,
    endpoint: EndpointSpec | None,
    writer: EndpointSpec,
    file: Path,
    runs_folder: Path,
    notify: Callable[[str], None],
) -> PromptResult:
    """Searches, and writes a spec with the best texts.

    Args:
        endpoint: the model that plays; None: the spec's own.
        writer: the model that rewrites.
        file: what is written.
        notify: takes a line of progress.

    Raises:
        RlfError, SpecError: the spec is wrong, a model fails, or gepa is not installed.
    """
    check_writer(writer)
    model = None if endpoint else load_spec(list(files), list(overrides)).spec.model.path
    with open_target(model, files, overrides, runs_folder=runs_folder, endpoint=endpoint) as target:
        return asyncio.run(_search(target, options, writer, (files, file, runs_folder), notify))


async def _search(
    target: Target,
    options: SearchOptions,
    writer: EndpointSpec,
    places: tuple[Sequence[Path], Path, Path],
    notify: Callable[[str], None],
) -> PromptResult:
    files, file, runs_folder = places
    loop, spec = asyncio.get_running_loop(), target.spec

    def wait(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    plan = None if target.plan is None else target.plan.plan_hash
    key = hash_json([plan, target.name, writer.url, writer.model, options.num_tasks, "tokens"])[:12]
    kept, traffic = _Kept(runs_folder / f"prompt-{key}.jsonl"), Traffic()
    pool = EndpointPool([writer])
    try:
        async with _open_players(target, traffic) as (harness, player_of):
            adapter, write = Adapter(target, harness, player_of, kept, wait), _Writer(pool, kept, wait)
            first = _first_texts(target)
            names = sorted(adapter.tasks(first[SYSTEM]))
            random.Random(derive_seed(spec.seed, "prompt")).shuffle(names)
            shown, choosing = names[: options.num_tasks : 2], names[1 : options.num_tasks : 2]
            if not choosing:
                raise RlfError(f"data.train: has {len(names)} tasks; a search needs 2 at least.")
            most = spec.limits.max_usd or math.inf
            result = await asyncio.to_thread(
                import_module("gepa").optimize,
                seed_candidate=first,
                trainset=shown,
                valset=choosing,
                adapter=adapter,
                reflection_lm=write,
                max_metric_calls=options.num_rollouts,
                # Rewards have no common top, so that no batch is known to leave nothing to be gained.
                skip_perfect_score=False,
                stop_callbacks=[
                    lambda _: write.failure is not None or traffic.meter.cost_usd + write.meter.cost_usd >= most
                ],
                logger=SimpleNamespace(log=lambda message: notify(message.split("\n", 1)[0][:200])),
                seed=spec.seed % (1 << 32),
            )
        if write.failure is not None:
            raise write.failure
        best = {name: text for name, text in result.best_candidate.items() if text != first[name]}
        if best:
            _write_spec(target, adapter, best, files, file)
        return PromptResult(
            name=spec.name,
            target=target.name,
            num_texts=result.num_candidates,
            num_rollouts=adapter.num_rollouts,
            num_sampled=sum(adapter.sampled.values()),
            num_rewrites=write.num,
            before=float(result.val_aggregate_scores[0]),
            after=float(result.val_aggregate_scores[result.best_idx]),
            texts=best,
            file=file if best else None,
            cost_usd=traffic.meter.cost_usd + write.meter.cost_usd,
        )
    finally:
        await pool.close()
        kept.close()


def _first_texts(target: Target) -> Texts:
    """The texts of the spec: its system message, and the description of each tool that the model sees."""
    system = target.spec.data.train.system
    if system is not None and system.endswith(".jinja"):
        system = Path(system).read_text(encoding="utf-8")
    shown = {_TOOL + tool.name: tool.description for tool in target.spec.tools if not tool.hidden}
    return {SYSTEM: system or _START, **shown}


@asynccontextmanager
async def _open_players(
    target: Target, traffic: Traffic
) -> AsyncIterator[tuple[Harness, Callable[[Sampling], Player]]]:
    """The harness, entered, and what plays: the model behind a server, or the one of this machine."""
    if target.endpoint is not None:
        async with open_text_players(target, traffic, lambda level, text: None, {}) as found:
            yield found
        return
    from rlf.engines.engine import HostSettings

    spec = target.spec
    host, tokenizer = await asyncio.to_thread(target.load_host, HostSettings(num_slots=32, dtype=spec.model.dtype))
    harness = build_harness(spec, tokenizer, lambda level, text: None, traffic)
    async with harness.opened(), host:
        yield harness, partial(harness.setting, host)


def _write_spec(target: Target, adapter: Adapter, texts: Texts, files: Sequence[Path], file: Path) -> None:
    """A spec over the searched one, with other texts. Of what a command line changed it has nothing."""
    spec, values = target.spec, dict[str, Any]()
    written: dict[str, Any] = {"extends": [str(each.resolve()) for each in files]}
    if SYSTEM in texts:
        system = {"system": adapter.as_system(texts[SYSTEM])}
        written["data"] = {part: system for part in ("train", "eval") if getattr(spec.data, part) is not None}
    if texts.keys() - {SYSTEM}:
        values = spec.model_dump(mode="json", by_alias=True, exclude_unset=True, include={"tools"})
        if target.plan is not None:
            write_back(values, target.plan.interpolated)  # what came from the environment stays a reference
        for tool in values["tools"]:
            tool["description"] = texts.get(_TOOL + tool["name"], tool["description"])
        written["tools"] = values["tools"]
    file.write_text(dump_yaml(written), encoding="utf-8")
