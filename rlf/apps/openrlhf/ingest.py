"""Reads the agents' spool and OpenRLHF's output as they grow, and makes the events of a run from them.

A step is reported once OpenRLHF says that it is over and every trajectory of it is in the spool. On a disk that is seen
from here that is so by then, for each was on disk before OpenRLHF had it; copies that come over HTTP may be late.
Everything follows from the files alone, so that a driver that died is caught up with by reading them again; the lineage
takes a step or an evaluation that it has already in place of the old one. Files of steps that it has are removed.
"""

from __future__ import annotations

import json
import math
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rlf.algo.estimator import AdvantageInput
from rlf.apps.openrlhf.dataset import Purpose, read_label
from rlf.apps.openrlhf.job import (
    Job,
    JobAttempt,
    best_checkpoint,
    checkpoint_hash,
    kept_folders,
    mark_best,
    step_of,
    whole_checkpoints,
)
from rlf.apps.openrlhf.log import JobLogLine, LogReader, parse_line
from rlf.apps.openrlhf.settings import openrlhf_settings
from rlf.apps.openrlhf.shared import Group, filler, round_reward
from rlf.apps.openrlhf.spool import SpoolReader
from rlf.apps.openrlhf.spool_pool import FilesOpened, Record, SpoolPool
from rlf.core.callables import note_opened
from rlf.spec.models import KlPlace, RunSpec, TrainSpec
from rlf.training.counting import counts, is_kept
from rlf.training.evaluation import (
    evaluation_metrics,
    find_missing,
    is_best,
    least_success,
    recompute_advantages,
    step_metrics,
)
from rlf.types.events import CheckpointSaved, EvaluationFinished, EventSink, Interrupted, Notice, RunEvent, StepFinished
from rlf.types.score import Scored

# The advantages that a step's trajectories had, computed as OpenRLHF computes them from the rewards it got.


def sampled_advantages(records: Sequence[Record], train: TrainSpec) -> list[float | None]:
    """Mean advantage over each trajectory's sampled tokens; None where it is left out of the loss or was played again.

    All None where advantages need what OpenRLHF keeps to itself: a critic's values, a reference's log-probabilities.
    """
    final = [record for record in records if not record.again]
    means = iter(_segment_means(final, train))
    return [None if record.again else next(means) for record in records]


def _segment_means(records: Sequence[Record], train: TrainSpec) -> list[float | None]:
    penalised = train.kl.coef > 0 and train.kl.place is KlPlace.REWARD
    in_loss = [counts(record.scored) for record in records]
    if find_missing(train.algorithm) or penalised or not any(in_loss):
        return [None] * len(records)
    import torch

    masks = [record.scored.trajectory.action_mask for record in records]
    size = max(map(len, masks))
    stand_in = b"\1".ljust(size, b"\0")  # its one token counts where advantages are normalised
    rows = [
        bytes(mask).ljust(size, b"\0") if counted else stand_in for mask, counted in zip(masks, in_loss, strict=True)
    ]
    mask_BT = torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.bool).view(len(rows), size)
    asked = AdvantageInput(
        rewards_B=torch.tensor(_reported_rewards(records), dtype=torch.float32),
        group_B=torch.tensor([record.row for record in records]),
        action_mask_BT=mask_BT,
        reward_clip=train.reward_clip,
    )
    means = recompute_advantages(train.algorithm, asked)
    return [value if counted else None for value, counted in zip(means, in_loss, strict=True)]


def _reported_rewards(records: Sequence[Record]) -> list[float]:
    """The rewards that OpenRLHF got."""
    rewards: defaultdict[int, list[float]] = defaultdict(list)
    for record in records:
        if counts(record.scored) and record.scored.reward is not None:
            rewards[record.row].append(round_reward(record.scored.reward))
    return [
        round_reward(record.scored.reward)
        if counts(record.scored) and record.scored.reward is not None
        else filler(rewards[record.row])
        for record in records
    ]


