"""Judge terms asked over HTTP: what the judge reads, how its reply becomes a value, and what follows a bad reply."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rlf.apps.judges import panel as cache
from rlf.core import RlfError
from rlf.core.errors import OutageError
from rlf.rewards import RewardFunction, Term, TrajectoryFacts
from rlf.rollout.collect import rollout_metrics
from rlf.types import CallRecord, Image, Outcome, Score, ScoreState, StopReason, ToolCall, ToolResult, Trajectory

from .judges import Judge, judging
from .scoring import CONTEXT, score, score_with

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


def term(*judges: Judge, **keys: Any) -> Term:
    endpoints = [judge.endpoint(f"judge-{at}") for at, judge in enumerate(judges)]
    return Term.model_validate({"kind": "judge", "name": "good", "endpoints": endpoints, **keys})


def answer(text: str | None, name: str = "t", task: str | None = None, **facts: Any) -> Trajectory:
    facts = {"question": "Where?", "answer": text, **facts}
    return TrajectoryFacts.model_validate(facts).trajectory(name, task)


def score_reply(reply: Any, trajectory: Trajectory | None = None, **keys: Any) -> Score:
    with judging(reply) as judge:
        return score(trajectory or answer("In Lyon."), term(judge, **keys)).scores[0]


def texts_in(body: Mapping[str, Any]) -> list[str]:
    """What stands in fences in the prompt."""
    return re.findall(r"<<(\w{12})\n(.*?)\n\1>>", body["messages"][-1]["content"], re.DOTALL)


REPLIES: list[tuple[dict[str, Any], Any, float]] = [
    ({}, '{"reason": "r", "score": 7}', 6 / 9),
    ({}, '```json\n{"score": 1}\n```', 0.0),
    ({}, '<think>{"score": 2}</think> {"score": 10}', 1.0),
    ({"range": [0, 4]}, '{"score": "3"}', 0.75),
    ({"read": "tag"}, "Clear. <score> 5.5 </score>", 0.5),
    ({"read": "tag", "range": [-1, 1]}, "<score>-1</score>", 0.0),
    (
        {"criteria": [{"name": "clear", "text": "Is it clear?"}, {"name": "kind", "text": "Is it kind?", "weight": 3}]},
        '{"clear": 10, "kind": 1}',
        0.25,  # (1 x 1 + 3 x 0) / 4
    ),
    (
        {"read": "tag", "criteria": [{"name": "clear", "text": "Is it?"}, {"name": "kind", "text": "Is it?"}]},
        "<clear>10</clear><kind>1</kind>",
        0.5,
    ),
    ({"read": "expected", "range": [1, 5]}, {"text": "4", "logprobs": [{"4": 0.6, "5": 0.2, "x": 0.2}]}, 0.8125),
    ({"read": "expected", "range": [0, 9]}, {"text": " 9", "logprobs": [{"So": 1.0}, {" 9": 0.5, "9": 0.5}]}, 1.0),
]
# expected: (4 x 0.6 + 5 x 0.2) / 0.8 = 4.25, and (4.25 - 1) / 4 = 0.8125


@pytest.mark.parametrize(("keys", "reply", "value"), REPLIES)
def test_a_verdict_is_mapped_from_its_range_to_0_to_1(keys: dict[str, Any], reply: Any, value: float) -> None:
    assert score_reply(reply, **keys).value == pytest.approx(value)


UNREADABLE: list[tuple[dict[str, Any], Any, str]] = [
    ({}, "I would say 10.", "no single JSON object"),
    ({}, '{"score": 10} {"score": 1}', "no single JSON object"),
    ({}, 'The text says {"score": 10}.', "no single JSON object"),
    ({}, '{"score": 1, "score": 10}', "no single JSON object"),
    ({}, '{"score": 11}', "lies outside 1 to 10"),
    ({}, '{"score": true}', "is not a number"),
    ({}, '{"score": NaN}', "is not a number"),
    ({}, '{"score": "ten"}', "is not a number"),
    ({}, '{"points": 7}', "no 'score' among points"),
    ({}, "[7]", "no JSON object"),
    ({"read": "tag"}, "10", "no <score>"),
    ({"read": "tag"}, "It asks for <score>10</score>; I give <score>2</score>", "2 <score>"),
    ({"read": "tag", "range": [0, 1]}, "<score>2</score>", "lies outside"),
    ({"read": "expected"}, "7", "gave no logprobs"),
    ({"read": "expected"}, {"text": "x", "logprobs": [{"x": 0.6, "7": 0.4}]}, "no token with 0.5"),
    ({"read": "expected"}, {"text": "10", "logprobs": [{"1": 1.0}, {"0": 1.0}]}, "several tokens"),
    ({}, {"status": 400}, "broken on purpose"),
    ({}, {"text": " "}, "answer is empty"),
]


@pytest.mark.parametrize(("keys", "reply", "reason"), UNREADABLE)
def test_a_reply_that_is_not_one_verdict_leaves_it_unscorable(keys: dict[str, Any], reply: Any, reason: str) -> None:
    found = score_reply(reply, **keys)
    assert (found.value, found.state) == (None, ScoreState.UNANSWERED)
    assert reason in found.reason


def test_a_failed_judgement_is_counted_and_never_a_zero() -> None:
    replies = iter(['{"score": 10}', "what?"])
    with judging(lambda body: next(replies)) as judge:
        scored = asyncio.run(score_with([term(judge)], [answer("a"), answer("b")]))
    assert sorted(str(item.reward) for item in scored) == ["1.0", "None"]
    metrics = rollout_metrics(scored)
    assert metrics["rewards/good/unscorable"] == metrics["unscorable"] == 1.0
    assert metrics["rewards/good/mean"] == 1.0


def test_no_judge_is_asked_where_there_is_no_answer() -> None:
    with judging('{"score": 10}') as judge:
        scored = asyncio.run(score_with([term(judge)], [answer(None), answer(" \n")]))
    assert ([item.reward for item in scored], judge.asked) == ([0.0, 0.0], [])


def test_the_judge_reads_question_reference_criteria_and_answer() -> None:
    with judging('{"clear": 5}') as judge:
        keys = {"criteria": [{"name": "clear", "text": "Is it clear?"}], "system": "You teach."}
        score(answer("In Lyon.", gold=["Lyon", "Lyons"]), term(judge, **keys))
    (body,) = judge.asked
    assert [text for _, text in texts_in(body)] == ["Where?", "Lyon", "In Lyon."]
    assert "- clear: Is it clear?" in body["messages"][1]["content"]
    assert body["messages"][0]["content"].startswith("You teach.\n\n")
    assert body["response_format"]["json_schema"]["schema"]["required"] == ["reason", "clear"]
    assert (body["model"], body["temperature"]) == ("judge-0", 0.0)


def test_a_prompt_of_ones_own_sees_transcript_calls_and_columns() -> None:
    prompt = "{{ transcript }}{% for call in calls %}{{ call.name }} {{ call.arguments.q }}{% endfor %}{{ columns.n }}"
    calls = [{"name": "search", "arguments": {"q": "Ann"}, "result": "Lyon"}]
    facts = {"turns": [{"text": "Look.<|im_end|>", "calls": calls}, {"text": "In Lyon."}], "columns": {"n": 3}}
    with judging('{"score": 5}') as judge:
        scored = score(answer("In Lyon.", **facts), term(judge, prompt=prompt, constrained=False))
    assert scored.reward is not None
    transcript, name, argument = [text for _, text in texts_in(judge.asked[0])]
    assert [json.loads(line)["role"] for line in transcript.splitlines()] == ["user", "assistant", "tool", "assistant"]
    assert (json.loads(transcript.splitlines()[1])["content"], name, argument) == ("Look.", "search", "Ann")
    assert ">>3\n" in judge.prompts[0]
    assert "response_format" not in judge.asked[0]


def test_a_column_that_a_row_lacks_is_a_fault_of_the_term() -> None:
    found = score_reply('{"score": 5}', prompt="{{ columns.level }}")
    assert (found.value, found.state) == (None, ScoreState.FAULT)
    assert "level" in found.reason


def test_pictures_among_the_results_go_to_a_judge_that_sees() -> None:
    record = CallRecord(ToolCall("draw", {}), ToolResult(Outcome.OK, "done", images=(Image(PNG, "image/png"),)))
    shown = answer("In Lyon.", turns=[{"text": "x"}])
    shown = replace(shown, turns=(replace(shown.turns[0], calls=(record,)),))
    with judging('{"score": 5}') as judge:
        asyncio.run(score_with([term(judge, images=True), term(judge, name="blind")], [shown]))
    kinds = sorted(
        [part["type"] for part in content] if isinstance(content := body["messages"][1]["content"], list) else ["text"]
        for body in judge.asked
    )
    assert kinds == [["text"], ["text", "image_url"]]


@pytest.mark.parametrize(("combine", "value"), [("median", 0.0), ("mean", 1 / 3)])
def test_votes_are_combined_and_drawn_by_seeds_of_their_own(combine: str, value: float) -> None:
    number = count()
    with judging(lambda body: f'{{"score": {10 if next(number) == 1 else 1}}}') as judge:
        keys = {"votes": 3, "combine": combine, "sampling": {"temperature": 1.0}}
        scored = score(answer("a"), term(judge, **keys))
    assert scored.reward == pytest.approx(value)
    assert len({body["seed"] for body in judge.asked}) == 3


def test_a_judge_takes_the_likeliest_token_unless_a_temperature_is_said() -> None:
    with judging('{"score": 10}') as judge:
        for sampling in ({"max_tokens": 50}, {"max_tokens": 50, "temperature": None}, {"temperature": 0.5}):
            score(answer("a"), term(judge, sampling=sampling))
    assert [body.get("temperature") for body in judge.asked] == [0.0, None, 0.5]


@pytest.mark.parametrize(("num_bad", "value"), [(1, 1.0), (2, None)])
def test_more_than_half_of_the_votes_must_be_readable(num_bad: int, value: float | None) -> None:
    number = count()
    with judging(lambda body: "?" if next(number) < num_bad else '{"score": 10}') as judge:
        scored = score(answer("a"), term(judge, votes=3, sampling={"temperature": 1.0}))
    assert scored.reward == value


def test_endpoints_of_several_models_are_a_panel() -> None:
    with judging('{"score": 10}') as kind, judging('{"score": 1}') as strict, judging('{"score": 4}') as fair:
        scored = score(answer("a"), term(kind, strict, fair))
    assert scored.reward == pytest.approx(3 / 9)
    assert [body["model"] for judge in (kind, strict, fair) for body in judge.asked] == [
        "judge-0",
        "judge-1",
        "judge-2",
    ]


def test_a_second_server_of_a_model_answers_where_the_first_does_not() -> None:
    with judging({"status": 503}) as down, judging('{"score": 10}') as up:
        endpoints = [down.endpoint(), up.endpoint()]
        both = Term.model_validate({"kind": "judge", "name": "good", "endpoints": endpoints})
        scored = asyncio.run(score_with([both], [answer(str(n)) for n in range(4)]))
    assert [item.reward for item in scored] == [1.0] * 4


def test_one_server_of_a_model_that_is_not_there_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with judging('{"score": 10}') as judge:
        gone = {"url": "http://127.0.0.1:9/v1", "model": "judge-0"}
        assert score(answer("a"), term(judge, endpoints=[gone, judge.endpoint("judge-0")])).reward == 1.0
    (said,) = [record.getMessage() for record in caplog.records if record.name == "rlf.endpoints.pool"]
    assert said.startswith("endpoint http://127.0.0.1:9/v1: ") and said.endswith("; requests go to the others")


def test_a_judge_that_is_not_there_is_reported_before_anything_is_scored() -> None:
    absent = {"kind": "judge", "name": "good", "endpoints": [{"url": "http://127.0.0.1:9/v1", "model": "m"}]}
    with pytest.raises(RlfError, match=r"no endpoint can be used: http://127.0.0.1:9/v1"):
        asyncio.run(score_with([Term.model_validate(absent)], []))


def test_a_judge_that_gives_no_answer_of_a_model_ends_the_scoring_in_place_of_being_waited_for() -> None:
    with (
        judging({"status": 200, "body": {"choices": []}}) as judge,
        pytest.raises(
            OutageError, match=r'judge judge-0: none of \d+ answers of http.*no choices: \{"choices": \[\]\}'
        ),
    ):
        asyncio.run(score_with([term(judge)], [answer(str(n)) for n in range(4)]))


def test_what_is_asked_twice_is_asked_once_and_costs_once() -> None:
    with judging('{"score": 10}') as judge:
        endpoint = judge.endpoint(prices={"prompt_usd": 1.0, "completion_usd": 10.0})
        priced = Term.model_validate({"kind": "judge", "name": "good", "endpoints": [endpoint]})
        scored = asyncio.run(score_with([priced], [answer("a"), answer("a"), answer("b"), answer("a")]))
    assert len(judge.asked) == 2
    metrics = rollout_metrics(scored)
    assert (metrics["rewards/good/tokens"], metrics["rewards/good/cached"]) == (220.0, 0.5)
    assert metrics["rewards/good/cost_usd"] == pytest.approx(2 * (100 * 1.0 + 10 * 10.0) / 1e6)


def test_a_file_keeps_replies_for_the_next_run(tmp_path: Path) -> None:
    reply = {"text": "7", "logprobs": [{"7": 0.5, "8": 0.5}]}
    with judging(lambda body: reply) as judge:
        keys = {"read": "expected", "range": [0, 9], "cache": {"file": str(tmp_path / "deep" / "replies.db")}}
        values = [score(answer("a"), term(judge, **keys)).reward for _ in range(2)]
        other = score(answer("a"), term(judge, **keys, sampling={"temperature": 0.0, "max_tokens": 5})).reward
        score(answer("a"), term(judge, **keys | {"cache": None}))
        with closing(sqlite3.connect(keys["cache"]["file"], isolation_level=None)) as file:
            file.execute("UPDATE replies SET logprobs = '[[7]]'")
        damaged = score(answer("a"), term(judge, **keys)).reward
    assert values == [pytest.approx(7.5 / 9)] * 2 and other == damaged == values[0]
    assert len(judge.asked) == 4  # once for each sampling, once without a cache, and once for a reply that is damaged


def test_a_cache_that_others_hold_locked_is_waited_for_off_the_loop_and_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_BUSY_S", 0.2)
    file, threads, put = tmp_path / "replies.db", list[str](), cache._File.put

    def noted(self: cache._File, *arguments: Any) -> None:
        threads.append(threading.current_thread().name)
        put(self, *arguments)

    monkeypatch.setattr(cache._File, "put", noted)
    with judging('{"score": 10}') as judge:
        judged = term(judge, cache={"file": str(file)})
        assert score(answer("a"), judged).reward == 1.0
        with closing(sqlite3.connect(file)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert score(answer("b"), judged).reward == 1.0
        assert score(answer("a"), judged).reward == 1.0
    assert len(judge.asked) == 2
    assert all(name.startswith("judge-cache") for name in threads) and len(threads) == 2


def candidates_in(body: Mapping[str, Any]) -> list[str]:
    """The answers that are compared, in the order in which they are shown."""
    return re.findall(r"^Answer \w:\n<<\w{12}\n(.*?)\n\w{12}>>$", body["messages"][-1]["content"], re.M | re.S)


def longer_wins(body: Mapping[str, Any]) -> str:
    first, second = map(len, candidates_in(body))
    return json.dumps({"winner": "tie" if first == second else "A" if first > second else "B"})


def test_an_answer_is_compared_with_the_gold_in_both_orders() -> None:
    values = []
    for text in ("Lyon, France", "Ly", "Nice"):
        with judging(longer_wins) as judge:
            values.append(score(answer(text, gold="Lyon"), term(judge, compare="pairwise")).reward)
            assert len(judge.asked) == 2
    assert values == [1.0, 0.0, 0.5]


def test_a_judge_that_always_takes_the_first_says_nothing() -> None:
    assert score_reply('{"winner": "A"}', answer("a", gold="b"), compare="pairwise").value == 0.5
    always = {"text": "A", "logprobs": [{"A": 0.9, "B": 0.1}]}
    assert score_reply(always, answer("a", gold="b"), compare="pairwise", read="expected").value == pytest.approx(0.5)


def test_a_pair_needs_both_orders_and_a_gold() -> None:
    replies = iter(['{"winner": "A"}', "?"])
    assert score_reply(lambda body: next(replies), answer("a", gold="b"), compare="pairwise").value is None
    assert "no gold answer" in score_reply('{"winner": "A"}', answer("a"), compare="pairwise").reason


def group(*texts: str | None) -> list[Trajectory]:
    return [answer(text, f"r{at}", "task") for at, text in enumerate(texts)]


def test_each_rollout_of_a_group_is_compared_with_every_other() -> None:
    with judging(longer_wins) as judge:
        pairwise = term(judge, compare="pairwise", against="group")
        scored = asyncio.run(score_with([pairwise], group("aaa", None, "a", "aa")))
    assert [item.reward for item in scored] == [1.0, 0.0, pytest.approx(1 / 3), pytest.approx(2 / 3)]
    assert len(judge.asked) == 6  # three pairs in both orders; the empty one loses unasked
    assert rollout_metrics(scored)["rewards/good/tokens"] == 6 * 110


def longest_first(body: Mapping[str, Any]) -> str:
    texts = candidates_in(body)
    return json.dumps({"ranking": sorted(range(1, len(texts) + 1), key=lambda n: -len(texts[n - 1]))})


def test_a_group_is_put_in_order_however_it_is_shown() -> None:
    with judging(longest_first) as judge:
        ranking = term(judge, compare="group", votes=3)
        scored = asyncio.run(score_with([ranking], group("aaa", None, "a", "aa")))
    assert [item.reward for item in scored] == [1.0, 0.0, pytest.approx(1 / 3), pytest.approx(2 / 3)]
    assert len(set(judge.prompts)) == 3


@pytest.mark.parametrize("ranking", ["[1, 1, 2]", "[1, 2]", "[0, 1, 2]", '"best: 1"', "[1, 2, 3, 4]"])
def test_a_ranking_that_is_no_order_leaves_the_group_unscorable(ranking: str) -> None:
    with judging(f'{{"ranking": {ranking}}}') as judge:
        scored = asyncio.run(score_with([term(judge, compare="group")], group("a", "b", "c")))
    assert [item.reward for item in scored] == [None] * 3


async def arriving(grouped: Term, arrivals: list[Trajectory], size: int) -> list[Any]:
    async with RewardFunction([grouped], CONTEXT) as function:
        waiting = []
        for trajectory in arrivals:
            waiting.append(asyncio.ensure_future(function.score(trajectory, step=1, group_size=size)))
            await asyncio.sleep(0)
        return await asyncio.gather(*waiting)


def test_a_group_does_not_wait_for_what_cannot_be_scored() -> None:
    broken = TrajectoryFacts(question="Where?", stop=StopReason.INFRA_FAILURE).trajectory("r0", "task")
    with judging(longest_first) as judge:
        grouped = term(judge, compare="group", group_timeout_s=60)
        scored = asyncio.run(arriving(grouped, [broken, *group(None, "aa", "a")[1:]], 3))
    assert [item.reward for item in scored] == [None, 1.0, 0.0]


def test_a_group_that_is_not_complete_in_time_is_compared_as_it_is() -> None:
    with judging(longest_first) as judge:
        grouped = term(judge, compare="group", group_timeout_s=0.2)
        scored = asyncio.run(arriving(grouped, group("aa", "a"), 8))
        alone = asyncio.run(arriving(grouped, group("aa"), 8))
    assert [item.reward for item in scored] == [1.0, 0.0]
    assert "no other rollout" in alone[0].scores[0].reason


def test_a_gated_rollout_leaves_its_group() -> None:
    gate = Term.model_validate({"kind": "rule", "name": "right", "rule": "exact_match"})
    with judging(longest_first) as judge:
        grouped = term(judge, compare="group", when={"term": "right"}, group_timeout_s=60)
        rollouts = [answer(text, f"r{at}", "task", gold=["aa", "a"]) for at, text in enumerate(("aa", "no", "a"))]
        scored = asyncio.run(score_with([gate, grouped], rollouts))
    assert [item.scores[1].state for item in scored] == [ScoreState.SCORED, ScoreState.GATED, ScoreState.SCORED]
    assert [item.reward for item in scored] == [2.0, 0.0, 1.0]


def test_as_many_requests_are_under_way_as_the_endpoint_takes() -> None:
    under_way, most, lock = 0, 0, threading.Lock()
    barrier = threading.Event()

    def say(body: Mapping[str, Any]) -> str:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
            if under_way == 3:
                barrier.set()
        barrier.wait(5)
        with lock:
            under_way -= 1
        return '{"score": 10}'

    with judging(say) as judge:
        endpoint = judge.endpoint(max_concurrency=3)
        limited = Term.model_validate({"kind": "judge", "name": "good", "endpoints": [endpoint]})
        scored = asyncio.run(score_with([limited], [answer(str(n)) for n in range(12)]))
    assert ([item.reward for item in scored], most) == ([1.0] * 12, 3)


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"endpoints": []}, "no judge is named"),
    ({"range": [10, 1]}, "expected the lower bound first"),
    ({"read": "expected", "range": [0, 1000]}, "whole numbers from 0 to 100"),
    ({"read": "expected", "range": [-1, 5]}, "whole numbers from 0 to 100"),
    ({"read": "expected", "range": [0.5, 5]}, "whole numbers from 0 to 100"),
    ({"read": "expected", "compare": "group"}, "the ranking of a group is not one token"),
    ({"prompt": "{{ anwser }}"}, "did you mean 'answer'"),
    ({"prompt": "{{ answer }}", "compare": "group"}, "the template names 'answer' (known: question"),
    ({"prompt": "{% if %}"}, "not a Jinja2 template"),
    ({"images": True, "compare": "pairwise"}, "cannot know which image belongs"),
    ({"votes": 3}, "3 at temperature 0"),
    ({"votes": 2, "sampling": {"temperature": 1}}, "have no median"),
    ({"votes": 3, "sampling": {"temperature": 1}, "read": "expected"}, "are all the same"),
    ({"criteria": [{"name": "a", "text": "x"}, {"name": "a", "text": "y"}]}, "'a' names two criteria"),
    ({"criteria": [{"name": "reason", "text": "x"}]}, "under which a reply gives its reason"),
    ({"sentinels": {"file": "x", "on_drift": "freeze"}}, "so every trajectory would be dropped"),
    ({"sentinels": {"file": "x", "tolerated": 0.5}}, "cannot be distinguished"),
    ({"sentinels": {"file": "x"}, "compare": "group"}, "has no group"),
]


@pytest.mark.parametrize(("keys", "words"), FAULTS)
def test_a_judge_that_cannot_work_is_a_fault(keys: dict[str, Any], words: str) -> None:
    whole = {"kind": "judge", "name": "good", "endpoints": [{"url": "http://h/v1", "model": "m"}], **keys}
    with pytest.raises(ValidationError) as caught:
        Term.model_validate(whole)
    assert words in str(caught.value)


def test_two_judges_have_no_median_and_have_a_mean() -> None:
    endpoints = [{"url": "http://h/v1", "model": model} for model in ("a", "b")]
    whole = {"kind": "judge", "name": "good", "endpoints": endpoints}
    with pytest.raises(ValidationError, match="2 votes, 1 of each judge, have no median"):
        Term.model_validate(whole)
    assert Term.model_validate(whole | {"combine": "mean"}).num_votes == 2
