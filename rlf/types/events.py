"""Events of a run: engines emit them; the recorder, the live view and JSON output consume them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from rlf.types.score import Scored


class RunStatus(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """Stopped by Ctrl-C; can be resumed."""


@dataclass(frozen=True, slots=True)
class StepFinished:
    """One iteration: trajectories were collected and the policy was updated."""

    step: int
    """Counts from 1."""
    metrics: Mapping[str, float]
    trajectories: Sequence[Scored]
    advantages: Sequence[float | None]
    """Mean advantage over action tokens, per trajectory; None where it was left out of the loss."""
    encoded: Sequence[object] = ()
    """What the lineage stores of each trajectory, None where that is not made yet; empty: of none."""


SAMPLED, GREEDY = "sampled", "greedy"
"""Modes of an evaluation."""


@dataclass(frozen=True, slots=True)
class EvaluationFinished:
    """The policy after `step` updates was tried on the evaluation set."""

    step: int
    """0 is the policy before any update."""
    mode: str
    """`sampled` or `greedy`."""
    metrics: Mapping[str, float]
    """`success`, `success/low`, `success/high` (95 % interval), `success/<kind>`, `pass@k`, ..."""
    trajectories: Sequence[Scored]
    encoded: Sequence[object] = ()
    """As in `StepFinished`."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A stop or a failure cut a collection off: it makes no step and no evaluation, and a resume repeats it."""

    step: int
    """The step that it was for, from 1; of an evaluation, the updates before it."""
    trajectories: Sequence[Scored]
    """Those with a turn. One that was over keeps its stop reason and its scores, where they were known."""


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A complete checkpoint is on disk."""

    step: int
    path: str
    sha256: str
    """Hash of the checkpoint's manifest."""
    kept: tuple[int, ...] | None = None
    """Steps whose checkpoints stay, this one among them; None where that is not known."""
    save_s: float = 0.0
    """Seconds that writing it took; 0 where another process wrote it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something worth knowing that is no metric: a warning, an alarm, a resume."""

    level: str
    """`info`, `warning` or `error`."""
    text: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The last event of a process that ran the run."""

    status: RunStatus
    step: int
    error: str | None = None


RunEvent = StepFinished | EvaluationFinished | Interrupted | CheckpointSaved | Notice | RunFinished


class EventSink(Protocol):
    """A consumer of events, called in order on the thread that runs the run."""

    def __call__(self, event: RunEvent) -> None:
        """Takes one event; an exception ends the run."""


# The names that metrics have, with unit and meaning: what reports and documents say about them.
#
# A `<part>` of a name stands for whatever a run puts there. What computes a metric is where it is computed.

INTERVAL_ENDS = ("low", "high")
"""Parts of `success` that are no kinds of question."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One name, or a family of names."""

    name: str
    unit: str
    meaning: str


def kind_metric(kind: str) -> str:
    """The name of success on one kind of question; kinds named as an end of the interval are set apart."""
    return f"success/kind {kind}" if kind in INTERVAL_ENDS else f"success/{kind}"


def is_gap(name: str) -> bool:
    """Whether a metric is the gap of a trained term to a hidden one; the ends of its interval have a part more."""
    return name.startswith("gap/") and name.count("/") == 2


