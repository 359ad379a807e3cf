"""Branches of a trajectory: its first turns are kept, and the model of its run plays from there, several times.

They are kept as an evaluation of their own, a child of the run.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rlf.chat.encoding import encode_template
from rlf.chat.format import ChatFormat
from rlf.core.errors import RlfError
from rlf.core.identity import derive_seed
from rlf.core.plain_json import Jsonable
from rlf.engines.engine import HostSettings
from rlf.lineage.reader import Reader
from rlf.lineage.records import BRANCH, BRANCH_SECTION, Run, StoredTrajectory
from rlf.lineage.values import num_before
from rlf.reports.statistics import Interval, wilson_interval
from rlf.rollout.collect import collect
from rlf.rollout.rollout import Prefix, Rollout
from rlf.runs.changes import find_changes
from rlf.runs.exports import trained_run
from rlf.runs.place import Places, open_reader
from rlf.runs.players import save_trajectories
from rlf.runs.targets import Target, open_target
from rlf.training.harness import build_harness
from rlf.types import Scored, Trajectory
from rlf.types.policy import Finish, Policy, Sample, SampleRequest

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """Where branches begin."""

    run: str
    phase: str
    step: int
    k: int
    turn: int
    """Turns that are kept; 0 keeps only the prompt."""
    observation: str | None = None
    """What a call of the last kept turn returns instead; None: what it did return."""
    call: int = 0
    """Which of that turn's calls."""
    sampled: str | None = None
    """The text of the next turn, in place of what the model samples; None: it samples."""


@dataclass(frozen=True, slots=True)
class Branches(Jsonable):
    """Results of playing a trajectory again from one of its turns."""

    run_id: str
    """The evaluation that has them."""
    of: BranchPoint
    target: str
    """The model that played: `RUN@STEP`."""
    num_played: int
    num_right: int
    num_unscorable: int
    interval: Interval | None
    """95 % of the share of right ones; None where none could be scored."""
    was_right: bool | None
    """Whether the trajectory itself was; None where it could not be scored."""


def play_branches(
    point: BranchPoint, num_samples: int, *, at: str | None = None, runs_folder: Path, command: Sequence[str]
) -> Branches:
    """Plays a trajectory's continuations and records them.

    Args:
        point: where they begin; its run may be a beginning of an id.
        at: the step of the checkpoint whose model plays; None: the newest.

    Raises:
        RlfError: there is no such trajectory, turn or model, or a result that was edited has a state behind it.
    """
    run_id, stored = find_trajectory(point, runs_folder)
    trajectory, most = stored.scored.trajectory, len(stored.scored.trajectory.turns) - 1
    if point.turn > most:
        raise RlfError(f"--turn: got {point.turn}; the trajectory has {most + 1} turns; 0 to {most} can be kept.")
    if point.observation is not None and (not point.turn or not trajectory.turns[point.turn - 1].calls):
        raise RlfError("--observation: the last turn that is kept made no call. Name a turn with one.")
    points = [replace(point, run=run_id)]
    (found,) = play_points(
        run_id, lambda chat: points, stored, num_samples, at=at, runs_folder=runs_folder, command=command
    )
    return found


def find_trained_run(reader: Reader, name: str) -> Run:
    """The run of a name, `latest` that of those that trained. Raises RlfError where there is none."""
    return trained_run(reader, name) if num_before(name) is not None else reader.get_run(name)


def find_trajectory(point: BranchPoint, runs_folder: Path) -> tuple[str, StoredTrajectory]:
    """A trajectory with the whole id of its run. Raises RlfError where there is none, or an agent has made it."""
    with open_reader(runs_folder) as reader:
        record = find_trained_run(reader, point.run).record
        run_id = record.id
        if record.plan.get("spec", {}).get("rollout", {}).get("agent"):
            text = "an agent made its trajectories, which cannot be played again from one of their turns"
            raise RlfError(f"run {run_id}: {text}. `rlf why {run_id}` explains the run, `rlf trace` shows one.")
        return run_id, reader.trajectory(run_id, k=point.k, step=point.step, phase=point.phase)


class Forced:
    """A policy that says in one turn of some trajectories what it is given; all else is sampled by another one."""

    def __init__(self, policy: Policy, tokens: Mapping[str, tuple[int, Sequence[int]]]) -> None:
        """Args: tokens: by trajectory, the number of the turn, among those that it samples, and what it says."""
        self._policy = policy
        self._tokens = tokens
        self._turns: Counter[str] = Counter()

    def open(self, trajectory_ids: Sequence[str]) -> None:
        self._policy.open(trajectory_ids)

    async def sample(self, request: SampleRequest) -> Sample:
        id_ = request.trajectory_id
        turn, tokens = self._tokens.get(id_, (-2, ()))
        at, self._turns[id_] = self._turns[id_], self._turns[id_] + 1
        if at == turn:
            return Sample(list(tokens), [0.0] * len(tokens), Finish.STOP)
        # What was given was never in the other policy's context.
        return await self._policy.sample(replace(request, fresh=request.fresh or at == turn + 1))

    def release(self, trajectory_id: str) -> None:
        self._policy.release(trajectory_id)


