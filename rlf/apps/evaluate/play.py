"""Plays one evaluation to its end, mode by mode; rollouts that were played before stay as they are."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rlf.apps.evaluate.prepare import PlannedEvaluation
from rlf.core.errors import OutageError
from rlf.core.meter import COST
from rlf.core.redact import Redactor
from rlf.engines.engine import HostSettings
from rlf.reports.graded import pass_at_k, pass_hat_k
from rlf.rollout.rollout import Rollout
from rlf.runs.players import open_text_players
from rlf.training.counting import evaluation_rollout, find_cause
from rlf.training.evaluation import EvaluationMode, finish_mode, modes_of, play_mode
from rlf.training.harness import Harness, Traffic, build_harness
from rlf.training.outages import Broken, find_excess, last_error
from rlf.types import EvaluationFinished, EventSink, Notice, Scored, written
from rlf.types.events import GREEDY, SAMPLED, Interrupted
from rlf.types.policy import Host, Sampling

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlf.endpoints.spec import EndpointSpec
    from rlf.rollout.collect import Player

# The trajectories of an evaluation so far, line by line in its folder: a killed one continues from there.
#
# A line is written whole as soon as a trajectory is scored; a line that a kill has cut off is not read. The lineage
# gets all of a mode at once when it is over.

SILENT_S = 15.0
"""Time without a result after which a notice names the server that is waited for."""
_GIVE_UP = 16
"""Trajectories that break one after the other, the first ones, before the rest is not tried."""
_TASK = {"trajectory": {"task"}}
"""What the questions hold already."""


@dataclass(frozen=True, slots=True)
class SpoolEntry:
    """A trajectory that was played."""

    scored: Scored
    usage: Mapping[str, float]
    """What the model's server counted; empty for a model of this machine."""


@dataclass(frozen=True, slots=True)
class Spool:
    """The file."""

    path: Path
    redactor: Redactor

    def add(self, played: Sequence[SpoolEntry]) -> None:
        """Appends trajectories; together, so that a kill leaves all of them or finds them unfinished."""
        lines = [
            self.redactor.json({"scored": written.write(item.scored, without=_TASK), "usage": dict(item.usage)}) + "\n"
            for item in played
        ]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join([*lines, json.dumps({"end": len(lines)}), "\n"]))

    def read(self, rollouts: Sequence[Rollout]) -> dict[str, SpoolEntry]:
        """Which of these rollouts were played, by their ids."""
        by_id = {rollout.id: rollout for rollout in rollouts}
        found: dict[str, SpoolEntry] = {}
        for values in self._read_groups():
            with suppress(KeyError, TypeError, ValueError):  # of a line that was edited: it is played again
                rollout = by_id[values["scored"]["trajectory"]["id"]]
                values["scored"]["trajectory"]["task"] = {"id": rollout.task.id, "messages": []}
                scored = written.read(Scored, values["scored"])
                scored = replace(scored, trajectory=replace(scored.trajectory, task=rollout.task))
                found[rollout.id] = SpoolEntry(scored, values["usage"])
        return found

    def remove(self) -> None:
        """Deletes the file, and its folder where nothing else is in it."""
        self.path.unlink(missing_ok=True)
        if self.path.parent.is_dir() and not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()

    def _read_groups(self) -> Iterator[dict[str, Any]]:
        """The trajectories of every write that is whole."""
        if not self.path.is_file():
            return
        group: list[dict[str, Any]] = []
        for line in self.path.read_text(encoding="utf-8").split("\n"):  # a text may hold other ends of lines
            try:
                values = json.loads(line)
            except ValueError:  # cut off by a kill; what follows was written by another process
                group = []
                continue
            if not isinstance(values, dict) or "end" not in values:
                group.append(values)
                continue
            if values["end"] == len(group):
                yield from group
            group = []


@dataclass(frozen=True, slots=True)
class EvaluationProgress:
    """How far an evaluation is."""

    target: str
    mode: str
    num_done: int
    num_planned: int
    success: float | None
    """Mean over what is done and has a value."""
    num_failed: int
    """Trajectories that broke: they have no value."""
    left_s: float | None
    """Until the mode is over, by the pace of this process; None before it has one."""


@dataclass(slots=True)
class _Tally:
    """Counts of a mode while it is played."""

    target: str
    mode: str
    num_planned: int
    num_done: int = 0
    num_failed: int = 0
    last_error: str | None = None
    successes: list[float] = field(default_factory=list)
    num_before: int = 0
    started: float = field(default_factory=time.perf_counter)

    def add(self, scored: Scored) -> None:
        self.num_done += 1
        if find_cause(scored) is not None:
            self.num_failed, self.last_error = self.num_failed + 1, scored.trajectory.error
        if scored.reward is not None and scored.success is not None:
            self.successes.append(scored.success)

    def progress(self) -> EvaluationProgress:
        played = self.num_done - self.num_before
        passed_s = time.perf_counter() - self.started
        left_s = passed_s / played * (self.num_planned - self.num_done) if played else None
        success = fmean(self.successes) if self.successes else None
        return EvaluationProgress(
            self.target, self.mode, self.num_done, self.num_planned, success, self.num_failed, left_s
        )