class Ingest:
    """Follows one attempt of a job.

    Three clocks meet here and are never compared. What OpenRLHF prints has its own order and no time. A record has the
    time of the agent that wrote it, which orders records of one actor and is only compared with others' where whole
    steps lie between. When something is read is this machine's business, and decides nothing but when it is reported.
    """

    def __init__(
        self,
        spec: RunSpec,
        job: Job,
        attempt: JobAttempt,
        *,
        emit: EventSink,
        pool: SpoolPool | None = None,
        after: int = 0,
        until: int | None = None,
        usage: Callable[[float], Mapping[str, float]] = lambda step_s: {},
        imitated: Sequence[Sequence[Scored]] | None = None,
    ) -> None:
        """Reads nothing yet.

        Args:
            pool: what reads the records; None: this process.
            after: the last step that the lineage has; older ones are not reported again.
            until: the step of the checkpoint that is gone back to; newer ones are not reported. None: all of it is.
            usage: what the job took of the machine in a step that took so many seconds and ends now.
            imitated: the demonstrations of each step; None: trajectories come from agents.
        """
        self._spec, self._usage, self._imitated = spec, usage, imitated
        self._job = job
        self._attempt = attempt
        self._emit = emit
        self._after = after
        self._until = math.inf if until is None else until
        self._log = LogReader(job.log(attempt.number))
        self._comes_late = openrlhf_settings(spec).ingest is not None
        self._folder = job.received(attempt.number) if self._comes_late else Path(attempt.spool)
        self._spool = SpoolReader(self._folder, pool)
        self._lines = deque[JobLogLine]()
        """Those whose trajectories have not all come."""
        self._groups: dict[int, Group] = {}
        """By row, those of which not all has come."""
        self._num_kept = 0
        """Whole groups that are trained on."""
        self._training: defaultdict[int, list[Record]] = defaultdict(list)
        self._evaluating: list[Record] = []
        self._first_evaluation: list[Record] = []
        self._order = _evaluation_order(job)
        older = [path for path in whole_checkpoints(job) if until is None and step_of(path) < attempt.first_step]
        self._checkpoints = set(older)
        """Those that are reported, or of a launch before."""
        self._growing: dict[Path, str] = {}
        """What others were when last looked at."""
        self.step = attempt.first_step - 1
        """The last step that is over."""
        self._polling = threading.Lock()
        """One poll at a time: they run on a thread, and a stop makes the last one while another may be under way."""

    def poll(self, *, last: bool = False) -> list[str]:
        """Reports everything that has come since the last call; returns the new lines of OpenRLHF's output.

        Args:
            last: whether nothing more will come, so that nothing is waited for.
        """
        with self._polling:
            return self._poll(last=last)

    def _poll(self, *, last: bool) -> list[str]:
        lines = self._log.read()  # first: on a shared disk, what a line speaks of is in the spool by then
        self._lines += filter(None, map(parse_line, lines))
        for item in self._spool.read():
            if isinstance(item, FilesOpened):
                for code, path in item.opened:
                    note_opened(code, [path])
            elif isinstance(item, Notice):  # of the step under way: a resume that has it does not report it again
                self._emit_event(item, self.step + 1)
            else:
                self._sort(item)
        # The evaluation before training is over when every row of it is there.
        if self._first_evaluation and len(self._first_evaluation) >= len(self._order):
            self._tell_evaluation(0, self._first_evaluation)
            self._first_evaluation = []
        # Lines in their order, each only when its trajectories are there: an evaluation takes the oldest of its rows,
        # so one that was taken too early would take those of the next.
        while self._lines and (last or not self._comes_late or self._has_come(self._lines[0])):
            line = self._lines.popleft()
            if line.metrics is None:
                self._tell_evaluation(line.step, self._next_evaluation())
            else:
                self._tell_step(line.step, line.metrics)
        # OpenRLHF prints a step before it saves it, and Ray passes on what is printed some time later: a stop between
        # them leaves a checkpoint, from which the job continues, of a step without its line.
        saved = max(map(step_of, whole_checkpoints(self._job)), default=0) if last else 0
        for step in range(self.step + 1, int(min(saved, self._until)) + 1):
            text = f"step {step} is known by its checkpoint alone: the job ended before its figures had come"
            self._emit_event(Notice("warning", text, {"step": step}), step)
            self._tell_step(step, {})
        self._tell_checkpoints(last=last)
        return lines

    def drop_recorded(self, flush: Callable[[], None]) -> None:
        """Removes the files whose records are in the lineage.

        Args:
            flush: returns when every event emitted so far is safe.
        """
        with self._polling:
            # In this order: a file goes only when the lineage has written what was read from it.
            if done := self._spool.list_done(self.step):
                flush()
                self._spool.drop(done)

    def tell_left(self) -> None:
        """Reports the trajectories of the steps and evaluations that a stop of the job cut off."""
        evaluating = [*self._first_evaluation, *self._evaluating]
        training = [record for step in sorted(self._training) for record in self._training[step]]
        for step, records in ((self.step, evaluating), (self.step + 1, training)):
            if records:
                self._emit(Interrupted(step, [record.scored for record in records]))

    @property
    def awaits(self) -> str:
        """The step or evaluation that still waits for its trajectories, in words; empty without one."""
        if not self._lines:
            return ""
        line = self._lines[0]
        return f"the evaluation after step {line.step}" if line.metrics is None else f"step {line.step}"

    def _has_come(self, line: JobLogLine) -> bool:
        """Whether all trajectories are there that OpenRLHF had when it printed a line."""
        if line.metrics is None:
            return len(self._evaluating) >= len(self._order)
        # By groups and not by the steps in records: with a filter OpenRLHF draws again, and a step has as many whole
        # groups that are trained on as it has rows, whatever else was played for it.
        num_steps = line.step - max(self._attempt.first_step - 1, self._after)
        return self._num_kept >= num_steps * self._spec.train.prompts_per_step

    def _count(self, record: Record) -> None:
        group = self._groups.setdefault(record.row, Group(self._spec.rollout.num_generations))
        if group.leave(record.scored):
            self._num_kept += is_kept(group.rewards, self._spec.train.dynamic_filtering)
            del self._groups[record.row]

    def _sort(self, record: Record) -> None:
        if record.purpose is Purpose.TRAIN:
            assert record.step is not None, f"a training record without a step: {record.scored.trajectory.id}"
            self._training[record.step].append(record)
            if not record.again and record.step > self._after:  # older ones may have been removed
                self._count(record)
        elif record.step is None:  # the agents do not know after which step OpenRLHF asked
            self._evaluating.append(record)
        else:
            self._first_evaluation.append(record)

    def _emit_event(self, event: RunEvent, step: int) -> None:
        if self._after < step <= self._until:
            self._emit(event)

    def _tell_step(self, step: int, own: Mapping[str, float]) -> None:
        if self._imitated is not None:
            self.step, shown = step, self._imitated[step - 1]
            reported = {**own, **self._usage(own.get("time/step_s", math.inf)), "demonstrations": float(len(shown))}
            # Each token of a demonstration weighs the same.
            self._emit_event(StepFinished(step, reported, list(shown), [1.0] * len(shown)), step)
            return
        # By row and sample, not as they came: the order of trajectories in the lineage does not depend on who was
        # first.
        records = sorted(self._training.pop(step, []), key=lambda record: (record.row, record.sample))
        scored = [record.scored for record in records]
        self.step = step
        if not scored:
            text = f"step {step}: its trajectories are not in the spool, {self._folder}"
            self._emit_event(Notice("warning", text, {"step": step}), step)
            return
        expected = self._spec.train.prompts_per_step * self._spec.rollout.num_generations
        num_final = sum(not record.again for record in records)
        if self._comes_late and num_final < expected and self._spec.train.dynamic_filtering is None:
            missing = f"{expected - num_final} of {expected} trajectories did not come from the nodes"
            text = f"step {step}: {missing}; they are in {self._attempt.spool} there"
            self._emit_event(Notice("warning", text, {"step": step}), step)
        advantages, encoded = sampled_advantages(records, self._spec.train), [record.encoded for record in records]
        reported = {**own, **self._usage(own.get("time/step_s", math.inf))}
        metrics = self._metrics(reported, records, advantages)
        self._emit_event(StepFinished(step, metrics, scored, advantages, encoded), step)

    def _metrics(
        self, reported: Mapping[str, float], records: Sequence[Record], advantages: Sequence[float | None]
    ) -> dict[str, float]:
        no_reference = self._spec.train.kl.coef == 0  # OpenRLHF prints 0 then
        return step_metrics(
            [record.scored for record in records],
            [record.scored for record in records if not record.again],
            advantages=dict(zip((each.scored.trajectory.id for each in records), advantages, strict=True)),
            num_groups=self._spec.train.prompts_per_step,
            own={name: value for name, value in reported.items() if not (no_reference and name == "policy/kl_ref")},
        )

    def _next_evaluation(self) -> list[Record]:
        """The trajectories of the oldest evaluation that is not reported yet: they follow each other, one row each."""
        # The agents' clocks may differ by seconds; between two evaluations lies at least one step, which takes longer.
        self._evaluating.sort(key=lambda record: record.time)
        size = len(self._order)
        records, self._evaluating = self._evaluating[:size], self._evaluating[size:]
        return records

    def _tell_evaluation(self, step: int, records: Sequence[Record]) -> None:
        if not self._after <= step <= self._until:  # the one after the last known step may be what was missing
            return
        for purpose in (Purpose.SAMPLED, Purpose.GREEDY):
            chosen = [record for record in records if record.purpose is purpose]
            chosen.sort(key=lambda record: self._order.get((purpose, record.scored.trajectory.task.id, record.row), 0))
            if not chosen:
                continue
            scored = [record.scored for record in chosen]
            num_samples = self._spec.eval.num_samples if purpose is Purpose.SAMPLED else 1
            metrics = evaluation_metrics(scored, num_samples)
            started = min(record.time - record.scored.trajectory.duration_s for record in chosen)
            metrics["time/total_s"] = max(record.time for record in chosen) - started
            encoded = [record.encoded for record in chosen]
            self._emit(EvaluationFinished(step, str(purpose), metrics, scored, encoded))
            if purpose is Purpose.SAMPLED and not self._comes_late:
                # Keeps the checkpoint of the best evaluation, which OpenRLHF writes before it evaluates the step.
                num_questions = len({task_id for each, task_id, _ in self._order if each is purpose})
                success = least_success(metrics, num_questions)
                found = best_checkpoint(self._job)
                if success is not None and is_best(step, success, None if found is None else found[1]):
                    mark_best(self._job, step, success)

    def _tell_checkpoints(self, *, last: bool) -> None:
        """Reports new ones, each after its step and when it grows no more: not all processes write as fast."""
        for path in whole_checkpoints(self._job):
            if path not in self._checkpoints and step_of(path) <= self.step:
                try:
                    sha256 = checkpoint_hash(path)
                except FileNotFoundError:  # OpenRLHF makes room: it removes a checkpoint while it is looked at here
                    continue
                if last or self._growing.get(path) == sha256:
                    kept = tuple(map(step_of, kept_folders(self._job, self._spec.checkpoint.keep)))
                    self.tell_checkpoint(CheckpointSaved(step_of(path), str(path), sha256, kept))
                self._growing[path] = sha256

    def tell_checkpoint(self, saved: CheckpointSaved) -> None:
        """Reports a checkpoint once."""
        if Path(saved.path) not in self._checkpoints:
            self._checkpoints.add(Path(saved.path))
            self._emit(saved)


def _evaluation_order(job: Job) -> dict[tuple[Purpose, str, int], int]:
    """The place of each evaluation row in its file."""
    if not job.evaluation.is_file():
        return {}
    with job.evaluation.open(encoding="utf-8") as file:
        rows = [read_label(json.loads(line)["label"], job.folder) for line in file]
    return {(row.purpose, row.task.id, row.index): place for place, row in enumerate(rows)}