def play_points(
    run_id: str,
    choose: Callable[[ChatFormat], Sequence[BranchPoint]],
    stored: StoredTrajectory,
    num_samples: int,
    *,
    at: str | None,
    runs_folder: Path,
    command: Sequence[str],
) -> list[Branches]:
    """Plays the continuations of several points of one trajectory, and records those of each.

    Args:
        choose: the points, by the format in which the model writes.

    Raises:
        RlfError: there is no such model, or a result that was edited has a state behind it.
    """
    name = run_id if at is None else f"{run_id}@{at}"
    with open_target(name, runs_folder=runs_folder, needs_data=False) as target:
        assert target.record is not None, f"{name} is of no run"
        with open_reader(runs_folder) as reader:
            places = Places.of(target.record, reader.store)
            changes = find_changes(reader, target.record, target.plan, places, at_step=stored.summary.step)
        for change in changes:
            if change.role in ("code", "source"):
                logger.warning("%s: changed since the run; what is played uses it as it is now", change.words)
        played = asyncio.run(_play_rollouts(target, stored.scored.trajectory, choose, num_samples))
        return [_record(point, scored, stored, target, runs_folder, command) for point, scored in played]


def _record(
    point: BranchPoint,
    played: list[Scored],
    stored: StoredTrajectory,
    target: Target,
    runs_folder: Path,
    command: Sequence[str],
) -> Branches:
    saved = save_trajectories(played, BRANCH, target, runs_folder, command, {BRANCH_SECTION: asdict(point)})
    right = [one.success >= 1.0 for one in played if one.reward is not None and one.success is not None]
    success = stored.summary.success
    return Branches(
        run_id=saved,
        of=point,
        target=target.name,
        num_played=len(played),
        num_right=sum(right),
        num_unscorable=len(played) - len(right),
        interval=wilson_interval(sum(right), len(right)) if right else None,
        was_right=None if stored.summary.reward is None or success is None else success >= 1.0,
    )


async def _play_rollouts(
    target: Target, trajectory: Trajectory, choose: Callable[[ChatFormat], Sequence[BranchPoint]], num_samples: int
) -> list[tuple[BranchPoint, list[Scored]]]:
    """The continuations of each point, one point after the other."""
    spec = target.spec
    host, tokenizer = await asyncio.to_thread(
        target.load_host, HostSettings(num_slots=num_samples, dtype=spec.model.dtype)
    )
    # What tools and terms report while they play again was reported before.
    harness = build_harness(spec, tokenizer, lambda level, text: None)
    points, found = choose(harness.chat), list[tuple[BranchPoint, list[Scored]]]()
    if spec.env is not None and any(point.observation is not None for point in points):
        raise RlfError("--observation: the run has a world, whose state the result depends on. Remove the option.")
    async with harness.opened(), host:
        for point in points:
            begun = trajectory if point.observation is None else _edit(trajectory, point, harness.chat)
            prefix = Prefix(begun, point.turn, replays_calls=point.observation is None)
            rollouts = [
                Rollout(f"branch/{number}", begun.task, number, derive_seed(spec.seed, "branch", number), prefix)
                for number in range(num_samples)
            ]
            policy: Policy = host
            if point.sampled is not None:
                tokens = encode_template(tokenizer, point.sampled)
                policy = Forced(host, dict.fromkeys((each.id for each in rollouts), (0, tokens)))
            player = harness.setting(policy, harness.training)
            found.append((point, await collect(rollouts, player, harness.reward, step=point.step)))
    return found


def _edit(trajectory: Trajectory, point: BranchPoint, chat: ChatFormat) -> Trajectory:
    """A trajectory whose last kept call returned another text."""
    assert point.observation is not None, "nothing is edited"
    last = trajectory.turns[point.turn - 1]
    edited = last.calls[point.call]
    edited = replace(edited, result=replace(edited.result, text=point.observation, images=()))
    calls = (*last.calls[: point.call], edited, *last.calls[point.call + 1 :])
    sampled = trajectory.tokens[: last.end]
    closed = bool(sampled) and sampled[-1] in chat.stop_token_ids
    texts = [record.result.text for record in calls]
    fed = chat.after(trajectory.tokens[: last.start]).observation(texts, closed=closed, turn=last.text)
    turn = replace(last, calls=calls, observation_end=last.end + len(fed))
    return replace(
        trajectory,
        tokens=[*sampled, *fed],
        action_mask=[*trajectory.action_mask[: last.end], *([False] * len(fed))],
        rollout_logprobs=[*trajectory.rollout_logprobs[: last.end], *([0.0] * len(fed))],
        turns=(*trajectory.turns[: point.turn - 1], turn, *trajectory.turns[point.turn :]),
    )
