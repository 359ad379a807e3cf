"""Trajectories as right-padded tensors, their segments as rows, and the split into micro-batches by token budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from rlf.algo.estimator import AdvantageInput, TermRewards, TurnRewards
from rlf.algo.returns import zero_outside
from rlf.types.score import Scored
from rlf.types.trajectory import StopReason, Trajectory


@dataclass(frozen=True, slots=True)
class Batch:
    """B trajectories of at most T tokens, all of them scorable."""

    tokens_BT: torch.Tensor
    """int64; padding holds 0."""
    loss_mask_BT: torch.Tensor
    """bool: the action mask, and in the ablation also the observations."""
    rollout_logprobs_BT: torch.Tensor
    """float32: 0 where nothing was sampled."""
    lengths_B: torch.Tensor
    """int64."""
    rewards_B: torch.Tensor
    """float32."""
    group_B: torch.Tensor
    """int64: equal for rollouts of the same task."""
    stretches: Stretches | None = None
    """How the rows split into segments; None when each row is one."""
    turns: TurnRewards | None = None
    """The rewards turn by turn; None where no term gives any."""
    terms: TermRewards | None = None
    """The rewards term by term; None where nothing is known of them."""
    greedy_B: torch.Tensor | None = None
    """float32: the reward of the greedy rollout of each row's task; None where there are none."""
    truncated_B: torch.Tensor | None = None
    """bool: trajectories that ran out of tokens; None where nothing is known of it."""
    world_B: torch.Tensor | None = None
    """int64: equal for rows of one of several worlds; None where there is one."""
    observation_mask_BT: torch.Tensor | None = None
    """bool: results of tools, and never what was sampled; None where no loss is about them."""
    teacher_rows: TeacherRows | None = None
    """How a teacher reads the trajectories; None: as the policy does, or there is none."""

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device; lengths stay on the CPU, where the rows are planned."""
        values = {name: getattr(self, name) for name in _OF_THE_DEVICE}
        return replace(self, **{name: value.to(device) for name, value in values.items() if value is not None})

    def advantage_input(self, reward_clip: tuple[float, float], **of_models: Any) -> AdvantageInput:
        """The input of estimators, with what only models give: `kl_BT`, `kl_coef` and `values_BT`."""
        return AdvantageInput(
            rewards_B=self.rewards_B,
            group_B=self.group_B,
            action_mask_BT=self.loss_mask_BT,
            reward_clip=reward_clip,
            turns=self.turns,
            terms=self.terms,
            greedy_B=self.greedy_B,
            world_B=self.world_B,
            **of_models,
        )

    def without_truncated(self) -> Batch:
        """The batch whose truncated rows are in no loss; what is made of rewards is to be made before."""
        if self.truncated_B is None:
            return self
        kept_B1, seen_BT = ~self.truncated_B.unsqueeze(1), self.observation_mask_BT
        return replace(
            self,
            loss_mask_BT=self.loss_mask_BT & kept_B1,
            observation_mask_BT=None if seen_BT is None else seen_BT & kept_B1,
        )

    def by_stretch(self) -> Batch:
        """The batch that the model reads: a row for each segment, with its trajectory's reward and group."""
        if self.stretches is None:
            return self
        rows_S, seen_BT = torch.tensor(self.stretches.rows), self.observation_mask_BT
        return Batch(
            self.stretches.split(self.tokens_BT),
            self.stretches.split(self.loss_mask_BT),
            self.stretches.split(self.rollout_logprobs_BT),
            torch.tensor([end - start for start, end in self.stretches.bounds]),
            self.rewards_B[rows_S],
            self.group_B[rows_S],
            observation_mask_BT=None if seen_BT is None else self.stretches.split(seen_BT),
        )


_OF_THE_DEVICE = (
    *("tokens_BT", "loss_mask_BT", "rollout_logprobs_BT", "rewards_B", "group_B"),
    *("turns", "terms", "greedy_B", "truncated_B", "world_B", "observation_mask_BT", "teacher_rows"),
)
"""What the update computes with."""


@dataclass(frozen=True, slots=True)
class TeacherRows:
    """B trajectories behind prompts that show a teacher more than the policy knew: the tokens after them are equal."""

    batch: Batch
    offset_B: torch.Tensor
    """int64: by how many tokens each prompt is longer; negative where it is shorter."""
    is_taught_B: torch.Tensor
    """bool: false where there is nothing to show, or the prompt could not be written again."""

    def to(self, device: torch.device) -> TeacherRows:
        """The same on a device."""
        return TeacherRows(self.batch.to(device), self.offset_B.to(device), self.is_taught_B.to(device))

    def align(self, values_BT: torch.Tensor, width: int) -> torch.Tensor:
        """Values of these rows at the tokens of the policy's rows, [B, width]; no number in rows that are not taught.

        Only what the policy sampled is at a place of its own; elsewhere the values are any.
        """
        index_BT = torch.arange(width, device=values_BT.device) + self.offset_B.unsqueeze(1)
        aligned_BT = values_BT.gather(1, index_BT.clamp(0, values_BT.shape[1] - 1))
        return aligned_BT.masked_fill(~self.is_taught_B.unsqueeze(1), torch.nan)


