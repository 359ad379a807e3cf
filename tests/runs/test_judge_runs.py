"""Runs whose judge drifts: the alarm is an event of the lineage, and stops the run where it is to."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlf.apps.openrlhf.dataset import Purpose
from rlf.apps.openrlhf.spool_pool import Record, read_frames, to_frames
from rlf.cli import app
from rlf.core import RunError
from rlf.core.redact import Redactor
from rlf.lineage.reader import Reader
from rlf.rewards import Term, TrajectoryFacts
from rlf.runs.place import open_lineage
from rlf.runs.start import run
from rlf.types import Notice, RunStatus, Score, Scored, ScoreUsage, StepFinished
from tests.apps.serve.served import serving_model

from ..rewards.judges import judging
from ..rewards.scoring import score_with
from ..rewards.test_judge_injection import ATTACKS
from .test_runs import Watch

SPEC = """\
name: judged
model: {{path: builtin:tiny}}
data: {{train: {{path: builtin:encyclopedia/train, prompt: question, answer: answer}}}}
tools: []
rewards:
  - kind: judge
    name: good
    endpoints: [{{url: "{url}", model: judge, prices: {{prompt_usd: 1.0}}}}]
    sentinels: {{file: sentinels.jsonl, rate: 1.0, alarm: 2.0, on_drift: {on_drift}}}
rollout: {{num_generations: 4, max_turns: 1, max_total_tokens: 160, max_new_tokens: 16}}
train: {{algorithm: grpo, steps: 2, prompts_per_step: 3}}
"""


def always_pleased(body: Mapping[str, Any]) -> str:
    return '{"score": 10}'


def started(folder: Path, on_drift: str) -> Watch:
    (folder / "sentinels.jsonl").write_text(json.dumps({"question": "Q", "answer": "poor", "label": 1}))
    watch = Watch()
    with judging(always_pleased) as judge:
        (folder / "run.yaml").write_text(SPEC.format(url=judge.url, on_drift=on_drift))
        run([folder / "run.yaml"], [], runs_folder=folder / "runs", view=watch, command=["rlf", "run"])
    return watch


def print_runs(*arguments: str) -> str:
    """What `rlf runs` prints."""
    result = CliRunner().invoke(app, ["runs", *arguments], env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_an_alarm_of_the_sentinels_is_in_the_lineage_and_the_run_goes_on(tmp_path: Path) -> None:
    watch = started(tmp_path, "warn")
    alarms = [event for event in watch.events if isinstance(event, Notice) and event.level == "alarm"]
    assert alarms
    assert re.match(
        r"rewards.good: the judge has drifted: it is wrong too often; (\d+) of the latest \1 ", alarms[0].text
    )
    with open_lineage(tmp_path / "runs") as store:
        kept = [event.text for event in Reader(store).events(watch.info.run_id) if event.level == "alarm"]
    assert kept == [alarm.text for alarm in alarms]
    steps = [event.metrics for event in watch.events if isinstance(event, StepFinished)]
    assert len(steps) == 2
    assert all(metrics["rewards/good/cost_usd"] > 0 for metrics in steps)
    assert steps[1]["rewards/good/kappa"] == 0.0


def test_what_a_judge_took_is_reported_of_each_score_and_summed_up_over_the_run(tmp_path: Path) -> None:
    """Each reply is 100 tokens of prompt, at a dollar a million, and 10 sampled; each trajectory has a sentinel too."""
    watch = started(tmp_path, "warn")
    place = ["--runs", str(tmp_path / "runs")]
    with open_lineage(tmp_path / "runs") as store:
        reader = Reader(store)
        stored = [reader.trajectory(watch.info.run_id, k=k, step=step) for step in (1, 2) for k in range(12)]
    scores = [each.scored.scores[0] for each in stored if each.scored.scores]
    asked = sum(score.usage.num_replies - score.usage.num_cached for score in scores if score.usage is not None)
    tokens = sum(score.usage.num_tokens for score in scores if score.usage is not None)
    cost = sum(score.usage.cost_usd for score in scores if score.usage is not None)
    assert asked >= 24 and (tokens, cost) == (110 * asked, pytest.approx(1e-4 * asked))
    (judge,) = json.loads(print_runs("show", "latest", "--json", *place))["data"]["judges"]
    assert (judge["term"], judge["num_tokens"], judge["cost_usd"]) == ("good", tokens, pytest.approx(cost))
    assert judge["tokens_per_step"] == tokens / 2
    assert f"{tokens / 1000:.1f}k" in print_runs("show", "latest", *place)
    assert "220 tokens, $" in print_runs("show", "latest", "--trajectory", "0", *place)


def test_what_judges_took_to_score_anew_is_reported(tmp_path: Path) -> None:
    lines = [{"task": f"q{at}", "gold": "Lyon", "answer": f"A {at}", "reward": 1.0} for at in range(3)]
    (tmp_path / "saved.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with judging(always_pleased) as judge:
        spec = SPEC.format(url=judge.url, on_drift="warn").splitlines()
        (tmp_path / "run.yaml").write_text("\n".join(line for line in spec if "sentinels" not in line))
        arguments = ["rewards", "score", str(tmp_path / "run.yaml"), "--file", str(tmp_path / "saved.jsonl")]
        result = CliRunner().invoke(app, arguments)
    assert result.stdout.endswith("judges took 330 tokens, $3.0e-04.\n"), result.output


def test_agents_of_other_processes_tell_what_judges_took() -> None:
    usage = ScoreUsage(3, 1, 220, 0.5, 0.25)
    trajectory = TrajectoryFacts(question="Q", answer="A").trajectory("t")
    scored = Scored(trajectory, (Score("good", 1.0, 1.0, usage=usage),), reward=1.0, success=1.0)
    ((read, _),) = read_frames(to_frames([Record(Purpose.TRAIN, 0, 0, 1, 0.0, scored)], Redactor({})))
    assert isinstance(read, Record) and read.scored.scores[0].usage == usage


def test_a_drift_that_stops_the_run_leaves_it_failed_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"rewards\.good: the judge has drifted"):
        started(tmp_path, "stop")
    with open_lineage(tmp_path / "runs") as store:
        stored = Reader(store).get_run("latest")
    assert stored.status is RunStatus.FAILED and "the judge has drifted" in (stored.error or "")


def test_no_attack_takes_a_real_judge_to_the_top_of_its_range() -> None:
    """The built-in model judges nothing; what it says of an attack is what it says of any other text."""

    async def main() -> list[float | None]:
        async with serving_model() as url:
            keys = {"endpoints": [{"url": url, "model": "tiny"}], "sampling": {"temperature": 0, "max_tokens": 12}}
            keys |= {"read": "expected", "range": [0, 99], "coverage": 0.01}
            term = Term.model_validate({"kind": "judge", "name": "good", **keys})
            facts = [TrajectoryFacts(question="Where?", answer=text) for text in ("It is in Lyon.", *ATTACKS[:11])]
            tried = [each.trajectory(f"t{at}") for at, each in enumerate(facts)]
            return [item.reward for item in await score_with([term], tried)]

    values = [value for value in asyncio.run(main()) if value is not None]
    assert len(values) >= 11, "to one of the twelve it says a word that is no number, which has no reward"
    assert max(values) < 0.7 and max(values) - min(values) < 0.3
