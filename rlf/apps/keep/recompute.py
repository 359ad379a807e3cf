"""What of a run follows from what else it recorded: rewards, advantages, golds, its plan's hash."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from rlf.algo.estimator import AdvantageInput, Estimator, TermRewards
from rlf.apps.keep.chain import Collected, Place
from rlf.core.errors import RlfError
from rlf.core.redact import REDACTED
from rlf.engines.engine import Engine, recorded_engine
from rlf.lineage.blobs import read_blobs
from rlf.lineage.chain import SCORE, TRAJECTORY
from rlf.lineage.records import EVALUATION, SWEEP, TRAIN, Run
from rlf.lineage.rows import PayloadReader
from rlf.plan.compiler import hash_recorded
from rlf.spec.models import KlPlace, TrainSpec
from rlf.training.evaluation import mean_advantages

_SAME = 1e-9
"""Relative difference up to which two sums of the same numbers are equal."""
_CLOSE = 1e-4
"""The same for advantages, which were computed in float32 on another device, padded to another length."""
_OF_ROW = {name: at for at, name in enumerate(TRAJECTORY.columns)}
_OF_SCORE = {name: at for at, name in enumerate(SCORE.columns)}


def check_plan(run: Run) -> Iterator[str]:
    """Whether a run's hash and seed are those of its plan."""
    record = run.record
    if record.engine in (SWEEP, EVALUATION) or not {"spec", "files"} <= record.plan.keys():
        return
    if record.plan["spec"].get("seed") != record.seed:
        yield f"its seed is {record.seed}, its plan's is {record.plan['spec'].get('seed')}"
    # A secret that a file held is struck out of what is stored, and not of what was hashed.
    if REDACTED in json.dumps(record.plan):
        return
    try:
        found = hash_recorded(record.plan, recorded_engine(record).WITHOUT_EFFECT, Path(record.cwd or "/"))
    except (RlfError, LookupError, TypeError, AttributeError) as error:
        yield f"its plan cannot be read: {type(error).__name__}: {error}"
        return
    if found != record.plan_hash:
        yield f"its plan has the hash {found[:12]}, and it says {record.plan_hash[:12]}"