METRICS: tuple[Metric, ...] = (
    Metric("success", "share", "Mean success: the value of the first reward term, or what `success:` declares."),
    Metric(
        "success/low",
        "share",
        "Lower end of the 95 % interval of an evaluation's success (Wilson's; over clusters with `data.eval.cluster`).",
    ),
    Metric("success/high", "share", "Upper end of that interval."),
    Metric("success/<kind>", "share", "Success on the questions of one kind; `success/kind low` of one named `low`."),
    Metric("pass@<k>", "share", "Questions solved by at least one of k sampled rollouts, without bias."),
    Metric("num_questions", "questions", "Questions of an evaluation that could be scored."),
    Metric("num_clusters", "clusters", "What these belong to by `data.eval.cluster`, which the intervals count."),
    Metric("reward/mean", "", "Mean reward of the scorable trajectories."),
    Metric("reward/std", "", "Its standard deviation."),
    Metric("rewards/<term>/mean", "", "Mean value of a term after scale and clip, before its weight."),
    Metric("rewards/<term>/std", "", "Its standard deviation."),
    Metric(
        "rewards/<term>/share",
        "share",
        "Of the rewards' variance within groups: mean of cov(weight x value, reward) / var(reward) over the groups "
        "whose rewards differ. The terms' shares add up to 1; a negative one works against the others.",
    ),
    Metric("rewards/<term>/unscorable", "trajectories", "The term had no value for these, its faults included."),
    Metric("rewards/<term>/faults", "trajectories", "The term raised, or its value was not a number in its range."),
    Metric("rewards/<term>/gated", "trajectories", "The term was not computed, since its gate was closed."),
    Metric("rewards/<term>/tokens", "tokens", "Prompt and completion tokens that judges took, sentinels included."),
    Metric("rewards/<term>/cost_usd", "US dollars", "What they cost, failed requests too, as reported or by `prices`."),
    Metric("rewards/<term>/cached", "share", "Replies of judges that came from the cache."),
    Metric("rewards/<term>/kappa", "", "Cohen's kappa of the judge with its sentinels, over the latest of them."),
    Metric(
        "gap/<hidden>/<term>",
        "share",
        "Of what a trained term pays, the share that a hidden term refuses: mean over the groups of the step.",
    ),
    Metric("gap/<hidden>/<term>/low", "share", "With 95 %, at every step at once: what its expected value was above."),
    Metric("gap/<hidden>/<term>/high", "share", "In the same way, what it was below; 1 where little is known."),
    Metric(
        "solve/<measure>",
        "share",
        "Of rows with sub-questions (`unsolved_set`): `p` solved / calls, 1 without a call; `r` solved / all; `f1` "
        "2 solved / (calls + all). A solved one is matched by value and type.",
    ),
    Metric("solve/<measure>/<kind>", "share", "The same on the questions of one kind."),
    Metric("unscorable", "trajectories", "Left out of groups and loss, since infrastructure or a reward term failed."),
    Metric("groups/dead_share", "share", "Groups whose rewards are all equal: they teach nothing."),
    Metric("groups/without_greedy", "groups", "Tasks whose greedy rollout has no reward, left out by `remax`."),
    Metric("reward/greedy/mean", "", "Reward of the tasks' greedy rollouts, the baseline of `remax`."),
    Metric("groups/kept", "groups", "Groups that the update learns from; without dynamic filtering all of a step's."),
    Metric("demonstrations", "trajectories", "Demonstrations imitated, in a step that imitates."),
    Metric("groups/late", "groups", "Under way when the update started; their tasks are later steps'."),
    Metric("groups/carried", "groups", "Taken by this step and begun by an earlier one, or played again for it."),
    Metric("groups/dropped", "groups", "Of the late ones, those that were cut off (`rollout.late: drop`)."),
    Metric("draws/<kind>", "share", "Of a step's groups, those of this kind, with `train.sampler: pools`."),
    Metric("draws/retired", "tasks", "Of the training set, solved by a whole group and not drawn for the time being."),
    Metric(
        "left_out/length",
        "share",
        "Rollouts that teach nothing because they are long: cut and masked (`train.mask_truncated`) or without a "
        "reward, or of late groups that were dropped. Missing where there are none.",
    ),
    Metric("turns/mean", "turns", "Turns per trajectory."),
    Metric("tokens/sampled", "tokens", "Tokens sampled by the policy, per trajectory."),
    Metric("tokens/observation", "tokens", "Tokens of tool results and corrections, per trajectory."),
    Metric("tokens/total", "tokens", "Of a whole trajectory, its prompt included."),
    Metric("stop/<reason>", "share", "Trajectories that ended for this reason."),
    Metric("tools/calls_per_trajectory", "calls", "Calls that could be read, per trajectory."),
    Metric("tools/outcome/<outcome>", "calls", "Calls with this outcome."),
    Metric("tools/parse_failure/<class>", "failures", "Texts that look like calls and could not be read as such."),
    Metric("tools/repaired/<repair>", "calls", "Calls that were run after this repair."),
    Metric("tools/coerced", "calls", "Calls whose arguments were made to fit inputSchema, as `coerce: safe` allows."),
    Metric("tools/<tool>/cost_usd", "US dollars", "What its calls cost, failed ones too, as reported or by `prices`."),
    Metric("env/score/<name>", "", "A world's score of that name, mean over the trajectories that it scored."),
    Metric("env/failed/<phase>", "trajectories", "Trajectories whose world failed in that phase; none has a reward."),
    Metric("env/world_s", "seconds", "Time that a world took for a whole trajectory, mean."),
    Metric("world/<world>/success", "share", "Success in one of several worlds, mean over its scorable trajectories."),
    Metric("world/<world>/reward/mean", "", "Mean reward of the scorable trajectories in that world."),
    Metric("world/<world>/reward/std", "", "Its standard deviation."),
    Metric("world/<world>/advantage/std", "", "Standard deviation of the mean advantages of trajectories that train."),
    Metric("world/<world>/trajectories", "trajectories", "Trajectories in that world."),
    Metric("world/<world>/unscorable", "trajectories", "Those of them that have no reward."),
    Metric("agent/contexts", "", "Contexts that an agent began in a trajectory, mean: each is a row that is trained."),
    Metric("agent/new_context/<why>", "calls", "Calls of agents that continued no earlier call, by why."),
    Metric("tools/penalised", "failures", "Failures that `chat.failures` penalises."),
    Metric("tools/wait_share", "share", "Time that trajectories spent waiting for their tools."),
    Metric("loss/policy", "", "The policy loss, mean over a step's optimiser updates."),
    Metric("loss/value", "", "The critic's loss."),
    Metric("loss/observations", "nats", "Cross-entropy on tool results, where `train.loss.observations` is set."),
    Metric("policy/entropy", "nats", "Mean entropy of the policy's distribution at the sampled tokens."),
    Metric("policy/clip_fraction", "share", "Sampled tokens whose ratio lies outside the clipping range."),
    Metric("policy/kl_old", "nats", "Estimated distance from the policy that the step began with."),
    Metric("teacher/kl", "nats", "Estimated distance from the teacher of `distillation`, at the tokens that it reads."),
    Metric("teacher/taught", "share", "Trajectories of the update that the teacher says something of."),
    Metric("policy/kl_ref", "nats", "Estimated distance from the reference, by `train.kl.kind`."),
    Metric("policy/mismatch_kl", "nats", "Estimated distance of the trainer's probabilities from the sampler's."),
    Metric(
        "policy/staleness/mean",
        "updates",
        "Updates between the policy that sampled a trained token and the step's, mean.",
    ),
    Metric("policy/staleness/max", "updates", "The same, maximum over tokens."),
    Metric("policy/filter_fraction", "share", "Tokens, or by its level sequences, beyond the correction's thresholds."),
    Metric("policy/masked_fraction", "share", "Sampled tokens that the masks of `train.loss` left out."),
    Metric("policy/grad_norm", "", "Norm of the policy's gradient before it is clipped."),
    Metric("policy/learning_rate", "", "Learning rate of the last optimiser update."),
    Metric("critic/grad_norm", "", "Norm of the critic's gradient before it is clipped."),
    Metric("time/step_s", "seconds", "A whole step."),
    Metric("time/generate_s", "seconds", "Its rollouts, tools and rewards."),
    Metric("time/schedule_s", "seconds", "Of those, what `schedule: logical` held back that could sample."),
    Metric("time/experience_s", "seconds", "Its log-probabilities, values and advantages, under OpenRLHF."),
    Metric("time/update_s", "seconds", "Its update."),
    Metric("time/sync_s", "seconds", "Copying the new weights to the sampler, under OpenRLHF."),
    Metric(
        "time/processor_s",
        "seconds",
        "Of all cores, in the process that trains and its ended children, or in OpenRLHF's job.",
    ),
    Metric("time/total_s", "seconds", "A whole evaluation; of modes played together, of both."),
    Metric("throughput/generate_tokens_per_s", "tokens per second", "Sampled tokens over the time of the rollouts."),
    Metric("throughput/update_tokens_per_s", "tokens per second", "Trained trajectories' tokens over the update's."),
    Metric(
        "memory/peak_bytes",
        "bytes",
        "Most that the process, or all of OpenRLHF's job, had resident; on a local GPU, tensors.",
    ),
    Metric("memory/resident_bytes", "bytes", "Resident size of that process, or of OpenRLHF's job, at the step's end."),
    Metric("gpu/busy", "share", "Time in which the GPUs computed, by `nvidia-smi`, mean; all programs together."),
    Metric("gpu/held_bytes", "bytes", "The most that all programs held of one GPU's memory, by `nvidia-smi`."),
)
"""Every metric of steps and evaluations."""
