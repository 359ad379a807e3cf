"""An evaluation is under way as a whole while OpenRLHF asks for its rows batch by batch."""

from __future__ import annotations

import asyncio
import json

import pytest

from rlf.apps.openrlhf.shared import EvaluationAhead
from rlf.chat.encoding import load_tokenizer

from .agents import RIGHT, new_job, opened, records
from .fakes import FakeEngine, Params


def test_each_row_is_played_once_an_evaluation_and_all_of_them_from_the_first_that_is_asked_for():
    played = []

    async def play(label):
        played.append(label)
        return label.upper()

    async def run():
        ahead = EvaluationAhead(["a", "b", "c"], play)
        assert await ahead.take("b") == "B"
        assert sorted(played) == ["a", "b", "c"]
        assert [await ahead.take(label) for label in ("a", "c")] == ["A", "C"]
        assert len(played) == 3
        assert await asyncio.gather(*map(ahead.take, "cab")) == ["C", "A", "B"]
        assert sorted(played) == ["a", "a", "b", "b", "c", "c"]

    asyncio.run(run())


def evaluate(job):
    """What is answered for a job's evaluation rows, asked for one after the other, and the most requests at once."""
    tokenizer = load_tokenizer("rlf/builtin/tiny/checkpoint")
    engine = FakeEngine(tokenizer, [RIGHT], pause_s=0.05)
    most, now = 0, 0
    sample = engine.generate

    async def counted(*arguments):
        nonlocal most, now
        now += 1
        most = max(most, now)
        try:
            return await sample(*arguments)
        finally:
            now -= 1

    engine.generate = counted
    labels = [json.loads(line)["label"] for line in job.evaluation.read_text().splitlines()]

    async def run():
        async with opened(job) as agent:
            return [await agent.execute("row", label, Params(), tokenizer, engine) for label in labels]

    return asyncio.run(run()), len(labels), most


@pytest.mark.parametrize(
    ("overrides", "together"),
    [
        ((), True),
        (("+engine.mode=async", "+engine.colocate=actor_ref"), False),
        (("+engine.actor.per_node=2", "+engine.vllm.engines=2"), False),
    ],
)
def test_rows_are_played_ahead_where_one_actor_has_them_all_and_weights_stay(load, tmp_path, overrides, together):
    job = new_job(load, tmp_path, *overrides)
    responses, num_rows, most = evaluate(job)
    assert len(responses) == num_rows == len(records(job)) == 4
    assert most == (num_rows if together else 1)