class Recomputation:
    """Looks at the trajectories of a run, step by step. Loads torch where there are advantages to be computed."""

    def __init__(self, connection: Connection, run: Run) -> None:
        self._connection = connection
        self._run = run
        self._answers: dict[str, Any] = {}
        """By a task's content."""
        self._right: set[tuple[str | None, str]] = set()
        """Contents with a gold that is theirs."""
        self._payloads = PayloadReader()

    def __call__(self, place: Place, collected: Sequence[Collected]) -> Iterator[str]:
        """Faults among the trajectories of a step or an evaluation."""
        self._read_answers(collected)
        for one in collected:
            yield from (f"trajectory {one.row[0]} ({one.row[2]}): {words}" for words in self._check_one(one))
        if place[0] == TRAIN and self._estimator is not None:
            yield from self._check_advantages(self._estimator, collected)

    def _read_answers(self, collected: Sequence[Collected]) -> None:
        names = {one.row[_OF_ROW["task_sha256"]] for one in collected} - self._answers.keys() - {None}
        for name, data in read_blobs(self._connection, names).items():
            self._answers[name] = json.loads(data)["answer"]

    def _check_one(self, one: Collected) -> Iterator[str]:
        row = one.row
        name = row[_OF_ROW["task_sha256"]]
        gold = row[_OF_ROW["gold"]]
        if (name, gold) not in self._right and name in self._answers and json.loads(gold) != self._answers[name]:
            yield f"its gold is {gold[:60]}, its task's {json.dumps(self._answers[name])[:60]}"
        else:
            self._right.add((name, gold))
        if one.payload is not None and one.scores:
            stored, (found, is_sum) = row[_OF_ROW["reward"]], _sum_scores(one.scores)
            is_same = stored == found
            if stored is not None and found is not None:
                is_same = math.isclose(stored, found, rel_tol=_SAME)
            # A sum over terms none of which has a value and a weight is 0 for some, and no reward for others.
            if not is_same and (stored is not None or is_sum):
                yield f"its reward is {stored}, its scores add up to {found}"

    @cached_property
    def _estimator(self) -> Estimator | None:
        """None where the advantages of the run do not follow from its rows."""
        train = self._train
        if train is None or train.observations_in_loss or train.algorithm.reads_turns:
            return None
        if train.algorithm.needs_critic or train.algorithm.needs_teacher:
            return None
        env = self._run.record.plan["spec"].get("env") or {}
        if train.algorithm.spans_batch and env.get("kind") == "several":  # of worlds apart, which rows do not name
            return None
        return None if train.kl.coef > 0 and train.kl.place is KlPlace.REWARD else train.algorithm

    @cached_property
    def _train(self) -> TrainSpec | None:
        try:
            return TrainSpec.model_validate(self._run.record.plan["spec"]["train"])
        except (LookupError, TypeError, ValueError):  # of a plan that this rlf has other keys for
            return None

    def _check_advantages(self, estimator: Estimator, collected: Sequence[Collected]) -> Iterator[str]:
        at = _OF_ROW["advantage"]
        used = [one for one in collected if one.row[at] is not None]
        if not used or any(one.payload is None or one.row[_OF_ROW["reward"]] is None for one in used):
            return
        if used[0].row[_OF_ROW["trajectory_id"]].startswith("demonstration/"):  # imitated, whatever its reward is
            return
        engine = recorded_engine(self._run.record)
        if engine.COUNTS_LEFT_OUT and len(used) < len(collected):
            return
        asked = self._make_input(engine, estimator, collected, used)
        if asked is None:
            return
        means = mean_advantages(estimator.advantages(asked).advantages_BT, asked.action_mask_BT)
        for one, found in zip(used, means, strict=True):
            if not math.isclose(found, one.row[at], rel_tol=_CLOSE, abs_tol=_CLOSE):
                words = f"its advantage is {one.row[at]:.6g}, its group's rewards give {found:.6g}"
                yield f"trajectory {one.row[0]} ({one.row[2]}): {words}"

    def _make_input(
        self, engine: Engine, estimator: Estimator, collected: Sequence[Collected], used: Sequence[Collected]
    ) -> AdvantageInput | None:
        import torch

        masks = [self._payloads.action_mask(one.payload or b"") for one in used]
        size = max(map(len, masks))
        mask_BT = torch.frombuffer(bytearray(b"".join(mask.ljust(size, b"\0") for mask in masks)), dtype=torch.bool)
        tasks = [one.row[_OF_ROW["task_id"]] for one in used]
        numbers = {task: number for number, task in enumerate(dict.fromkeys(tasks))}
        greedy_B = None
        if estimator.needs_greedy:
            greedy = {
                one.row[_OF_ROW["task_id"]]: one.row[_OF_ROW["reward"]]
                for one in collected
                if one.row[_OF_ROW["trajectory_id"]].endswith("/greedy")
            }
            if any(greedy.get(task) is None for task in tasks):
                return None
            greedy_B = torch.tensor([greedy[task] for task in tasks])
        rewards = [engine.trained_reward(one.row[_OF_ROW["reward"]]) for one in used]
        assert self._train is not None, "an estimator without its settings"
        return AdvantageInput(
            rewards_B=torch.tensor(rewards, dtype=torch.float32),
            group_B=torch.tensor([numbers[task] for task in tasks]),
            action_mask_BT=mask_BT.view(len(used), size),
            reward_clip=self._train.reward_clip,
            terms=_make_terms(used),
            greedy_B=greedy_B,
        )


def _make_terms(used: Sequence[Collected]) -> TermRewards | None:
    """As `rlf.training.batch` makes them."""
    import torch

    names = [[score[_OF_SCORE["term"]] for score in one.scores] for one in used]
    if not names[0] or any(each != names[0] for each in names):
        return None
    pairs = [[(score[_OF_SCORE["value"]], score[_OF_SCORE["weight"]]) for score in one.scores] for one in used]
    return TermRewards(
        torch.tensor([[0.0 if value is None else value * weight for value, weight in row] for row in pairs]),
        torch.tensor([[value is not None for value, _ in row] for row in pairs]),
        torch.tensor([max(abs(row[at][1]) for row in pairs) for at in range(len(names[0]))]),
    )


def _sum_scores(scores: Sequence[Sequence[Any]]) -> tuple[float | None, bool]:
    """The sum of weight times value, None where a value that counts is missing; and whether any value counts."""
    reward, counts = 0.0, False
    for score in scores:
        value, weight = score[_OF_SCORE["value"]], score[_OF_SCORE["weight"]]
        if value is None and weight:
            return None, counts
        if value is not None:
            reward += weight * value
            counts |= bool(weight)
    return (reward if math.isfinite(reward) else None), counts
