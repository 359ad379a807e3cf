"""Whether a trajectory counts, and what broke one that does not."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from rlf.core.identity import derive_seed
from rlf.rollout.rollout import Rollout, world_name
from rlf.spec.models import FilterSpec
from rlf.types.score import Score, Scored, ScoreState
from rlf.types.task import Task
from rlf.types.trajectory import SAMPLER, MissingRewardCause, StopReason, Trajectory

# Which rollouts a step and an evaluation make, with which ids and seeds.
#
# All of them follow from the run's seed and a rollout's place, so that every engine samples the same tasks in the same
# order, and a resumed run continues with those that an uninterrupted one would have made.

_EVALUATION = "eval/"
"""The ids of an evaluation's rollouts begin with it."""


def draw_tasks(tasks: Sequence[Task], seed: int, first: int, count: int) -> Iterator[tuple[int, Task]]:
    """The tasks at positions `first` to `first + count` of a run, each with its position.

    Each pass over the training set has an order of its own. A task of a later pass has an id of its own, since its
    rollouts are another group.
    """
    order, ordered = list[int](), -1
    for position in range(first, first + count):
        number, index = divmod(position, len(tasks))
        if number != ordered:
            order, ordered = order_of_pass(seed, number, len(tasks)), number
        task = tasks[order[index]]
        yield position, replace(task, id=f"{task.id}#{number}") if number else task


def order_of_pass(seed: int, number: int, num_tasks: int) -> list[int]:
    """The order in which pass `number` over the training set, counted from 0, takes its tasks."""
    import torch

    generator = torch.Generator().manual_seed(derive_seed(seed, "order", number))
    order: list[int] = torch.randperm(num_tasks, generator=generator).tolist()
    return order


def training_rollout(task: Task, position: int, sample: int, seed: int, num_tries: int = 0) -> Rollout:
    """One rollout of training; a further try, after one that broke, has a seed of its own."""
    tried = (num_tries,) if num_tries else ()
    id_ = "/".join(map(str, ("train", position, sample, *tried)))
    return Rollout(id_, task, sample, derive_seed(seed, "rollout", position, sample, *tried))


def next_try(rollout: Rollout, num_tries: int) -> Rollout:
    """The rollout of training again, after tries that something outside the policy broke."""
    return replace(rollout, id=f"{rollout.id}/{num_tries}", seed=derive_seed(rollout.seed, "try", num_tries))


def greedy_rollouts(kept: Sequence[Scored], seed: int, num_generations: int) -> list[Rollout]:
    """One greedy rollout of each task that has a trajectory, for estimators that need its reward."""
    firsts = {item.trajectory.task.id: item.trajectory for item in reversed(kept)}
    return [
        Rollout(f"{first.id.rpartition('/')[0]}/greedy", first.task, num_generations, derive_seed(seed, first.id))
        for first in firsts.values()
    ]


def evaluation_rollout(task: Task, mode: str, sample: int, seed: int, step: int | None) -> Rollout:
    """One rollout of an evaluation. Its seed leaves the step out, so that evaluations pair question by question.

    Args:
        step: updates before it; None where the engine does not know.
    """
    place = "" if step is None else f"{step}/"
    return Rollout(
        f"{_EVALUATION}{mode}/{place}{task.id}/{sample}", task, sample, derive_seed(seed, "eval", mode, task.id, sample)
    )


def mode_of(evaluation_id: str) -> str:
    """The mode of an evaluation's rollout."""
    return evaluation_id.split("/", 2)[1]


def term_cause(score: Score) -> MissingRewardCause:
    """A term that has no value."""
    gone = score.state is ScoreState.GONE
    return MissingRewardCause(term_name(score.term), score.reason, score.state.may_pass, gone)


def counts(scored: Scored) -> bool:
    """Whether a trajectory can be learnt from: it has a reward and the policy sampled something."""
    return scored.reward is not None and True in scored.trajectory.action_mask


def has_answered(scored: Scored) -> bool:
    """Whether the policy played the trajectory; one of a model behind a server has turns, no tokens."""
    return counts(scored) or (scored.reward is not None and not scored.trajectory.tokens)


def choose_tries(scored: Sequence[Scored]) -> list[Scored]:
    """One trajectory of each rollout of a step: of several tries one that has a reward, where there is one."""
    chosen: dict[tuple[str, int], Scored] = {}
    for item in scored:
        place = item.trajectory.task.id, item.trajectory.sample_index
        if place not in chosen or (chosen[place].reward is None and item.reward is not None):
            chosen[place] = item
    return list(chosen.values())


