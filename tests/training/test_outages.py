"""Which steps are not made, what waits for what is down, and what is played again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import pytest

from rlf.apps.evaluate.play import check_enough
from rlf.core.errors import OutageError
from rlf.rewards.function import weighted_sum
from rlf.rewards.term import Term
from rlf.rollout.rollout import find_broken
from rlf.spec.agent import AgentFailure
from rlf.training import outages
from rlf.training.outages import Broken, Outages, Tries, find_excess
from rlf.types import CallRecord, Outcome, Score, Scored, ScoreState, StopReason, ToolCall, ToolResult, Turn

from .trajectories import scored


def lost(*groups: tuple[str, str, int]) -> list[Broken]:
    """Trajectories that broke: the cause, the task, and how many."""
    return [Broken(cause, task) for cause, task, number in groups for _ in range(number)]


@pytest.mark.parametrize(
    ("broken", "down", "excess"),
    [
        # of 16: an eighth is 2, half is 8
        ([], (), None),
        (lost(("judge", "a", 1), ("judge", "b", 1)), ("judge",), None),
        (lost(("judge", "a", 1), ("judge", "b", 2)), ("judge",), "judge"),
        (lost(("judge", "a", 1), ("judge", "b", 2)), (), None),
        (lost(("judge", "a", 4)), ("judge",), None),
        (lost(("judge", "a", 2), ("tool", "b", 2)), ("judge", "tool"), None),
        (lost(("judge", "a", 4), ("tool", "b", 4)), (), None),
        (lost(("judge", "a", 4), ("tool", "b", 5)), (), "tool"),
    ],
    ids=[
        "nothing broke",
        "an eighth",
        "more than an eighth",
        "more than an eighth to what answers others",
        "one task alone",
        "an eighth each",
        "half",
        "more than half",
    ],
)
def test_a_step_may_lose_half_and_an_eighth_to_what_is_down(
    broken: list[Broken], down: tuple[str, ...], excess: str | None
) -> None:
    assert find_excess(broken, 16, down) == excess


def of_term(task: str, state: ScoreState, term: str = "good") -> Scored:
    """A trajectory with one term's score, which is 1 where it has one."""
    value = 1.0 if state is ScoreState.SCORED else None
    return replace(scored(task, value), scores=(Score(term, value, 1.0, "refused", state=state),))


DROPPED = Term.model_validate(
    {"kind": "rule", "name": "beside", "rule": "exact_match", "weight": 0.5, "unscorable": "drop_term"}
)


def beside(task: str, state: ScoreState) -> Scored:
    """A trajectory that has a reward of 1 with and without the term that may be dropped."""
    own, other = Score("good", 1.0, 1.0), Score("beside", None, 0.0, "refused", state=state)
    return replace(
        scored(task, 1.0), scores=(own, replace(other, value=0.0, weight=0.5) if state is ScoreState.SCORED else other)
    )


@dataclass
class Service:
    """A term that is back after some more calls."""

    down_for: int
    state: ScoreState = ScoreState.UNANSWERED
    patience_s: float = 60.0
    notices: list[str] = field(default_factory=list)
    played: list[list[int]] = field(default_factory=list)
    cut: list[Scored] = field(default_factory=list)
    make: Callable[[str, ScoreState], Scored] = of_term

    def __post_init__(self) -> None:
        self.outages = Outages(self.patience_s, lambda level, text: self.notices.append(text), [DROPPED])

    def ask(self, task: str) -> Scored:
        self.down_for -= 1
        item = self.make(task, self.state if self.down_for >= 0 else ScoreState.SCORED)
        self.outages.note_now(item)
        return item

    def collect(self, tasks: Sequence[str]) -> tuple[list[Scored], list[Scored]]:
        """A collection of one trajectory of each task, and what replaced those that broke."""
        first = [self.ask(task) for task in tasks]

        async def play(places: Sequence[int]) -> list[Scored]:
            self.played.append(list(places))
            return [self.ask(tasks[at]) for at in places]

        return asyncio.run(self.outages.play_broken_again(first, play, self.cut.extend))


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(outages, "_LAST_PAUSE_S", 0.002)


