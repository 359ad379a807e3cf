"""Evaluations as logs of inspect (`inspect_ai`), one for each mode: they open in its viewer.

The log is made of plain values here; inspect-ai itself, which has to be installed, checks and writes them.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from rlf.core.errors import RlfError
from rlf.core.files import run_folder
from rlf.lineage.reader import Reader
from rlf.lineage.records import Evaluation, RunRecord, TrajectoryFilter
from rlf.runs.place import open_reader
from rlf.types import FailureClass, Scored, StopReason, Turn

FORMATS = ("inspect",)
_STOPS = {StopReason.LENGTH: "token", StopReason.MAX_TURNS: "message"}
"""inspect's word for a limit that ended a sample."""


def check_log(name: str | None) -> None:
    """Raises RlfError for a format of logs that is unknown, or whose package is not installed."""
    if name is None:
        return
    if name not in FORMATS:
        raise RlfError(f"--log: got {name!r}; expected {', '.join(FORMATS)}. Write `--log inspect`.")
    if importlib.util.find_spec("inspect_ai") is None:
        raise RlfError("--log inspect: inspect-ai is not installed. Write `pip install 'rlf[inspect]'`.")


def write_log(run_id: str, runs_folder: Path) -> Path:
    """Writes the logs of an evaluation into its folder; the first of them.

    Raises:
        RlfError: inspect-ai is not installed.
    """
    check_log(FORMATS[0])
    from inspect_ai.log import EvalLog, write_eval_log

    folder = run_folder(runs_folder, run_id)
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    with open_reader(runs_folder) as reader:
        for found in reader.evaluations(run_id):
            paths.append(folder / f"{found.mode}.eval")
            write_eval_log(EvalLog.model_validate(log_values(reader, run_id, found)), str(paths[-1]), format="eval")
    if not paths:
        raise RlfError(f"--log inspect: evaluation {run_id} ended before any of its modes did. Continue it first.")
    return paths[-1]


def log_values(reader: Reader, run_id: str, found: Evaluation) -> dict[str, Any]:
    """One mode of an evaluation as the values of inspect's `EvalLog`."""
    run = reader.get_run(run_id)
    record, target = run.record, str(run.record.plan["evaluation"]["target"])
    tries = reader.trajectories(run_id, TrajectoryFilter(phase=found.mode, step=found.step))
    stored = [reader.whole(run_id, summary) for summary in tries]
    samples = [_show_sample(item.scored, target) for item in stored if item is not None]
    spec = record.plan["spec"]
    epochs = max((sample["epoch"] for sample in samples), default=1)
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": f"{run_id}-{found.mode}",
            "run_id": run_id,
            "created": _show_time(record.started),
            "task": record.name,
            "task_id": record.plan_hash[:22],
            "dataset": {
                "name": spec["data"]["eval"]["path"],
                "samples": int(found.metrics.get("num_questions", 0)),
                "sample_ids": list(dict.fromkeys(sample["id"] for sample in samples)),
            },
            "model": f"rlf/{target}",
            "model_generate_config": {
                "temperature": 0.0 if found.mode == "greedy" else spec["eval"]["temperature"],
                "seed": record.seed,
            },
            "config": {
                "epochs": epochs,
                "limit": spec["eval"]["limit"],
                "message_limit": spec["rollout"]["max_turns"],
                "token_limit": spec["rollout"]["max_total_tokens"],
            },
            "packages": dict(record.packages),
            "metadata": {"rlf_run": run_id, "mode": found.mode, "plan_hash": record.plan_hash},
        },
        "plan": {
            "name": record.name,
            "steps": [{"solver": "rlf", "params": {"tools": [t["name"] for t in spec["tools"]]}}],
        },
        "results": {
            "total_samples": len(tries),
            "completed_samples": sum(item.reward is not None for item in tries),
            "scores": list(_iterate_score_values(record, found, samples)),
            "metadata": dict(found.metrics),
        },
        "stats": {"started_at": _show_time(record.started), "completed_at": _show_time(found.finished)},
        "samples": samples,
    }


