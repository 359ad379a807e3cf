"""What a set of trajectories says, as flat metrics. Unscorable ones count in `unscorable` and nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean, pstdev

from rlf.types.score import Scored


def rollout_metrics(scored: Sequence[Scored]) -> dict[str, float]:
    """Rewards term by term, tool behaviour, stop reasons and sizes.

    Returns:
        `success`, `reward/*`, `rewards/<term>/*`, `turns/mean`, `tokens/*`, `tools/*`, `stop/*`, `unscorable`.
    """
    counted = [item for item in scored if item.reward is not None]
    metrics = {"unscorable": float(len(scored) - len(counted))}
    metrics |= _calls(scored)
    metrics |= {f"stop/{stop}": n / len(scored) for stop, n in _counts(s.trajectory.stop for s in scored).items()}
    if counted:
        metrics |= _rewards(counted) | _sizes(counted)
    return metrics


def _rewards(counted: Sequence[Scored]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for name, values in _values_by_name(counted).items():
        metrics[f"{name}/mean"] = fmean(values)
        metrics[f"{name}/std"] = pstdev(values)
    successes = [item.success for item in counted if item.success is not None]
    if successes:
        metrics["success"] = fmean(successes)
    return metrics


def _values_by_name(counted: Sequence[Scored]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {"reward": [item.reward for item in counted if item.reward is not None]}
    for item in counted:
        for score in item.scores:
            if score.value is not None:
                values.setdefault(f"rewards/{score.term}", []).append(score.value)
    return values


def _sizes(counted: Sequence[Scored]) -> dict[str, float]:
    trajectories = [item.trajectory for item in counted]
    sampled = fmean(t.num_sampled for t in trajectories)
    total = fmean(len(t.tokens) for t in trajectories)
    observed = fmean(sum(turn.observation_end - turn.end for turn in t.turns) for t in trajectories)
    return {
        "turns/mean": fmean(len(t.turns) for t in trajectories),
        "tokens/sampled": sampled,
        "tokens/total": total,
        "tokens/observation": observed,
    }


def _calls(scored: Sequence[Scored]) -> dict[str, float]:
    records = [record for item in scored for record in item.trajectory.calls]
    failures = [failure for item in scored for failure in item.trajectory.failures]
    metrics = {"tools/calls_per_trajectory": len(records) / len(scored)}
    outcomes = _counts(record.result.outcome for record in records)
    metrics |= {f"tools/outcome/{outcome}": float(n) for outcome, n in outcomes.items()}
    classes = _counts(failure.kind for failure in failures)
    metrics |= {f"tools/parse_failure/{kind}": float(n) for kind, n in classes.items()}
    kinds = _counts(repair.kind for item in scored for repair in item.trajectory.repairs)
    metrics |= {f"tools/repaired/{kind}": float(n) for kind, n in kinds.items()}
    num_penalised = sum(item.trajectory.num_penalised for item in scored)
    if num_penalised:
        metrics["tools/penalised"] = float(num_penalised)
    return metrics


def _counts(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(str(value) for value in values).items()))
