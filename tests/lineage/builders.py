"""Runs, trajectories and events for the tests of the lineage, and for the processes that they start."""

from __future__ import annotations

import random
import struct

from rlf.core import derive_seed
from rlf.lineage.records import FileRecord, RunRecord
from rlf.types import (
    Attempt,
    CallRecord,
    FailureClass,
    Message,
    Outcome,
    ParseFailure,
    Score,
    Scored,
    StepFinished,
    StopReason,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def run_record(run_id="20260101-000000-aaaa", **fields):
    known = {
        "name": "search",
        "engine": "local",
        "seed": 7,
        "plan": {"train": {"steps": 3}},
        "plan_hash": "p" * 64,
        "code_version": "0.1.0+abc",
        "host": {"name": "here", "cores": 2},
        "packages": {"torch": "2.13.0"},
        "command": "rlf run specs/search.yaml",
        "folder": "/runs/x",
        "files": (FileRecord("spec", "specs/search.yaml", "a" * 64), FileRecord("tool", "tools/s.yaml", "b" * 64)),
    }
    return RunRecord(id=run_id, **(known | fields))


def trajectory(seed, *, num_tokens=150, num_calls=3, text_bytes=500, answer="Ada"):
    """One trajectory of `num_calls` turns with a call each, and a last turn that answers."""
    rng = random.Random(seed)
    num_turns = num_calls + 1
    bounds = [num_tokens * i // (2 * num_turns + 1) for i in range(1, 2 * num_turns + 2)]
    turns, action_mask = [], [False] * num_tokens
    for i in range(num_turns):
        start, end, observation_end = bounds[2 * i], bounds[2 * i + 1], bounds[min(2 * i + 2, 2 * num_turns)]
        last = i == num_turns - 1
        action_mask[start:end] = [True] * (end - start)
        calls = () if last else (_call(rng, text_bytes),)
        failures = (ParseFailure(FailureClass.BAD_JSON, "no JSON", "{", 3, False),) if i == 1 else ()
        words = f"<tool_call>{rng.random()}</tool_call>" if not last else f"The answer is {answer}."
        turns.append(Turn(start, end, end if last else observation_end, words, calls, failures, 0.01, 0.02))
    return Trajectory(
        id=f"t{seed}",
        task=Task(f"q{seed // 8}", (Message("system", "Search."), Message("user", "Who?" * 20)), ["Ada"], "two_hop"),
        sample_index=seed % 8,
        tokens=[rng.randrange(2000) for _ in range(num_tokens)],
        action_mask=action_mask,
        rollout_logprobs=[float32(-rng.random()) if sampled else 0.0 for sampled in action_mask],
        turns=tuple(turns),
        stop=StopReason.ANSWERED,
        answer=answer,
        duration_s=0.5,
    )


def _call(rng, text_bytes):
    text = "".join(rng.choices("abcdefghij klmnop", k=text_bytes))
    attempts = (Attempt(Outcome.TIMEOUT, 0.1, "slow"), Attempt(Outcome.OK, 0.2))
    result = ToolResult(Outcome.OK, text, attempts, 0.01, 0.3, True, True, 9999, isolation="thread")
    return CallRecord(ToolCall("search", {"query": f"q {rng.random()}", "k": 3}), result)


def scored(seed, *, success=1.0, **fields):
    scores = (Score("exact_match", success, 1.0, "equal", 0.001), Score("judge", None, 0.0, "no answer"))
    return Scored(trajectory(seed, **fields), scores, reward=success, success=success)


def step(number, num_trajectories=8, **fields):
    trajectories = [scored(derive_seed(number, k) % 10**6, **fields) for k in range(num_trajectories)]
    return StepFinished(number, {"reward": number / 2, "kl": 0.1}, trajectories, [0.5] * num_trajectories)