def find_cause(scored: Scored) -> MissingRewardCause | None:
    """What broke a trajectory; None when it has a reward, and in an evaluation a success."""
    if scored.reward is not None:
        return _missing_success(scored) if scored.trajectory.id.startswith(_EVALUATION) else None
    trajectory = scored.trajectory
    if trajectory.stop is not StopReason.INFRA_FAILURE:
        # The term without whose value there is no reward, one that may have it another time before others.
        missing = sorted(
            (score for score in scored.scores if score.value is None and score.weight),
            key=lambda score: not score.state.may_pass,
        )
        if not missing:  # it was not scored, or the sum is not a finite number
            return None
        return term_cause(missing[0])
    found = trajectory.broken or MissingRewardCause(SAMPLER, "")
    if trajectory.world is not None and trajectory.world.failed is not None:  # whose calls are tools' too
        return replace(found, name=world_name(trajectory.world))
    return found


def _missing_success(scored: Scored) -> MissingRewardCause | None:
    """The success term where it should have a value and has none: a reward without it says nothing of success."""
    first = scored.scores[0] if scored.scores and scored.success is None else None
    if first is not None and first.value is not None:  # `success:` names another term
        first = next((score for score in scored.scores if score.value is None), None)
    if first is None or first.state is ScoreState.GATED:
        return None
    return term_cause(first)


def term_name(term: str) -> str:
    """The name of a reward term among causes."""
    return f"reward term {term!r}"


def broken_trajectory(rollout: Rollout, prompt: Sequence[int], error: str) -> Scored:
    """The record of a rollout that could not be played: nothing is sampled, and it has no reward."""
    trajectory = Trajectory(
        id=rollout.id,
        task=rollout.task,
        sample_index=rollout.sample_index,
        tokens=list(prompt),
        action_mask=[False] * len(prompt),
        rollout_logprobs=[0.0] * len(prompt),
        turns=(),
        stop=StopReason.INFRA_FAILURE,
        answer=None,
        broken=MissingRewardCause(SAMPLER, error),
    )
    return Scored(trajectory, scores=(), reward=None, success=None)


# Dynamic filtering: which groups stay in a step. Those whose rewards are equal teach nothing.


def is_kept(rewards: Sequence[float], filtering: FilterSpec | None) -> bool:
    """Whether a group's rewards differ, or their mean lies strictly inside the bounds; without rewards neither holds.

    DAPO (arXiv:2503.14476), equation 11, which counts right answers and so drops groups that all or none solved: with
    any two rewards for right and wrong those are the groups whose rewards are equal. With bounds it mirrors OpenRLHF
    `SamplesGenerator._generate_vllm` with `dynamic_filtering_range`: the *mean* decides, so a group that scored 0.5
    throughout is kept although its advantages are 0. A group with a NaN is dropped.
    """
    if filtering is None:
        return True
    if not rewards or any(map(math.isnan, rewards)):
        return False
    if filtering.bounds is None:  # up to what rounding leaves of equal sums
        return not math.isclose(min(rewards), max(rewards), abs_tol=1e-12)
    low, high = filtering.bounds
    return low < sum(rewards) / len(rewards) < high


def keep_groups(scored: Sequence[Scored], filtering: FilterSpec | None) -> list[Scored]:
    """The trajectories of the groups that are kept, those that do not count included."""
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    for item in scored:
        if counts(item) and item.reward is not None:
            rewards[item.trajectory.task.id].append(item.reward)
    return [item for item in scored if is_kept(rewards[item.trajectory.task.id], filtering)]


# Which tasks a run draws: in passes over all of them, or from the pools in which groups teach.
#
# A sampler is a pure function of what it has drawn and seen, which is its state, in values of JSON: a checkpoint holds
# it, and a resume draws what an uninterrupted run would have drawn. Which groups are replaced by others is
# `train.dynamic_filtering`'s to say; a sampler sees these too.

State = Mapping[str, Any]
"""What a sampler has drawn and seen, in values of JSON; empty before the first step."""
Drawn = list[tuple[int, Task]]
"""Tasks, each with its position in the run."""


class Sampler(Protocol):
    """Draws the tasks of steps."""

    def draw(self, state: State, cursor: int, count: int) -> tuple[Drawn, State]:
        """The next tasks, and the state after them."""

    def note(self, state: State, scored: Sequence[Scored]) -> State:
        """The state after groups were played."""

    def metrics(self, state: State, scored: Sequence[Scored]) -> dict[str, float]:
        """Of the groups of a step, where they come from."""


class Passes:
    """Each pass over the tasks has an order of its own."""

    def __init__(self, tasks: Sequence[Task], seed: int) -> None:
        self._tasks, self._seed = tasks, seed

    def draw(self, state: State, cursor: int, count: int) -> tuple[Drawn, State]:
        """Those at the next positions."""
        return list(draw_tasks(self._tasks, self._seed, cursor, count)), state

    def note(self, state: State, scored: Sequence[Scored]) -> State:
        """Nothing is counted."""
        return state

    def metrics(self, state: State, scored: Sequence[Scored]) -> dict[str, float]:
        """None."""
        return {}