PlayerOf = Callable[[Sampling], "Player"]
"""A player for the sampling of a mode."""


Loaded = tuple["Host", "PreTrainedTokenizerBase"]
"""A model of this machine, with its tokenizer."""


def load(prepared: PlannedEvaluation) -> Loaded | None:
    """The model that plays; None where it is behind a server. Raises RlfError where it does not load."""
    spec, target = prepared.plan.spec, prepared.target
    if target.endpoint is not None:
        return None
    planned = len(prepared.tasks) * spec.eval.num_samples
    per_step = spec.train.prompts_per_step * spec.rollout.num_generations
    settings = HostSettings(
        # As in training, where the make-up of batches decides the last bits.
        num_slots=min(spec.most_at_once, prepared.settings.batch or max(per_step, planned)),
        schedule=spec.rollout.schedule,
        may_wait=spec.rollout.may_wait,
        dtype=spec.model.dtype,
    )
    return target.load_host(settings)


async def play_modes(
    prepared: PlannedEvaluation,
    loaded: Loaded | None,
    *,
    over: Sequence[str],
    spool: Spool,
    traffic: Traffic,
    emit: EventSink,
    show: Callable[[EvaluationProgress], None],
) -> None:
    """Plays every unfinished mode and emits each result.

    Args:
        loaded: what `load` gives.
        over: modes that were played to their end before.
        spool: what was played before of the others, and where it goes on.
    """
    spec, usage = prepared.plan.spec, dict[str, dict[str, float]]()
    async with _open_players(prepared, loaded, traffic, emit, usage) as (harness, player_of):
        for mode in _list_modes(prepared, harness):
            if mode.name not in prepared.settings.modes or mode.name in over:
                continue
            step = prepared.settings.step
            planned = [
                evaluation_rollout(task, mode.name, at, spec.seed, step)
                for task in prepared.tasks
                for at in range(mode.num_samples)
            ]
            found = spool.read(planned)
            usage |= {id_: dict(item.usage) for id_, item in found.items()}
            playing = _Playing(prepared, harness, player_of(mode.sampling), mode, spool, usage, emit, show)
            emit(await playing.run(planned, found))


def _list_modes(prepared: PlannedEvaluation, harness: Harness) -> list[EvaluationMode]:
    spec, settings = prepared.plan.spec, prepared.settings
    if settings.groups is not None:
        return [EvaluationMode(SAMPLED, harness.training, spec.rollout.num_generations)]
    return modes_of(harness, spec.eval.model_copy(update={"greedy": GREEDY in settings.modes}))