def teacher_metrics(asked: AdvantageInput) -> dict[str, float]:
    """How far the policy is from its teacher, and of how many trajectories; empty where there is none."""
    if asked.teacher_logprobs_BT is None or asked.old_logprobs_BT is None:
        return {}
    taught_BT = asked.action_mask_BT & ~asked.teacher_logprobs_BT.isnan()
    far_BT = zero_outside(asked.old_logprobs_BT - asked.teacher_logprobs_BT, taught_BT)
    share = float(taught_BT.any(1).float().mean())
    return {"teacher/kl": float(far_BT.sum() / taught_BT.sum().clamp(min=1)), "teacher/taught": share}


@dataclass(frozen=True, slots=True)
class Stretches:
    """Where S segments lie in B rows: the tokens that the policy saw as one, without the forks between them."""

    rows: tuple[int, ...]
    """The row of each."""
    bounds: tuple[tuple[int, int], ...]
    """Its first token there, and one past its last."""

    def split(self, values_BT: torch.Tensor) -> torch.Tensor:
        """[B, T] as [S, T'], right-padded with zeros."""
        width = max(end - start for start, end in self.bounds)
        out_ST = values_BT.new_zeros((len(self.rows), width))
        for place, (row, (start, end)) in enumerate(zip(self.rows, self.bounds, strict=True)):
            out_ST[place, : end - start] = values_BT[row, start:end]
        return out_ST

    def join(self, values_ST: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """[S, T'] as [B, T], the other way."""
        out_BT = values_ST.new_zeros(shape)
        for place, (row, (start, end)) in enumerate(zip(self.rows, self.bounds, strict=True)):
            out_BT[row, start:end] = values_ST[place, : end - start]
        return out_BT


def make_batch(
    scored: Sequence[Scored],
    *,
    observations_in_loss: bool = False,
    marks_observations: bool = False,
    reads_turns: bool = False,
    greedy_by_task: Mapping[str, float] | None = None,
) -> Batch:
    """Tensors of trajectories that have a reward and at least one sampled token.

    Args:
        marks_observations: whether a loss is about the results of tools.
        reads_turns: whether turns are distinguished also where no term does.
        greedy_by_task: rewards of greedy rollouts by the task's id, one for each task here; None: there are none.
    """
    trajectories = [item.trajectory for item in scored]
    lengths = [len(t.tokens) for t in trajectories]
    shape = (len(scored), max(lengths))
    tokens_BT = torch.zeros(shape, dtype=torch.int64)
    loss_mask_BT = torch.zeros(shape, dtype=torch.bool)
    logprobs_BT = torch.zeros(shape)
    for row, (trajectory, length) in enumerate(zip(trajectories, lengths, strict=True)):
        tokens_BT[row, :length] = torch.tensor(trajectory.tokens)
        loss_mask_BT[row, :length] = torch.tensor(trajectory.action_mask)
        logprobs_BT[row, :length] = torch.tensor(trajectory.rollout_logprobs)
        if observations_in_loss:
            for start, end in trajectory.stretches:
                first = min((begin for begin, _ in trajectory.action_ranges if begin >= start), default=end)
                loss_mask_BT[row, first:end] = True
    groups = {task: index for index, task in enumerate(dict.fromkeys(_group(item) for item in scored))}
    return Batch(
        tokens_BT,
        loss_mask_BT,
        logprobs_BT,
        torch.tensor(lengths),
        torch.tensor([_reward(item) for item in scored], dtype=torch.float32),
        torch.tensor([groups[_group(item)] for item in scored]),
        _stretches(scored),
        _turns(scored, shape, is_needed=reads_turns),
        _terms(scored),
        None if greedy_by_task is None else torch.tensor([greedy_by_task[_group(item)] for item in scored]),
        torch.tensor([item.trajectory.stop is StopReason.LENGTH for item in scored]),
        _worlds(scored),
        _observations(scored, shape) if marks_observations else None,
    )


def _observations(scored: Sequence[Scored], shape: tuple[int, int]) -> torch.Tensor:
    """Where the results of a turn's calls stand, without turns of a prefix that is masked."""
    mask_BT = torch.zeros(shape, dtype=torch.bool)
    for row, item in enumerate(scored):
        for turn in item.trajectory.turns:
            if turn.calls and all(item.trajectory.action_mask[turn.start : turn.end]):
                mask_BT[row, turn.end : turn.observation_end] = True
    return mask_BT


def _worlds(scored: Sequence[Scored]) -> torch.Tensor | None:
    """The place of each trajectory's world among the names of several; None where there is one."""
    worlds = [item.trajectory.world for item in scored]
    names = [None if world is None else world.name for world in worlds]
    order = sorted({name for name in names if name is not None})
    return torch.tensor([order.index(name) if name else -1 for name in names]) if len(order) > 1 else None


def _terms(scored: Sequence[Scored]) -> TermRewards | None:
    """The part of each term in the rewards. Where a term is not asked or has no value, its weight counts nowhere."""
    names = [score.term for score in scored[0].scores]
    if not names or any([score.term for score in item.scores] != names for item in scored):
        return None
    return TermRewards(
        torch.tensor([[score.contribution for score in item.scores] for item in scored]),
        torch.tensor([[score.value is not None for score in item.scores] for item in scored]),
        torch.tensor([max(abs(item.scores[at].weight) for item in scored) for at in range(len(names))]),
    )


def _turns(scored: Sequence[Scored], shape: tuple[int, int], *, is_needed: bool) -> TurnRewards | None:
    """Scores of terms with `stage: turn`, which turn each token is of, and in which state each turn begins."""
    if not is_needed and not any(score.weight and score.turn_values for item in scored for score in item.scores):
        return None
    num_turns = [len(item.trajectory.turns) for item in scored]
    rewards_BK = torch.zeros(len(scored), max(num_turns))
    turn_BT = torch.zeros(shape, dtype=torch.int64)
    for row, item in enumerate(scored):
        rewards_BK[row, : num_turns[row]] = torch.tensor(item.turn_rewards)
        for number, turn in enumerate(item.trajectory.turns):
            turn_BT[row, turn.start : turn.observation_end] = number
    outcome_B = torch.tensor([item.outcome_reward for item in scored], dtype=torch.float32)
    state_BK, node_BK = _states(scored, rewards_BK.shape), _nodes(scored, rewards_BK.shape)
    return TurnRewards(outcome_B, rewards_BK, torch.tensor(num_turns), turn_BT, state_BK, node_BK)


def _nodes(scored: Sequence[Scored], shape: torch.Size) -> torch.Tensor | None:
    """A number for each turn, that of the trajectory that sampled it where it is of a prefix."""
    if not any(item.trajectory.num_prefix_turns for item in scored):
        return None
    by_id, numbers = {item.trajectory.id: item.trajectory for item in scored}, dict[tuple[str, int], int]()
    node_BK = torch.zeros(shape, dtype=torch.int64)
    for row, item in enumerate(scored):
        for place in range(len(item.trajectory.turns)):
            owner: Trajectory | None = item.trajectory
            name = item.trajectory.id
            # A prefix may begin with turns of a prefix.
            while owner is not None and place < owner.num_prefix_turns:
                name = owner.prefix_of
                owner = by_id.get(name)
            node_BK[row, place] = numbers.setdefault((name, place), len(numbers))
    return node_BK


def _states(scored: Sequence[Scored], shape: torch.Size) -> torch.Tensor:
    """A number for each state of a task that turns begin in: of its world, and of what the policy read last."""
    state_BK, numbers = torch.zeros(shape, dtype=torch.int64), dict[tuple[Any, ...], int]()
    for row, item in enumerate(scored):
        trajectory, end = item.trajectory, 0
        state = None if trajectory.world is None else trajectory.world.first_state
        for place, turn in enumerate(trajectory.turns):
            key = (_group(item), state, *trajectory.tokens[end : turn.start])
            state_BK[row, place] = numbers.setdefault(key, len(numbers))
            end = turn.end
            if turn.world is not None and turn.world.changes:
                state = turn.world.changes[-1].sha256
    return state_BK


def _stretches(scored: Sequence[Scored]) -> Stretches | None:
    """The segments of trajectories, except those that sampled nothing."""
    if not any(item.trajectory.forks for item in scored):
        return None
    found = [
        (row, bounds)
        for row, item in enumerate(scored)
        for bounds in item.trajectory.stretches
        if any(item.trajectory.action_mask[slice(*bounds)])
    ]
    return Stretches(tuple(row for row, _ in found), tuple(bounds for _, bounds in found))


def micro_batches(rows: torch.Tensor, lengths_B: torch.Tensor, max_tokens: int) -> Iterator[torch.Tensor]:
    """Splits row numbers so that each part, padded to its longest row, holds at most `max_tokens`; longest first.

    A single row longer than that is a part of its own.
    """
    order = rows[lengths_B[rows].argsort(descending=True, stable=True)]
    start = 0
    while start < len(order):
        count = max(1, max_tokens // int(lengths_B[order[start]]))
        yield order[start : start + count]
        start += count


def _group(scored: Scored) -> str:
    return scored.trajectory.task.id


def _reward(scored: Scored) -> float:
    assert scored.reward is not None, f"{scored.trajectory.id} has no reward"
    return scored.reward
