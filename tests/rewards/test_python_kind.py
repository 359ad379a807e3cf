"""Functions of users, in the three shapes, and what a bad one cannot do."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rlf.core import RlfError
from rlf.rewards import Term, TrajectoryFacts
from rlf.rewards.calling import OwnFunction, _run_on_thread, _stop_thread
from rlf.types import Scored, ScoreState

from .scoring import score, score_with

FACTS = {
    "question": "Capital?",
    "gold": "Lyon",
    "answer": "Lyon",
    "columns": {"data_source": "geo", "extra_info": {"index": 3}, "hops": 2, "trajectory": "a column"},
    "turns": [
        {"text": "<tool_call>x</tool_call><|im_end|>\n", "calls": [{"name": "search", "result": "Lyon is."}]},
        {"text": "Lyon<|im_end|></s>"},
    ],
}
CODE = """
import asyncio, threading, time

def trl(prompts, completions, hops, **columns):
    assert prompts == [[{"role": "user", "content": "Capital?"}]], prompts
    roles = [(m["role"], m["content"]) for m in completions[0]]
    assert roles == [("assistant", "<tool_call>x</tool_call>"), ("tool", "Lyon is."), ("assistant", "Lyon")], roles
    assert hops == [2] and columns["data_source"] == ["geo"], (hops, columns)
    return [0.5 for _ in completions]

def trl_ids(completions, completion_ids):
    return [float(len(ids)) for ids in completion_ids]

async def trl_async(completions, **columns):
    await asyncio.sleep(0)
    return [0.25]

def trl_last(completions):
    return [float(completions[0][-1]["content"] == "")]

def trl_none(prompts, completions):
    return [None]

def trl_many(prompts, completions):
    return [1.0, 1.0]

def verl(data_source, solution_str, ground_truth, extra_info=None):
    assert (data_source, ground_truth, extra_info) == ("geo", "Lyon", {"index": 3})
    assert solution_str == "<tool_call>x</tool_call>\\nLyon is.\\nLyon", solution_str
    return 0.75

def verl_mapping(data_source, solution_str, ground_truth, extra_info):
    return {"score": 0.5, "acc": True}

def turns(trajectory):
    return [None if turn.calls else 1.0 for turn in trajectory.turns]

def thread(trajectory):
    return float(threading.current_thread() is threading.main_thread())

def block(trajectory, gate):
    gate.wait(30)
    return 1.0

async def leaves(trajectory):
    raise SystemExit(3)

def endless(trajectory, began):
    began.append(threading.current_thread())
    while True:
        pass

def held(trajectory, began, gate):
    began.append(threading.current_thread())
    gate.acquire()
    while True:
        pass

running = 0

def alone(trajectory):
    global running
    running += 1
    assert running == 1, "two calls at once"
    time.sleep(0.01)
    running -= 1
    return 1.0

async def sleeps(trajectory):
    time.sleep(9)
    return 1.0

class Callable:
    async def __call__(self, trajectory):
        return 1.0