def test_after_a_short_outage_every_trajectory_counts_and_one_task_tried_for_all() -> None:
    service = Service(down_for=8 + 4)
    found, replaced = service.collect("aabbccdd")
    assert [item.reward for item in found] == [1.0] * 8
    assert service.played == [[0, 1], [0, 1], [0, 1], [2, 3, 4, 5, 6, 7]]
    assert len(replaced) == 12 and all(item.reward is None for item in replaced)
    assert "reward term 'good' has been down" in service.notices[0] and "refused" in service.notices[0]
    assert "answers again" in service.notices[-1]


@pytest.mark.parametrize("state", [ScoreState.UNANSWERED, ScoreState.FAULT])
def test_what_stays_down_ends_the_run_with_its_name_and_error(state: ScoreState) -> None:
    service = Service(10**9, state, patience_s=0.05)
    with pytest.raises(OutageError, match=r"reward term 'good' has not answered .*last error: refused.*`rlf resume`"):
        service.collect("abcd")
    assert len(service.cut) >= 4, "what was played is reported"
    assert all(places == [0] for places in service.played), "others are not sampled for nothing"


def of_gone_tool(task: str, state: ScoreState) -> Scored:
    """A trajectory whose call a model's server refused for good."""
    item = scored(task, None)
    call = CallRecord(ToolCall("ask", {}), ToolResult(Outcome.GONE, "error: none of 9 answers can be used"))
    trajectory = replace(item.trajectory, turns=(Turn(0, 0, 0, "", calls=(call,)),), stop=StopReason.INFRA_FAILURE)
    return replace(item, trajectory=replace(trajectory, broken=find_broken([call])))


def test_what_is_gone_ends_the_run_without_a_wait() -> None:
    service = Service(10**9, make=of_gone_tool)
    with pytest.raises(OutageError, match=r"tool 'ask' does not answer and is not waited for.*none of 9.*`rlf resume`"):
        service.collect("abcd")
    assert service.played == []


@pytest.mark.parametrize("state", [ScoreState.UNANSWERED, ScoreState.FAULT])
def test_a_term_that_may_be_dropped_ends_the_run_while_it_answers_nobody(state: ScoreState) -> None:
    service = Service(10**9, state, patience_s=0.05, make=beside)
    with pytest.raises(OutageError, match=r"reward term 'beside' has not answered .*last error: refused.*`rlf resume`"):
        service.collect("abcd")


def test_after_its_outage_a_term_that_may_be_dropped_counts_and_the_tries_without_it_do_not() -> None:
    service = Service(down_for=6, make=beside)
    found, replaced = service.collect("aabb")
    assert all(item.scores[1].state is ScoreState.SCORED and item.reward == 1.0 for item in found)
    assert len(replaced) == 6 and all(item.reward is None for item in replaced)
    assert all(weighted_sum(item.scores) is None for item in replaced), "the recorded scores explain the missing reward"


@pytest.mark.parametrize("num_down", [1, 7])
@pytest.mark.parametrize("state", [ScoreState.UNANSWERED, ScoreState.FAULT])
def test_a_term_that_answers_some_is_dropped_for_the_others_at_once(state: ScoreState, num_down: int) -> None:
    service = Service(num_down, state, patience_s=0.0, make=beside)
    found, replaced = service.collect("aabbccdd")
    assert [item.reward for item in found] == [1.0] * 8
    assert (replaced, service.played, service.notices) == ([], [], [])


def test_a_row_that_a_term_cannot_score_is_no_outage_of_it() -> None:
    service = Service(10**9, ScoreState.UNSCORABLE, patience_s=0.0, make=beside)
    found, replaced = service.collect("abcd")
    assert [item.reward for item in found] == [1.0] * 4 and not replaced