def _iterate_score_values(
    record: RunRecord, found: Evaluation, samples: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """The mean of each term, and of the first, which is success, the interval."""
    for term in record.plan["spec"]["rewards"]:
        name = term["name"]
        values = [sample["scores"][name]["value"] for sample in samples if name in sample["scores"]]
        metrics = {"mean": {"name": "mean", "value": fmean(values)}} if values else {}
        if name == record.plan["spec"]["rewards"][0]["name"] and "success" in found.metrics:
            for metric in ("success", "success/low", "success/high"):
                metrics[metric] = {"name": metric, "value": found.metrics[metric]}
        unscored = len(samples) - len(values)
        yield {
            "name": name,
            "scorer": name,
            "scored_samples": len(values),
            "unscored_samples": unscored,
            "metrics": metrics,
        }


def _show_sample(scored: Scored, model: str) -> dict[str, Any]:
    """One trajectory as the values of inspect's `EvalSample`."""
    trajectory, task = scored.trajectory, scored.trajectory.task
    messages = [{"role": message.role, "content": message.content} for message in trajectory.messages]
    said = [message for number, turn in enumerate(trajectory.turns) for message in _show_messages(turn, number, model)]
    answer = trajectory.answer or ""
    reason = "max_tokens" if trajectory.stop is StopReason.LENGTH else "stop"
    choice = {"message": {"role": "assistant", "content": answer, "source": "generate"}, "stop_reason": reason}
    usage = {"output_tokens": trajectory.num_sampled, "total_tokens": len(trajectory.tokens)}
    usage["input_tokens"] = usage["total_tokens"] - usage["output_tokens"]
    values: dict[str, Any] = {
        "id": task.id,
        "epoch": trajectory.sample_index + 1,
        "input": messages,
        "target": _show_target(task.answer),
        "messages": [*messages, *said],
        "output": {"model": model, "completion": answer, "choices": [choice]},
        "scores": {
            score.term: {"value": score.value, "answer": answer, "explanation": score.reason or None}
            for score in scored.scores
            if score.value is not None
        },
        "metadata": {
            "kind": task.kind,
            "stop": str(trajectory.stop),
            "reward": scored.reward,
            "trajectory_id": trajectory.id,
            "parse_failures": [f"{failure.kind}: {failure.message}" for failure in trajectory.failures],
        },
        "model_usage": {model: usage},
        "total_time": trajectory.duration_s,
        "turn_count": len(trajectory.turns),
    }
    if scored.reward is None:
        message = trajectory.error or "a reward term has no value"
        values["error"] = {"message": message, "traceback": "", "traceback_ansi": ""}
    elif trajectory.stop in _STOPS:
        values["limit"] = {"type": _STOPS[trajectory.stop], "limit": float(len(trajectory.turns))}
    return values


def _show_messages(turn: Turn, number: int, model: str) -> Iterator[dict[str, Any]]:
    """The sampled text of a turn, and the results of its calls."""
    calls = [
        {"id": f"{number}-{place}", "function": record.call.name, "arguments": dict(record.call.arguments)}
        for place, record in enumerate(turn.calls)
    ]
    yield from ({"role": message.role, "content": message.content} for message in turn.asked if number)
    yield {"role": "assistant", "content": turn.text, "tool_calls": calls or None, "model": model, "source": "generate"}
    for place, record in enumerate(turn.calls):
        message = {"role": "tool", "content": record.result.text, "tool_call_id": f"{number}-{place}"}
        yield message | {"function": record.call.name}
    wrong = [failure.message for failure in turn.failures if failure.kind is not FailureClass.TRUNCATED]
    if wrong and turn.observation_end > turn.end and not turn.calls:
        yield {"role": "user", "content": "\n".join(wrong)}


def _show_target(answer: Any) -> str | list[str]:
    if answer is None:
        return ""
    if isinstance(answer, list | tuple):
        return [item if isinstance(item, str) else json.dumps(item) for item in answer]
    return answer if isinstance(answer, str) else json.dumps(answer)


def _show_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