instance = Callable()
"""


@pytest.fixture
def own(tmp_path: Path) -> Any:
    path = tmp_path / "own.py"
    path.write_text(CODE)

    def term(function: str, **keys: Any) -> Term:
        named = {"kind": "python", "name": "own", "callable": f"own.py:{function}", **keys}
        return Term.model_validate(named, context={"folder": tmp_path})

    return term


def asked(term: Term, **changes: Any) -> Scored:
    return score(TrajectoryFacts.model_validate(FACTS | changes).trajectory(), term)


@pytest.mark.parametrize(
    ("function", "value"),
    [("trl", 0.5), ("trl_ids", 2.0), ("trl_async", 0.25), ("verl", 0.75), ("verl_mapping", 0.5), ("instance", 1.0)],
)
def test_functions_for_trl_and_verl_are_taken_as_they_are(own: Any, function: str, value: float) -> None:
    scored = asked(own(function))
    assert scored.scores[0].reason == ""
    assert scored.reward == value


def test_a_model_that_says_nothing_has_one_empty_message_for_trl(own: Any) -> None:
    assert asked(own("trl_last"), turns=[], answer=None).reward == 1.0


def test_a_shape_can_be_named_where_parameters_do_not_tell(own: Any) -> None:
    scored = asked(own("turns", shape="trl"))
    assert scored.scores[0].state is ScoreState.FAULT


@pytest.mark.parametrize(
    ("function", "state", "reason"),
    [("trl_none", "unscorable", "returned None"), ("trl_many", "fault", "returned 2 values for one completion")],
)
def test_what_is_no_value_is_reported(own: Any, function: str, state: str, reason: str) -> None:
    (said,) = asked(own(function)).scores
    assert said.state == state
    assert reason in said.reason


def test_a_function_can_judge_turn_by_turn(own: Any) -> None:
    (said,) = asked(own("turns", stage="turn")).scores
    assert (said.value, said.turn_values) == (1.0, (None, 1.0))


def test_a_plain_function_runs_beside_the_loop_one_call_at_a_time(own: Any) -> None:
    assert asked(own("thread")).reward == 0.0
    trajectories = [TrajectoryFacts(answer="x").trajectory(f"t{number}") for number in range(20)]
    assert [each.reward for each in asyncio.run(score_with([own("alone")], trajectories))] == [1.0] * 20


def test_functions_that_block_are_left_behind_and_after_four_the_term_gives_up(
    own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlf.rewards.calling._stop_thread", lambda thread: None)  # one not yet blocked would end
    gate = threading.Event()
    facts = TrajectoryFacts.model_validate(FACTS)
    trajectories = [facts.trajectory(f"t{number}") for number in range(6)]
    for each in trajectories:
        object.__setattr__(each.task, "columns", {"gate": gate})
    started = time.perf_counter()
    scored = asyncio.run(score_with([own("block", timeout_s=0.2)], trajectories))
    took_s = time.perf_counter() - started
    gate.set()
    said = [each.scores[0] for each in scored]
    assert [each.state for each in said] == [ScoreState.UNANSWERED] * 4 + [ScoreState.FAULT] * 2
    assert said[0].reason == "no value within 0.2 s"
    assert "4 calls of" in said[5].reason
    assert took_s < 10


def test_a_loop_without_end_is_ended(own: Any) -> None:
    began: list[threading.Thread] = []
    trajectory = TrajectoryFacts().trajectory()
    object.__setattr__(trajectory.task, "columns", {"began": began})
    assert score(trajectory, own("endless", timeout_s=0.2)).reward is None
    began[0].join(30)
    assert not began[0].is_alive()


def test_a_coroutine_that_blocks_is_refused_before_anything_runs(own: Any) -> None:
    with pytest.raises(RlfError, match=r"is `async def` and calls time\.sleep, which blocks every trajectory"):
        own("sleeps").prepare()


def test_a_range_makes_other_values_faults(own: Any) -> None:
    assert asked(own("trl_ids", range=[0, 2])).reward == 2.0
    assert asked(own("trl_ids", range=[0, 1])).scores[0].state is ScoreState.FAULT


def test_an_async_function_that_exits_ends_neither_the_loop_nor_the_run(own: Any) -> None:
    scored = score(TrajectoryFacts(answer="x").trajectory(), own("leaves"))
    assert (scored.scores[0].state, scored.scores[0].reason) == (ScoreState.FAULT, "SystemExit: 3 (own.py:46)")


def test_a_call_that_nobody_waits_for_any_more_is_stopped_and_counted(own: Any) -> None:
    async def cancel_one() -> None:
        function, gate = OwnFunction(own("held").callable, 60), threading.Lock()
        with gate:
            calling = asyncio.create_task(function(None, began := list[threading.Thread](), gate))
            while not began:  # noqa: ASYNC110 - a thread appends
                await asyncio.sleep(0.01)
            calling.cancel()
            await asyncio.wait((calling,))
            assert function._num_hung == 1
        await asyncio.to_thread(began[0].join, 30)
        assert not began[0].is_alive()
        async with asyncio.timeout(30):
            while function._num_hung:  # noqa: ASYNC110 - the loop counts
                await asyncio.sleep(0.01)

    asyncio.run(cancel_one())


def test_a_thread_that_is_stopped_while_it_reports_reports_all_the_same() -> None:
    class Loop:
        is_stopped, reported = False, 0

        def call_soon_threadsafe(self, *_: object) -> None:
            if not self.is_stopped:
                self.is_stopped = True
                raise SystemExit
            self.reported += 1

    loop: Any = Loop()
    over: Any = None
    _run_on_thread(lambda: 1.0, loop, over)
    assert loop.reported == 1


def test_a_thread_that_has_ended_is_not_stopped_since_its_id_may_be_anothers() -> None:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    thread._ident = threading.get_ident()  # type: ignore[attr-defined]
    _stop_thread(thread)
    for _ in range(10):  # steps at which this thread would end
        time.sleep(0)


@pytest.mark.parametrize("first", ["answer", "question, answer", "told: str", "told: 'float | None'"])
def test_a_first_parameter_that_expects_no_trajectory_is_refused(tmp_path: Path, first: str) -> None:
    (tmp_path / "first.py").write_text(f"def rate({first}):\n    return 1.0\n")
    with pytest.raises(
        RlfError, match=r"would get the whole trajectory\. Write e\.g\. `def rate\(trajectory, answer\)"
    ):
        Term.model_validate(
            {"kind": "python", "name": "rate", "callable": "first.py:rate"}, context={"folder": tmp_path}
        ).prepare()


@pytest.mark.parametrize("first", ["trajectory", "t, answer", "it: 'Trajectory', question: str", "*all", ""])
def test_any_other_first_parameter_is_a_trajectorys(tmp_path: Path, first: str) -> None:
    (tmp_path / "first.py").write_text(f"def rate({first}):\n    return 1.0\n")
    context = {"folder": tmp_path}
    Term.model_validate({"kind": "python", "name": "rate", "callable": "first.py:rate"}, context=context).prepare()
