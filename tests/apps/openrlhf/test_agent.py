"""The agent plays rlf's loop inside OpenRLHF, tells it exactly what was sampled, and keeps every failure to itself."""

from __future__ import annotations

import asyncio
import copy
import math
import re
import time

import pytest

from rlf.apps.openrlhf.dataset import Purpose
from rlf.apps.openrlhf.policy import EnginePolicy, SamplerError
from rlf.apps.openrlhf.shared import Group, Tally, filler, round_reward
from rlf.apps.openrlhf.spool_pool import FilesOpened, Record
from rlf.chat.encoding import load_tokenizer
from rlf.core import RunError
from rlf.core.errors import OutageError
from rlf.rollout.rollout import find_broken
from rlf.spec.models import FilterSpec
from rlf.training import outages
from rlf.training.counting import is_kept
from rlf.types import Outcome, StopReason, Task, ToolCall, ToolResult
from rlf.types.events import Notice
from rlf.types.policy import Finish, SampleRequest, Sampling
from rlf.types.score import Scored
from rlf.types.trajectory import CallRecord, Trajectory, Turn

from ...algo.openrlhf_reference import reference_filter
from . import tools
from .agents import CALL, RIGHT, WRONG, new_job, play, records, spooled
from .fakes import FakeEngine, Params


def sampled(response):
    """The tokens of a response's action ranges."""
    return [token for start, end in response["action_ranges"] for token in response["observation_tokens"][start:end]]


def test_what_was_sampled_and_nothing_else_lies_in_the_action_ranges(load, tmp_path):
    job = new_job(load, tmp_path)
    responses, engine = play(job, [CALL, RIGHT], samples=1)
    tokenizer = load_tokenizer("rlf/builtin/tiny/checkpoint")
    (response,) = responses
    assert tokenizer.decode(sampled(response)) == CALL + RIGHT
    (call_start, call_end), (answer_start, answer_end) = response["action_ranges"]
    assert "Fentes" in tokenizer.decode(response["observation_tokens"][call_end:answer_start])
    assert answer_end == len(response["observation_tokens"])
    assert engine.requests[0][0] == response["observation_tokens"][:call_start]
    assert engine.requests[1][0] == response["observation_tokens"][:answer_start]
    assert response["reward"] == 1.0 == response["scores"]
    assert not response["truncated"]


def test_logprobs_are_aligned_with_the_tokens_and_0_where_nothing_was_sampled(load, tmp_path):
    (response,), _ = play(new_job(load, tmp_path), [CALL, RIGHT], samples=1)
    told = response["rollout_log_probs"]
    assert len(told) == len(response["observation_tokens"])
    actions = {place for start, end in response["action_ranges"] for place in range(start, end)}
    assert all((told[place] < 0) == (place in actions) for place in range(len(told)))
    start, end = response["action_ranges"][0]
    assert told[start:end] == pytest.approx([-0.5 - place / 100 for place in range(end - start)])


def test_without_correction_no_logprobs_are_reported(load, tmp_path):
    (response,), _ = play(new_job(load, tmp_path), [RIGHT], samples=1, params=Params(logprobs=None))
    assert response["rollout_log_probs"] is None


def test_the_shared_sampling_parameters_are_left_as_they_are(load, tmp_path):
    params = Params(max_tokens=7)
    before = copy.deepcopy(params)
    _, engine = play(new_job(load, tmp_path), [CALL, RIGHT], params=params)
    assert params == before
    assert all(used is not params for _, used in engine.requests)


def test_each_turn_has_its_own_budget_and_the_last_what_is_left_of_the_total(load, tmp_path):
    job = new_job(load, tmp_path, "rollout.max_new_tokens=60", "rollout.max_total_tokens=100")
    _, engine = play(job, [CALL, RIGHT], samples=1)
    budgets = [(len(tokens), params.max_tokens) for tokens, params in engine.requests]
    assert all(budget == min(60, 100 - context) for context, budget in budgets)


def test_a_trajectory_that_the_budget_cuts_is_truncated_and_keeps_its_reward(load, tmp_path):
    (response,), _ = play(new_job(load, tmp_path, "rollout.max_new_tokens=3"), [CALL], samples=1)
    assert response["truncated"]
    assert len(sampled(response)) == 3


def test_requests_have_no_seed(load, tmp_path):
    _, engine = play(new_job(load, tmp_path), [CALL], samples=2)
    assert {params.seed for _, params in engine.requests} == {None}