@dataclass(frozen=True, slots=True)
class _Playing:
    """One mode under way."""

    prepared: PlannedEvaluation
    harness: Harness
    player: Player
    mode: EvaluationMode
    spool: Spool
    usage: dict[str, dict[str, float]]
    emit: EventSink
    show: Callable[[EvaluationProgress], None]

    async def run(self, planned: Sequence[Rollout], found: Mapping[str, SpoolEntry]) -> EvaluationFinished:
        """The mode's result. Rollouts that were played before keep their results. Raises OutageError."""
        tally = _Tally(self.prepared.target.name, self.mode.name, len(planned), num_before=len(found))
        for item in found.values():
            tally.add(item.scored)
        self.show(tally.progress())
        started, cost_usd = time.perf_counter(), self.harness.meter.cost_usd
        done = {id_: item.scored for id_, item in found.items()}
        left = [rollout for rollout in planned if rollout.id not in found]
        size = self.prepared.settings.batch or max(1, len(left))
        for first in range(0, len(left), size):
            batch = left[first : first + size]
            scored = await self._play_batch(batch, tally, self.harness.meter.cost_usd - cost_usd)
            done |= {item.trajectory.id: item for item in scored}
            if len(scored) < len(batch):  # what an evaluation may cost is spent
                break
        ordered = [done[rollout.id] for rollout in planned if rollout.id in done]
        self._check_enough(ordered)
        result = finish_mode(ordered, self.mode, step=self.prepared.settings.step, emit=self.emit)
        metrics = {**result.metrics, **self._further_metrics(ordered), "time/total_s": time.perf_counter() - started}
        return replace(result, metrics=metrics)

    def _check_enough(self, scored: Sequence[Scored]) -> None:
        """Raises OutageError; what broke is recorded then."""
        try:
            check_enough(scored)
        except OutageError:
            self.emit(
                Interrupted(self.prepared.settings.step, [item for item in scored if find_cause(item) is not None])
            )
            raise

    async def _play_batch(self, batch: Sequence[Rollout], tally: _Tally, spent_usd: float) -> list[Scored]:
        whole = self.prepared.is_logical  # only all of a batch together would be what they are again
        kept: list[SpoolEntry] = []

        def take(scored: Scored) -> None:
            tally.add(scored)
            self.show(tally.progress())
            cause = find_cause(scored)
            if cause is not None and cause.may_pass:  # it is played again where the evaluation continues
                return
            kept.append(SpoolEntry(scored, self.usage.get(scored.trajectory.id, {})))
            if not whole:
                self.spool.add(kept[-1:])

        max_usd, step = self.prepared.plan.spec.limits.max_usd_per_evaluation, self.prepared.settings.step
        playing = play_mode(
            self.player,
            self.harness,
            batch,
            self.mode.name,
            step=step,
            emit=self.emit,
            max_usd=None if max_usd is None else max_usd - spent_usd,
            on_scored=take,
        )
        endpoint = self.prepared.target.endpoint
        scored = await (playing if endpoint is None else self._watch(playing, tally, endpoint))
        if whole and len(kept) == len(batch):
            self.spool.add(kept)
        return scored

    async def _watch(
        self, play: Coroutine[Any, Any, list[Scored]], tally: _Tally, endpoint: EndpointSpec
    ) -> list[Scored]:
        """What is played with a server's model; says that it waits, and gives up where nothing at all is answered."""
        playing, num_done = asyncio.create_task(play), tally.num_done
        late = f"a request gets {endpoint.timeout_s:g} s (--timeout), and what is late is asked once more"
        try:
            while not (await asyncio.wait([playing], timeout=SILENT_S))[0]:
                if tally.num_done == num_done:
                    text = f"waiting for {endpoint.place}: no trajectory has ended for {SILENT_S:g} s; {late}"
                    self.emit(Notice("info", text, {"num_done": num_done}))
                num_done = tally.num_done
                if tally.num_failed >= _GIVE_UP and tally.num_failed == num_done:
                    raise OutageError(f"the first {num_done} trajectories have no value: {tally.last_error}; {late}")
            return playing.result()
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)

    def _further_metrics(self, scored: Sequence[Scored]) -> dict[str, float]:
        """Metrics that an evaluation in training has not: pass@k of fewer samples, pass^k, what a server counted."""
        metrics: dict[str, float] = {}
        num = self.mode.num_samples
        if num > 1:
            solved: Counter[str] = Counter()
            tries: Counter[str] = Counter()
            for item in scored:
                if item.reward is not None and item.success is not None:
                    tries[item.trajectory.task.id] += 1
                    solved[item.trajectory.task.id] += item.success >= 1.0
            complete = [(num, solved[task]) for task, tried in tries.items() if tried == num]
            for k in sorted({1 << power for power in range(num.bit_length()) if 1 << power < num} | {num}):
                if complete:
                    metrics[f"pass@{k}"] = fmean(pass_at_k(n, c, k) for n, c in complete)
                    metrics[f"pass^{k}"] = fmean(pass_hat_k(n, c, k) for n, c in complete)
        used = [self.usage[item.trajectory.id] for item in scored if item.trajectory.id in self.usage]
        for unit in ("prompt_tokens", "completion_tokens", COST):
            if used and any(unit in each for each in used):
                metrics[f"endpoint/{unit}"] = sum(each.get(unit, 0.0) for each in used)
        return metrics


@asynccontextmanager
async def _open_players(
    prepared: PlannedEvaluation,
    loaded: Loaded | None,
    traffic: Traffic,
    emit: EventSink,
    usage: dict[str, dict[str, float]],
) -> AsyncIterator[tuple[Harness, PlayerOf]]:
    """The harness, entered, and what plays: the model of this machine, or the one behind a server."""
    spec, target = prepared.plan.spec, prepared.target

    def notify(level: str, text: str) -> None:
        emit(Notice(level, text, {}))

    if loaded is None:
        async with open_text_players(target, traffic, notify, usage, takes_agents=True) as (harness, player_of):
            agents = harness.agents
            yield harness, player_of if agents is None else lambda sampling: agents.forwarding(player_of(sampling))
        return
    host, tokenizer = loaded
    harness = build_harness(spec, tokenizer, notify, traffic)
    async with harness.opened(), host:
        yield harness, lambda sampling: harness.player(host, sampling)


def check_enough(scored: Sequence[Scored]) -> None:
    """Raises OutageError where what broke may pass and takes more than half of an evaluation that waits for nothing."""
    causes = [(find_cause(item), item.trajectory.task.id) for item in scored]
    passing = [(cause, task) for cause, task in causes if cause is not None and cause.may_pass]
    name = find_excess([Broken(cause.name, task) for cause, task in passing], len(scored), ())
    if name is None:
        return
    found = [cause for cause, _ in passing if cause.name == name]
    raise OutageError(
        f"{len(passing)} of {len(scored)} trajectories have no value, too many for a result; {name} broke {len(found)} "
        f"of them. {last_error(found[0])}. When it answers, the same command plays those again"
    )