@pytest.mark.parametrize("is_back", [False, True])
def test_a_trajectory_by_itself_waits_for_a_term_that_may_be_dropped_while_that_is_down(is_back: bool) -> None:
    notices: list[str] = []
    services = Outages(0.05, lambda level, text: notices.append(text), [DROPPED])
    item = beside("a", ScoreState.UNANSWERED)

    async def refuse(broken: Broken, down: object) -> bool:
        return False

    async def main() -> bool:
        tries = Tries()
        while True:
            services.note_now(item)
            if is_back:
                services.note_now(beside("b", ScoreState.SCORED))
            if not await services.may_play_again(item, tries, refuse):
                return True

    if is_back:
        assert asyncio.run(asyncio.wait_for(main(), 60))
    else:
        with pytest.raises(OutageError, match=r"reward term 'beside' has not answered for 0\.05 s"):
            asyncio.run(asyncio.wait_for(main(), 60))
        assert "; 1 trajectory waits for it, at most 0.05 s in all" in notices[0]


def test_what_fails_for_some_tasks_alone_is_not_down_whichever_came_last() -> None:
    service = Service(down_for=0, patience_s=0.05)
    answered = [service.ask(task) for task in "aabbcc"]
    service.down_for = 10**9
    failed = [service.ask(task) for task in "de"]

    async def play(places: Sequence[int]) -> list[Scored]:
        raise AssertionError(f"{places} are played again")

    found, replaced = asyncio.run(service.outages.play_broken_again([*answered, *failed], play, service.cut.extend))
    assert [item.reward for item in found] == [1.0] * 6 + [None] * 2 and not replaced


def test_what_answers_now_and_then_and_breaks_too_much_ends_the_run_in_its_time() -> None:
    services = Outages(0.05, lambda *words: None)

    def ask(places: Sequence[int]) -> list[Scored]:
        broken = [of_term("abcd"[at], ScoreState.UNANSWERED) for at in places]
        for item in (*broken, of_term("other", ScoreState.SCORED)):
            services.note_now(item)
        return broken

    async def play(places: Sequence[int]) -> list[Scored]:
        return ask(places)

    playing = services.play_broken_again(ask(range(4)), play, lambda left: None)
    words = r"'good' has answered too seldom for 0\.05 s .*last error: refused.*`rlf resume`"
    with pytest.raises(OutageError, match=words):
        asyncio.run(asyncio.wait_for(playing, 60))


def test_what_answers_others_is_asked_by_all_at_once() -> None:
    service = Service(down_for=0)
    first = [of_term(task, ScoreState.UNANSWERED) for task in "aabbcc"] + [of_term("d", ScoreState.SCORED)]
    for item in first:
        service.outages.note_now(item)

    async def play(places: Sequence[int]) -> list[Scored]:
        service.played.append(list(places))
        return [of_term("aabbcc"[at], ScoreState.SCORED) for at in places]

    found, _ = asyncio.run(service.outages.play_broken_again(first, play, service.cut.extend))
    assert service.played == [[0, 1, 2, 3, 4, 5]] and all(item.reward == 1.0 for item in found)


def test_a_trajectory_that_breaks_whenever_it_is_played_and_may_not_be_left_out_ends_the_run() -> None:
    services, tries = Outages(0.05, lambda *words: None), Tries()

    async def refuse(broken: Broken, down: object) -> bool:
        return False

    async def main() -> None:
        while True:
            broken = of_term("a", ScoreState.UNANSWERED)
            services.note_now(broken)
            services.note_now(of_term("b", ScoreState.SCORED))
            assert await services.may_play_again(broken, tries, refuse)

    with pytest.raises(OutageError, match=r"'good' has answered too seldom for 0\.05 s"):
        asyncio.run(asyncio.wait_for(main(), 60))