def test_samples_and_turns_of_a_deterministic_job_have_seeds_of_their_own(load, tmp_path):
    _, engine = play(new_job(load, tmp_path, "engine.deterministic=true"), [CALL], samples=4)
    seeds = [params.seed for _, params in engine.requests]
    assert len(set(seeds)) == len(seeds) > 4


def test_sampling_follows_the_spec_and_not_the_parameters_that_openrlhf_passes(load, tmp_path):
    job = new_job(load, tmp_path, "rollout.top_k=5", "rollout.temperature=0.7")
    _, engine = play(job, [RIGHT], samples=1, params=Params(temperature=9.0, top_p=0.1))
    used = engine.requests[0][1]
    assert (used.temperature, used.top_p, used.top_k, used.min_tokens, used.ignore_eos) == (0.7, 1.0, 5, 0, True)
    _, greedy = play(job, [RIGHT], samples=1, purpose=Purpose.GREEDY)
    assert 0.0 in {params.temperature for _, params in greedy.requests}


def test_every_response_of_a_group_has_the_same_numeric_extra_logs(load, tmp_path):
    lines = [RIGHT, WRONG, RuntimeError("the sampler hiccups"), CALL, RIGHT]
    responses, _ = play(new_job(load, tmp_path), lines)
    assert len({tuple(response["extra_logs"]) for response in responses}) == 1
    assert all(isinstance(value, float) for response in responses for value in response["extra_logs"].values())


def test_a_term_that_is_dropped_for_one_sample_is_dropped_for_its_whole_group(load, tmp_path):
    beside = '{kind: python, name: beside, callable: "tests.apps.openrlhf.tools:speaks_of_wrong_answers"'
    right = "{kind: rule, name: right, rule: exact_match}"
    job = new_job(load, tmp_path, f"rewards=[{right}, {beside}, unscorable: drop_term}}]")
    responses, _ = play(job, [RIGHT, WRONG, WRONG, RIGHT])
    assert sorted(response["reward"] for response in responses) == [0.0, 0.0, 1.0, 1.0]
    assert sorted(record.scored.reward for record in records(job)) == [0.0, 0.0, 1.0, 1.0]
    whole, _ = play(job, [WRONG], number=1)
    assert {response["reward"] for response in whole} == {1.0}, "where the whole group has a value, it counts"


@pytest.mark.parametrize(
    ("bounds", "lines", "is_kept"),
    [
        ("{}", [RIGHT, WRONG], True),
        ("{}", [WRONG], False),
        ("{}", [RIGHT], False),
        ("{low: -2}", [WRONG], True),
        ("{low: 0.9}", [RIGHT, WRONG], False),
    ],
)
def test_openrlhfs_filter_gets_the_decision_on_the_whole_group(load, tmp_path, bounds, lines, is_kept):
    # rewards of 2 x right - 1: 1 and -1, whose mean is within (0, 1) for no more than every other mixed group
    right = "{kind: rule, name: right, rule: exact_match, weight: 2}"
    base = "{kind: rule, name: base, rule: expression, formula: '0 * calls - 1', range: [-1, 0]}"
    job = new_job(load, tmp_path, f"rewards=[{right}, {base}]", f"+train.dynamic_filtering={bounds}")
    responses, _ = play(job, lines * 2)
    assert {response["reward"] for response in responses} == {{RIGHT: 1.0, WRONG: -1.0}[line] for line in lines}
    scores = [response["scores"] for response in responses]
    assert reference_filter([scores], 0.0, 1.0) == [is_kept]


def test_a_broken_trajectory_is_played_again_and_both_tries_are_recorded(load, tmp_path):
    job = new_job(load, tmp_path)
    responses, _ = play(job, [RIGHT, WRONG, RuntimeError("the sampler hiccups"), RIGHT])
    assert sorted(response["reward"] for response in responses) == [0.0, 1.0, 1.0, 1.0]
    assert all(len(sampled(response)) > 1 for response in responses)
    (broken,) = [record for record in records(job) if record.again]
    assert broken.scored.trajectory.stop is StopReason.INFRA_FAILURE
    assert broken.scored.trajectory.error == "RuntimeError: the sampler hiccups"
    name, row = broken.scored.trajectory.id, f"train/0/{broken.sample}"
    assert [record.scored.trajectory.id for record in records(job) if record.sample == broken.sample] == [
        name,
        f"{row}/1",
    ]
    assert name == row


