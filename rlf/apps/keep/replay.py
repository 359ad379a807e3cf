"""Recorded trajectories again: played from their tokens, scored by rules, and read by the model that sampled them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlf.core.errors import RlfError, first_line
from rlf.engines.saved_model import load_whole
from rlf.lineage.records import StoredTrajectory
from rlf.rewards.function import RewardFunction
from rlf.rewards.term import RewardContext
from rlf.rollout.rollout import Rollout
from rlf.rollout.scripted import end_sample
from rlf.tools.execution.executor import Executor
from rlf.tools.execution.tape import AnsweredCall, Tape, arguments_text
from rlf.training.harness import Traffic, build_harness
from rlf.types import Outcome, Trajectory
from rlf.types.policy import Sample, SampleRequest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlf.spec.models import RunSpec

_TOLERANCE = 1e-9


class _Recorded:
    """A policy that samples what was sampled before, turn by turn."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, by_id: Mapping[str, Trajectory]) -> None:
        self._tokenizer = tokenizer
        self._by_id = by_id

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Holds nothing."""

    async def sample(self, request: SampleRequest) -> Sample:
        """The recorded tokens behind the context. Raises RlfError where that is another one than was recorded."""
        trajectory, size = self._by_id[request.trajectory_id], len(request.tokens)
        if list(request.tokens) != list(trajectory.tokens[:size]):
            raise RlfError("its context is not the recorded one")
        turn = next((turn for turn in trajectory.turns if turn.start <= size < turn.end), None)
        if turn is None:
            raise RlfError(f"a turn begins at token {size}, where none was recorded")
        tokens = list(trajectory.tokens[size : turn.end])
        num, finish = end_sample(self._tokenizer, tokens, request)
        return Sample(tokens[:num], list(trajectory.rollout_logprobs[size : size + num]), finish)

    def release(self, trajectory_id: str) -> None:
        """Holds nothing."""


def _ignore(level: str, text: str) -> None:
    """Takes notices that are of no interest here."""


async def replay_all(
    spec: RunSpec, tokenizer: PreTrainedTokenizerBase, stored: Sequence[StoredTrajectory]
) -> list[str]:
    """Trajectories that come out otherwise when their tokens are sampled again and their tools answer as recorded.

    Raises:
        RlfError: such trajectories cannot be replayed.
    """
    recorded = [one.scored.trajectory for one in stored if one.scored.trajectory.scorable]
    if any(each.forks or each.num_prefix_turns for each in recorded):
        raise RlfError("contexts that begin again in the middle are not replayed")
    calls = (
        (AnsweredCall(each.id, made.call.name, arguments_text(made.call.arguments)), made.result)
        for each in recorded
        for made in each.calls
        if made.result.outcome is not Outcome.LIMIT_REACHED
    )
    harness = build_harness(spec, tokenizer, _ignore, Traffic(replay=Tape(calls)))
    setting = harness.setting(_Recorded(tokenizer, {each.id: each for each in recorded}), harness.greedy)
    faults = []
    async with harness.tools:
        for each in recorded:
            try:
                played = await setting.play(Rollout(each.id, each.task, each.sample_index, seed=0))
            except RlfError as error:
                faults.append(f"{each.id}: {error}")
                continue
            differs = _find_difference(each, played)
            if differs is not None:
                faults.append(f"{each.id}: its {differs} comes out otherwise")
    return faults


def _find_difference(recorded: Trajectory, played: Trajectory) -> str | None:
    pairs = {
        "stop": (recorded.stop, played.stop),
        "answer": (recorded.answer, played.answer),
        "tokens": (list(recorded.tokens), list(played.tokens)),
        "action mask": (list(map(bool, recorded.action_mask)), list(played.action_mask)),
        "calls": ([made.call for made in recorded.calls], [made.call for made in played.calls]),
    }
    return next((name for name, (one, other) in pairs.items() if one != other), None)


async def score_again(spec: RunSpec, stored: Sequence[StoredTrajectory], step: int) -> list[str]:
    """Trajectories whose reward or success the rules of a spec give otherwise."""
    faults = []
    async with (
        Executor((), seed=spec.seed) as executor,
        RewardFunction(
            spec.rewards, RewardContext(executor.for_rewards, spec.seed, notify=_ignore), spec.success
        ) as function,
    ):
        scored = await function.score_all([one.scored.trajectory for one in stored], step=step)
        for one, own in zip(stored, function.settle(scored, step=step), strict=True):
            for name in ("reward", "success"):
                known, found = getattr(one.scored, name), getattr(own, name)
                if known != found and (None in (known, found) or abs(known - found) > _TOLERANCE):
                    faults.append(f"{one.summary.trajectory_id}: its {name} is {known}, the rules give {found}")
    return faults


def find_disagreeing(
    folder: Path, stored: Sequence[StoredTrajectory], until: float, least: float
) -> tuple[int, list[str]]:
    """Reads greedy answers with the model of a folder, one after the other until a moment of the monotonic clock.

    Returns how many were read, and those of which it has less than a share of the sampled tokens as its likeliest.
    """
    import torch
    from transformers import AutoModelForCausalLM

    try:
        model = load_whole(AutoModelForCausalLM, folder, dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise RlfError(f"{folder}: does not load as a causal language model: {first_line(error)}") from error
    num, wrong = 0, []
    for one in stored:
        trajectory = one.scored.trajectory
        if trajectory.images or trajectory.forks:
            raise RlfError("contexts with images, or that begin again, are not read")
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([list(trajectory.tokens)]), use_cache=False).logits[0]
        likeliest = logits[:-1].argmax(-1).tolist()
        pairs = zip(likeliest, trajectory.tokens[1:], trajectory.action_mask[1:], strict=True)
        agrees = [token == own for own, token, sampled in pairs if sampled]
        num += 1
        if sum(agrees) < least * len(agrees):
            wrong.append(f"{trajectory.id}: {sum(agrees)} of {len(agrees)} tokens are its likeliest")
        if time.monotonic() > until:
            break
    return num, wrong