def test_an_agent_that_always_fails_is_waited_for_and_ends_the_run() -> None:
    notices, tries = list[str](), Tries()
    services = Outages(0.05, lambda level, text: notices.append(text))
    item = scored("a", None, stop=StopReason.INFRA_FAILURE)
    broken = replace(item, trajectory=replace(item.trajectory, broken=AgentFailure.EXIT.cause("exit code 1")))

    async def refuse(broken: Broken, down: object) -> bool:
        return False

    async def main() -> None:
        while True:
            services.note_now(broken)
            assert await services.may_play_again(broken, tries, refuse)

    with pytest.raises(OutageError, match=r"the agent has not answered for 0\.05 s.*exit code 1"):
        asyncio.run(asyncio.wait_for(main(), 60))
    assert "the agent has been down" in notices[0]


def test_what_only_the_rows_lack_is_not_waited_for() -> None:
    service = Service(10**9, ScoreState.UNSCORABLE, patience_s=0.0)
    found, replaced = service.collect("abcd")
    assert [item.reward for item in found] == [None] * 4
    assert (replaced, service.played, service.notices) == ([], [], [])


def test_a_terms_success_is_not_anothers_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "_FIRST_PAUSE_S", 3600.0)
    services, broken = Outages(7200.0, lambda *words: None), of_term("a", ScoreState.UNANSWERED)

    async def allow(broken: Broken, down: object) -> bool:
        return True

    async def main() -> bool:
        services.note_now(broken)
        waiting = asyncio.ensure_future(services.may_play_again(broken, Tries(), allow))
        await asyncio.sleep(0)
        services.note_now(of_term("b", ScoreState.SCORED, term="other"))
        await asyncio.sleep(0)
        assert not waiting.done()
        services.note_now(of_term("b", ScoreState.SCORED))
        return await waiting

    assert asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("outcomes", [(Outcome.OK, Outcome.UNREACHABLE), (Outcome.UNREACHABLE, Outcome.OK)])
def test_a_tool_that_answers_one_call_of_a_turn_is_not_down_whichever_came_last(
    outcomes: tuple[Outcome, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "_FIRST_PAUSE_S", 3600.0)
    services, item = Outages(7200.0, lambda *words: None), scored("a", None, stop=StopReason.INFRA_FAILURE)
    calls = tuple(CallRecord(ToolCall("search", {}), ToolResult(outcome, "")) for outcome in outcomes)
    broken = replace(item, trajectory=replace(item.trajectory, turns=(Turn(1, 2, 2, "", calls),)))

    async def refuse(broken: Broken, down: object) -> bool:
        raise AssertionError(f"{broken} is left out")

    services.note_now(broken)
    assert asyncio.run(asyncio.wait_for(services.may_play_again(broken, Tries(), refuse), 20))


def test_a_budget_that_is_spent_while_an_outage_is_tried_again_leaves_the_rest_as_it_is() -> None:
    services, first = Outages(60.0, lambda *words: None), [of_term(task, ScoreState.UNANSWERED) for task in "aabb"]
    for item in first:
        services.note_now(item)

    async def play(places: Sequence[int]) -> list[Scored]:
        return [of_term("a", ScoreState.UNANSWERED)][: len(places) - 1]

    found, replaced = asyncio.run(services.play_broken_again(first, play, lambda left: None))
    assert (found, len(replaced)) == (first, 1)


@pytest.mark.parametrize(("num_broken", "is_enough"), [(0, True), (2, True), (3, False), (4, False)])
def test_an_evaluation_that_waits_for_nothing_has_a_result_where_half_has_a_value(
    num_broken: int, is_enough: bool
) -> None:
    states = [ScoreState.UNANSWERED] * num_broken + [ScoreState.SCORED] * (4 - num_broken)
    tried = [of_term(task, state) for task, state in zip("abcd", states, strict=True)]
    stopped = nullcontext() if is_enough else pytest.raises(OutageError, match=r"'good' broke [34] of them.*refused")
    with stopped:
        check_enough(tried)