def search_by(tool: str) -> str:
    """The override that has a function of `tools` search."""
    target = f'{{kind: python, callable: "tests.apps.openrlhf.tools:{tool}"}}'
    schema = "{type: object, properties: {query: {type: string}}, required: [query]}"
    return f"tools=[{{name: search, description: finds, inputSchema: {schema}, target: {target}}}]"


def test_the_files_that_a_tool_reads_are_named_in_the_spool(load, tmp_path):
    (tmp_path / "rows.csv").write_text("a")
    code = f"def search(query: str) -> str:\n    return open({str(tmp_path / 'rows.csv')!r}).read()\n"
    (tmp_path / "reading.py").write_text(code)
    target = search_by("unreachable").replace("tests.apps.openrlhf.tools:unreachable", f"{tmp_path}/reading.py:search")
    job = new_job(load, tmp_path, target)
    play(job, [CALL, RIGHT], samples=1)
    opened = [pair for line in spooled(job) if isinstance(line, FilesOpened) for pair in line.opened]
    assert (str(tmp_path / "reading.py"), str(tmp_path / "rows.csv")) in opened


def test_a_tool_that_never_answers_leaves_its_trajectory_out_and_no_other(load, tmp_path):
    job = new_job(load, tmp_path, search_by("unreachable"), "engine.outage_s=0")
    responses, _ = play(job, [CALL, RIGHT, RIGHT, RIGHT])
    assert sorted(len(sampled(response)) == 1 for response in responses) == [False, False, False, True]
    assert {response["reward"] for response in responses} == {1.0}
    (record,) = [record for record in tried(job) if record.scored.reward is None]
    (notice,) = [line for line in records(job) if isinstance(line, Notice)]
    assert notice.text.startswith("tool 'search' has not answered for 0 s (engine.outage_s): until it does, traj")
    assert record.scored.trajectory.error.startswith("tool 'search': unreachable")
    (left_out,) = [response for response in responses if response["extra_logs"]["unscorable"]]
    (start, end) = left_out["action_ranges"][0]
    assert record.scored.trajectory.action_mask[start:end] == [True]


def test_a_tool_that_never_answers_ends_the_job_before_its_step_is_mostly_left_out(load, tmp_path):
    job, tally = new_job(load, tmp_path, search_by("unreachable"), "engine.outage_s=0"), Tally()
    responses, _ = play(job, [CALL], tally=tally)
    assert len(responses) == 4, "one group of two may be left out: its row may be why"
    with pytest.raises(OutageError, match=r"tool 'search' has not answered .*unreachable.*`rlf resume`"):
        play(job, [CALL], number=1, tally=tally)
    assert len([record for record in tried(job) if record.row == 1]) == 4, "what was played is recorded"


def tried(job):
    """The trajectories that were recorded, without notices."""
    return [line for line in records(job) if isinstance(line, Record)]


def test_an_evaluation_waits_for_a_tool_that_comes_back_and_its_last_try_is_recorded(load, tmp_path, monkeypatch):
    monkeypatch.setattr(outages, "_FIRST_PAUSE_S", 0.01)
    tools.refusals = 2
    job = new_job(load, tmp_path, search_by("back_soon"), "engine.outage_s=60")
    play(job, [CALL] * 9 + [RIGHT], samples=1, purpose=Purpose.SAMPLED)
    assert tools.refusals == 0
    evaluated = [record for record in tried(job) if record.purpose is not Purpose.TRAIN]
    assert evaluated
    assert all(record.scored.reward is not None for record in evaluated)


def test_a_group_waits_for_a_tool_that_comes_back(load, tmp_path, monkeypatch):
    monkeypatch.setattr(outages, "_FIRST_PAUSE_S", 0.01)
    tools.refusals = 5
    job = new_job(load, tmp_path, search_by("back_soon"), "engine.outage_s=60")
    responses, _ = play(job, [CALL] * 9 + [RIGHT])
    assert tools.refusals == 0
    assert all(len(sampled(response)) > 1 and response["reward"] is not None for response in responses)
    assert sum(record.again for record in tried(job)) == 5
    assert all(record.scored.reward is not None for record in tried(job) if not record.again)
    notices = [line.text for line in records(job) if isinstance(line, Notice)]
    assert re.match(r"tool 'search' has been down for \d s; 4 trajectories wait for it", notices[0])
    assert re.fullmatch(r"tool 'search' answers again after \d s", notices[-1])


