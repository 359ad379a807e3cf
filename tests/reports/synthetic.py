"""A run that never was: events with the shape and sizes of real ones, from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from rlf.lineage.records import RunRecord
from rlf.reports.statistics import wilson_interval
from rlf.types import (
    Attempt,
    CallRecord,
    CheckpointSaved,
    EvaluationFinished,
    FailureClass,
    Message,
    Notice,
    Outcome,
    ParseFailure,
    RunEvent,
    RunFinished,
    RunStatus,
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
from rlf.types.trajectory import SAMPLER, MissingRewardCause

KINDS = ("parallel", "single", "two_hop")
CALL_TEXT = '<tool_call>\n{"name": "search", "arguments": {"query": "Bitbal employer"}}\n</tool_call><|im_end|>'
PASSAGE = "Bitbal was born in Zangel and works for Fenpus, a company of the river town Nekwys."


def task(number: int) -> Task:
    messages = (Message("system", "Tools: search, calculator"), Message("user", "What is the employer of Bitbal?"))
    return Task(f"heldout-{number:04d}", messages, answer="Fenpus", kind=KINDS[number % 3])


def trajectory(number: int, *, succeeds: bool) -> Trajectory:
    """Two turns with a call when it succeeds, one wrong answer when it does not."""
    result = ToolResult(Outcome.OK, PASSAGE, (Attempt(Outcome.OK, 0.0004),), run_s=0.0004, size_bytes=len(PASSAGE))
    search = CallRecord(ToolCall("search", {"query": "Bitbal employer"}), result)
    called = Turn(10, 18, 26, CALL_TEXT, calls=(search,), sample_s=0.01, tools_s=0.001)
    answered = Turn(26, 30, 30, "Fenpus<|im_end|>") if succeeds else Turn(10, 14, 14, "Zuller<|im_end|>")
    turns = (called, answered) if succeeds else (answered,)
    mask = [any(turn.start <= t < turn.end for turn in turns) for t in range(turns[-1].observation_end)]
    return Trajectory(
        id=f"heldout-{number:04d}/0",
        task=task(number),
        sample_index=0,
        tokens=list(range(len(mask))),
        action_mask=mask,
        rollout_logprobs=[-0.5 if sampled else 0.0 for sampled in mask],
        turns=turns,
        stop=StopReason.ANSWERED,
        answer="Fenpus" if succeeds else "Zuller",
        duration_s=0.02,
    )


def scored(number: int, *, succeeds: bool) -> Scored:
    reason = "equals 'Fenpus'" if succeeds else "got 'Zuller', gold is 'Fenpus'"
    scores = (Score("exact_match", float(succeeds), 1.0, reason), Score("well_formed", 1.0, 0.1, "every turn parses"))
    return Scored(trajectory(number, succeeds=succeeds), scores, succeeds + 0.1, float(succeeds))


def broken(number: int) -> Scored:
    """A trajectory with everything that can go wrong: failures, an unscorable term, hostile text."""
    failure = ParseFailure(FailureClass.BAD_JSON, "the block does not hold JSON; write one object", "{oops", 0, False)
    hostile = ToolResult(Outcome.TOOL_ERROR, "\x1b[31mred\u202e \ud800 [bold]not markup[/] :smile:", size_bytes=9)
    turns = (
        Turn(10, 12, 16, "<tool_call>{oops</tool_call>", failures=(failure,)),
        Turn(16, 18, 22, CALL_TEXT, calls=(CallRecord(ToolCall("search", {}), hostile),)),
        Turn(22, 24, 24, CALL_TEXT, calls=(CallRecord(ToolCall("search", {}), hostile),)),
    )
    whole = replace(
        trajectory(number, succeeds=False),
        turns=turns,
        stop=StopReason.INFRA_FAILURE,
        broken=MissingRewardCause(SAMPLER, "no host"),
    )
    return Scored(whole, (Score("judge", None, 1.0, "the judge did not answer"),), None, None)


def events(num_steps: int = 12, eval_every: int = 4, num_questions: int = 30, seed: int = 0) -> Iterator[RunEvent]:
    """A whole run that learns."""
    source = random.Random(seed)
    yield from _evaluations(0, 0.2, num_questions, source)
    yield Notice("warning", "the group of one question is dead", {})
    for step in range(1, num_steps + 1):
        rate = 0.2 + 0.75 * step / num_steps
        yield StepFinished(step, step_metrics(rate, source), [scored(0, succeeds=True), broken(1)], [0.5, None])
        if step % eval_every == 0:
            yield from _evaluations(step, rate, num_questions, source)
            yield CheckpointSaved(step, f"/runs/synthetic/checkpoints/{step}", "ab" * 32)
    yield RunFinished(RunStatus.FINISHED, num_steps)


def step_metrics(rate: float, source: random.Random) -> dict[str, float]:
    success = min(1.0, max(0.0, source.gauss(rate, 0.03)))
    return {
        "success": success,
        "reward/mean": success + 0.1,
        "reward/std": 0.4,
        "rewards/exact_match/mean": success,
        "rewards/exact_match/std": 0.4,
        "rewards/well_formed/mean": 0.98,
        "unscorable": 1.0,
        "groups/dead_share": 0.125,
        "turns/mean": 2.31,
        "tokens/sampled": 31.2,
        "tokens/total": 88.0,
        "tokens/observation": 40.0,
        "tools/calls_per_trajectory": 1.42,
        "tools/outcome/ok": 178.0,
        "tools/outcome/timeout": 3.0,
        "tools/outcome/unknown_tool": 1.0,
        "tools/parse_failure/bad_json": 2.0,
        "tools/parse_failure/truncated": 1.0,
        "tools/wait_share": 0.021,
        "stop/answered": 0.97,
        "stop/length": 0.03,
        "time/step_s": 1.52,
        "time/generate_s": 0.61,
        "time/update_s": 0.88,
        "throughput/generate_tokens_per_s": 12345.0,
        "throughput/update_tokens_per_s": 8123.0,
        "loss/policy": -0.0123,
        "policy/entropy": 1.21,
        "policy/clip_fraction": 0.012,
        "policy/mismatch_kl": 1.3e-6,
        "policy/kl_ref": 0.01,
        "policy/grad_norm": 0.31,
        "policy/learning_rate": 3e-4,
        "memory/peak_bytes": 1.9 * 2**30,
    }


def _evaluations(step: int, rate: float, num_questions: int, source: random.Random) -> Iterator[EvaluationFinished]:
    for mode, boost in (("sampled", 0.0), ("greedy", 0.03)):
        outcomes = [source.random() < rate + boost for _ in range(num_questions)]
        tried = [scored(number, succeeds=succeeds) for number, succeeds in enumerate(outcomes)]
        yield EvaluationFinished(step, mode, _evaluation_metrics(outcomes), tried)


def _evaluation_metrics(outcomes: list[bool]) -> dict[str, float]:
    low, high = wilson_interval(sum(outcomes), len(outcomes))
    metrics = {"success": sum(outcomes) / len(outcomes), "success/low": low, "success/high": high}
    for place, kind in enumerate(KINDS):
        of_kind = outcomes[place::3]
        metrics[f"success/{kind}"] = sum(of_kind) / len(of_kind)
    return metrics | {"num_questions": float(len(outcomes)), "time/total_s": 1.4}


def run_record(run_id: str = "20260102-030405-abcd") -> RunRecord:
    return RunRecord(
        id=run_id,
        name="synthetic",
        engine="local",
        seed=0,
        plan={"spec": {}},
        plan_hash="cd" * 32,
        code_version="0.1.0",
        host={},
        packages={},
        command="rlf run specs/synthetic.yaml",
        folder=f"runs/{run_id}",
    )
