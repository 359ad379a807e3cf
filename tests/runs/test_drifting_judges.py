"""A judge that drifts in the middle of a run: what the lineage tells of it, and what each policy does about it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlf.core import RunError
from rlf.lineage.reader import Reader
from rlf.lineage.records import LoggedEvent, Run, TrainingStep
from rlf.runs.place import open_lineage
from rlf.runs.resume import resume
from rlf.runs.start import run
from rlf.types import Score, StepFinished

from ..rewards.judges import judging
from .test_runs import Watch

NUM_STEPS, DRIFTED_FROM = 5, 3
SPEC = """\
name: judged
model: {{path: builtin:tiny}}
data: {{train: {{path: builtin:encyclopedia/train, prompt: question, answer: answer}}}}
tools: []
rewards:
  - kind: judge
    name: good
    endpoints: [{{url: "{url}", model: judge}}]
    sentinels: {{file: sentinels.jsonl, rate: 1.0, alarm: 4.0, window: 20, on_drift: {on_drift}}}
    unscorable: drop_term
  - {{kind: rule, name: length, rule: length, at_least: 1, at_most: 60}}
rollout: {{num_generations: 4, max_turns: 1, max_total_tokens: 160, max_new_tokens: 16}}
train: {{algorithm: grpo, steps: {steps}, prompts_per_step: 4}}
checkpoint: {{every: 1, keep: 9}}
"""
SENTINELS = [
    {"question": "Q", "answer": "a fine one", "label": True},
    {"question": "Q", "answer": "a poor one", "label": False},
]


@dataclass
class Drifted:
    """A run, as its lineage has it."""

    run: Run
    steps: Sequence[TrainingStep]
    alarms: Sequence[LoggedEvent]
    scores: Mapping[int, Sequence[Score]]
    """Of the judge, by step."""
    rewards: Mapping[int, Sequence[float | None]]
    """By step."""


def drifting(folder: Path, on_drift: str, killed_after: int | None = None) -> Drifted:
    """A run whose judge says 10 to everything from a step on, and before that tells good from bad.

    Args:
        killed_after: a step after which the run is cut off, to be resumed from the checkpoint before it.
    """
    has_drifted = False

    def say(body: Mapping[str, Any]) -> str:
        return json.dumps({"score": 1 if "a poor one" in str(body["messages"]) and not has_drifted else 10})

    def after(event: Any) -> None:
        nonlocal has_drifted
        has_drifted |= isinstance(event, StepFinished) and event.step == DRIFTED_FROM - 1
        if isinstance(event, StepFinished) and event.step == killed_after:
            raise ZeroDivisionError

    (folder / "sentinels.jsonl").write_text("\n".join(map(json.dumps, SENTINELS)))
    with judging(say) as judge:
        (folder / "run.yaml").write_text(SPEC.format(url=judge.url, on_drift=on_drift, steps=NUM_STEPS))
        try:
            run([folder / "run.yaml"], [], runs_folder=folder / "runs", view=Watch(after), command=["rlf", "run"])
        except RunError:
            assert on_drift == "stop"
        except ZeroDivisionError:
            runs, command = folder / "runs", ["rlf", "resume"]
            resume("latest", runs_folder=runs, view=Watch(), command=command, from_step=DRIFTED_FROM)
    return recorded(folder)


def recorded(folder: Path) -> Drifted:
    with open_lineage(folder / "runs") as store:
        reader = Reader(store)
        found = reader.get_run("latest")
        run_id = found.record.id
        steps = reader.steps(run_id)
        whole = {s.step: [reader.trajectory(run_id, k=k, step=s.step).scored for k in range(16)] for s in steps}
        return Drifted(
            found,
            steps,
            [event for event in reader.events(run_id) if event.level == "alarm"],
            {step: [each.scores[0] for each in items if each.scores] for step, items in whole.items()},
            {step: [each.reward for each in items if each.scores] for step, items in whole.items()},
        )


def test_a_warning_is_in_the_lineage_with_the_step_and_the_run_goes_on(tmp_path: Path) -> None:
    found = drifting(tmp_path, "warn")
    assert found.run.status == "finished" and len(found.steps) == NUM_STEPS
    kappas = [step.metrics.get("rewards/good/kappa") for step in found.steps]
    assert kappas[0] is None and kappas[1:DRIFTED_FROM] == [1.0] * (DRIFTED_FROM - 1)
    assert kappas[DRIFTED_FROM] < 1.0 and kappas[-1] < 0.2
    assert found.alarms and f"(step {DRIFTED_FROM})" in found.alarms[0].text
    assert all(f"(step {step})" not in alarm.text for alarm in found.alarms for step in range(1, DRIFTED_FROM))
    assert all(score.value is not None for scores in found.scores.values() for score in scores if score.usage)


@pytest.mark.parametrize("killed_after", [None, DRIFTED_FROM + 1])
def test_a_frozen_term_has_no_value_from_the_alarm_on_and_the_others_are_the_reward(
    tmp_path: Path, killed_after: int | None
) -> None:
    found = drifting(tmp_path, "freeze", killed_after)
    assert found.run.status == "finished" and len(found.steps) == NUM_STEPS
    assert len(found.alarms) == 1 and found.alarms[0].text.endswith("the term is frozen")
    assert all(score.value is not None for step in (1, 2) for score in found.scores[step])
    late = [score for step in (DRIFTED_FROM + 1, NUM_STEPS) for score in found.scores[step]]
    assert {(score.value, score.weight) for score in late} == {(None, 0.0)}
    assert {score.reason for score in late} == {f"frozen since step {DRIFTED_FROM}, when the judge had drifted"}
    assert all(reward in (0.0, 1.0) for reward in found.rewards[NUM_STEPS])


def test_a_run_that_is_to_stop_fails_with_the_reason_after_the_last_sound_step(tmp_path: Path) -> None:
    found = drifting(tmp_path, "stop")
    assert found.run.status == "failed" and "rewards.good: the judge has drifted" in (found.run.error or "")
    assert [step.step for step in found.steps] == list(range(1, DRIFTED_FROM))