def test_whoever_tried_often_while_a_tool_was_down_is_not_left_out_once_it_is_back(load, tmp_path, monkeypatch):
    monkeypatch.setattr(outages, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(outages, "_LAST_PAUSE_S", 0.01)
    tools.refusals = 4 * outages.MAX_TRIES
    job = new_job(load, tmp_path, search_by("back_soon"), "engine.outage_s=60")
    responses, _ = play(job, [CALL] * 16 + [RIGHT])
    assert tools.refusals == 0
    assert not any(response["extra_logs"]["unscorable"] for response in responses)


ALONE = ("rollout.num_generations=1", "train.algorithm=reinforce")


def test_a_tool_that_answers_in_between_is_not_waited_for_without_end(load, tmp_path, monkeypatch):
    monkeypatch.setattr(outages, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(tools, "num_calls", 0)
    job = new_job(load, tmp_path, search_by("every_other"), "engine.outage_s=60", *ALONE)
    (response,), _ = play(job, [CALL] * 99, samples=1)
    assert response["extra_logs"]["unscorable"] and response["reward"] == 0.0
    assert [record.again for record in tried(job)] == [True] * (outages.MAX_TRIES - 1) + [False]


def called(outcome: Outcome, *, cached: bool = False, sample_s: float = 0.0) -> Scored:
    """A trajectory of one call, which ended after `sample_s`."""
    record = CallRecord(ToolCall("search", {}), ToolResult(outcome, "", cached=cached))
    turn, task = Turn(0, 1, 1, "", calls=(record,), sample_s=sample_s), Task("q", ())
    is_broken = outcome.is_infrastructure
    stop = StopReason.INFRA_FAILURE if is_broken else StopReason.ANSWERED
    trajectory = Trajectory("t", task, 0, [5], [True], [0.0], (turn,), stop, None, find_broken([record]))
    return Scored(trajectory, (), None if is_broken else 1.0, None)


async def leave_out(broken, down):
    return True


@pytest.mark.parametrize(
    "answered", [called(Outcome.OK, cached=True), called(Outcome.OK, sample_s=0.5)], ids=["cached", "answered before"]
)
def test_what_shows_nothing_of_now_ends_no_outage(answered):
    told = []
    services = outages.Outages(0, lambda level, text: told.append(text))
    broken = called(Outcome.UNREACHABLE, sample_s=1.0)
    services.note(broken, 0.0)
    services.note(answered, 0.0)
    assert not asyncio.run(services.may_play_again(broken, outages.Tries(), leave_out))
    assert "has not answered for 0 s" in told[0]
    services.note(called(Outcome.OK, sample_s=2.0), 0.0)
    assert "answers again" in told[1]
    assert asyncio.run(services.may_play_again(broken, outages.Tries(), leave_out))


def test_whoever_waits_for_a_tool_tries_as_soon_as_it_answers(monkeypatch):
    async def main() -> list[bool]:
        services = outages.Outages(3600, lambda level, text: None)
        broken = called(Outcome.UNREACHABLE)
        now = time.monotonic()
        services.note(broken, now)
        waiting = [asyncio.ensure_future(services.may_play_again(broken, outages.Tries(), leave_out)) for _ in range(3)]
        await asyncio.sleep(0)
        services.note(called(Outcome.OK), now + 1)
        return await asyncio.gather(*waiting)

    monkeypatch.setattr(outages, "_FIRST_PAUSE_S", 3600.0)
    assert asyncio.run(asyncio.wait_for(main(), 30)) == [True] * 3


def test_a_tool_that_ends_its_process_does_not_end_the_agent(load, tmp_path):
    job = new_job(load, tmp_path, search_by("dies"), "engine.outage_s=0")
    responses, _ = play(job, [CALL, RIGHT, RIGHT, RIGHT])
    assert sorted(len(sampled(response)) == 1 for response in responses) == [False, False, False, True]
    (record,) = [record for record in tried(job) if record.scored.reward is None]
    assert "the process of the tool ended during the call (exit code 9)" in record.scored.trajectory.error


def test_a_group_in_which_nothing_could_be_sampled_has_one_token_each(load, tmp_path):
    job = new_job(load, tmp_path, "rollout.max_total_tokens=8")
    responses, _ = play(job, [RIGHT])
    assert [len(sampled(response)) for response in responses] == [1] * 4
    assert {response["reward"] for response in responses} == {0.0}
    assert all(len(response["observation_tokens"]) > 1 for response in responses)


def test_a_sampler_that_fails_again_and_again_ends_the_job(load, tmp_path):
    job = new_job(load, tmp_path, "rollout.num_generations=64")
    with pytest.raises(RunError, match="64 trajectories failed in a row; the last: ValueError: dead"):
        play(job, [ValueError("dead")], samples=64)


def test_every_trajectory_is_on_disk_before_openrlhf_has_it(load, tmp_path):
    job = new_job(load, tmp_path)
    play(job, [RIGHT, WRONG])
    found = sorted(records(job), key=lambda record: record.sample)
    assert [(record.row, record.sample, record.step) for record in found] == [(0, sample, 1) for sample in range(4)]
    assert {record.scored.trajectory.id for record in found} == {f"train/0/{sample}" for sample in range(4)}


def test_the_step_of_a_group_follows_from_how_many_are_complete(load, tmp_path):
    job, tally = new_job(load, tmp_path), Tally()
    for number in range(5):
        play(job, [RIGHT], number=number, tally=tally)
    steps = {record.row: record.step for record in records(job)}
    assert steps == {0: 1, 1: 1, 2: 2, 3: 2, 4: 3}


def test_the_policy_is_evaluated_before_the_first_group_is_handed_over(load, tmp_path):
    job, tally = new_job(load, tmp_path, evaluate_first=True), Tally()
    play(job, [RIGHT], tally=tally)
    first = [record for record in records(job) if record.purpose is not Purpose.TRAIN]
    assert {(str(record.purpose), record.step) for record in first} == {("sampled", 0), ("greedy", 0)}
    assert len(first) == 4
    play(job, [RIGHT], number=1, tally=tally)
    assert len([record for record in records(job) if record.purpose is not Purpose.TRAIN]) == 4


REQUEST = SampleRequest("t", [1, 2, 3], max_tokens=8, sampling=Sampling(stop_token_ids=(1,)), seed=7)


def sample(lines, params=None, request=REQUEST, **options):
    tokenizer = load_tokenizer("rlf/builtin/tiny/checkpoint")
    return asyncio.run(EnginePolicy(FakeEngine(tokenizer, lines), params or Params(), **options).sample(request))


def test_a_turn_ends_with_the_stop_token_or_with_its_budget():
    assert sample(["Fentes<|im_end|>"]).finish is Finish.STOP
    assert sample(["Fentes<|im_end|>"]).tokens[-1] == 1
    assert sample(["Fentes"]).finish is Finish.LENGTH


def test_logprobs_of_another_temperature_than_what_was_sampled_are_not_kept():
    hot = SampleRequest("t", [1], max_tokens=8, sampling=Sampling(temperature=0.5, stop_token_ids=(1,)), seed=7)
    asked = {"params": Params(logprobs=None), "record_logprobs": True}
    assert all(math.isnan(value) for value in sample(["Fentes"], request=hot, **asked).logprobs)
    assert sample(["Fentes"], **asked).logprobs[0] == -0.5


def test_vllm_is_asked_for_no_logprobs_where_nothing_reads_them():
    assert all(math.isnan(value) for value in sample(["Fentes"], Params(logprobs=None)).logprobs)


def test_an_output_that_is_no_turn_is_an_error_of_the_sampler():
    class Aborts:
        async def generate(self, *_arguments, **_options):
            return None

    with pytest.raises(SamplerError, match="no output for trajectory t"):
        asyncio.run(EnginePolicy(Aborts(), Params()).sample(REQUEST))


def test_rewards_are_reported_on_a_grid_whose_sums_are_exact():
    assert round_reward(0.1) == round(0.1 * 2**14) / 2**14
    assert round_reward(0.5) == 0.5
    assert filler([]) == 0.0
    assert filler([0.25, 0.5]) == 0.375


def test_a_group_keeps_openrlhfs_own_rule_of_filtering():
    scores = [[0.0] * 4, [1.0] * 4, [0.0, 1.0, 0.0, 0.0], [0.1] * 4, [0.7] * 3 + [0.2], [1.0, 1.0, 1.0, 1.1]]
    groups = [[round_reward(score) for score in group] for group in scores]
    ours = [is_kept(scores, FilterSpec(low=0.1, high=1.0)) for scores in groups]
    assert ours == reference_filter(groups, 0.1, 1.0)


def test_a_group_that_is_left_by_all_is_over():
    group = Group(2)
    assert [group.join(), group.join()] == [0, 1]
    assert [group.leave(None), group.leave(None)] == [False, True]
    assert group.filler == 0.0 and not is_kept(group.rewards, FilterSpec(low=-0.5, high=0.5))
