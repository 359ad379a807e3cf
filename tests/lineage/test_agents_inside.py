"""Agents' calls with what happened inside of them: written, read, found and shown."""

from dataclasses import replace
from io import StringIO

from rich.console import Console

from rlf.apps.keep.upkeep import drop_unnamed_blobs
from rlf.lineage.calls import names_inside, read_calls, read_costs
from rlf.lineage.graph import read_graph
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import TrajectoryFilter
from rlf.lineage.run import start_run
from rlf.reports.trajectory import trajectory_view
from rlf.types import Attempt, CallRecord, Image, InnerCall, InnerTurn, Outcome, ScoreUsage, ToolCall, ToolResult

from .builders import run_record, scored, step

PIXEL = Image(b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "image/png")
USAGE = {"requests": 2, "prompt_tokens": 10, "completion_tokens": 4, "cost_usd": 0.25}


def agents_call() -> CallRecord:
    found = ToolResult(Outcome.OK, "found it", images=(PIXEL,), isolation="inline")
    lowest = InnerTurn("", calls=(InnerCall("aaaaaaaaa", ToolCall("search", {"query": "x"}), found),))
    inner = ToolResult(Outcome.OK, "low says so", inner=(lowest, InnerTurn("low says so")))
    turn = InnerTurn("", "hm", "tool_calls", {"cost_usd": 0.1}, (InnerCall("b" * 9, ToolCall("low", {}), inner),))
    failed = Attempt(Outcome.TIMEOUT, 0.1, "late", {"requests": 1})
    attempts = (failed, Attempt(Outcome.OK, 0.2, None, {"requests": 1, "cost_usd": 0.25}))
    result = ToolResult(Outcome.OK, "so", attempts, usage=USAGE, inner=(turn, InnerTurn("so", failures=("bad_json",))))
    return CallRecord(ToolCall("agent", {"task": "it"}), result)


def with_an_agent():
    whole = scored(1)
    first, *rest = whole.trajectory.turns
    trajectory = replace(whole.trajectory, turns=(replace(first, calls=(agents_call(),)), *rest))
    scores = (replace(whole.scores[0], usage=ScoreUsage(1, 0, 30, 0.5, num_requests=3)), *whole.scores[1:])
    return replace(whole, trajectory=trajectory, scores=scores)


def recorded(store):
    start_run(store, run_record("r"))
    done = replace(step(1, 1), trajectories=[with_an_agent()], advantages=[0.5])
    with Recorder(store, "r") as recorder:
        recorder(done)
        recorder(done)  # a step that is done again is paid for again
    return Reader(store)


def test_what_happened_inside_of_an_agents_call_is_read_as_it_was_written(store):
    reader = recorded(store)
    drop_unnamed_blobs(store)
    assert reader.trajectory("r", k=0, step=1).scored == with_an_agent()


def test_calls_inside_of_agents_are_found_by_the_name_of_their_tool(store):
    reader = recorded(store)
    anywhere, every = TrajectoryFilter(), list(Outcome)
    (inside,) = [c for c in read_calls(reader, "r", anywhere, tool="search", outcomes=every, limit=9) if c.inside]
    assert (inside.inside, inside.text, inside.arguments) == ("0.0/0.0", "found it", {"query": "x"})
    assert names_inside(reader, "r") == {"low", "search"}


def test_a_run_adds_up_what_it_spent_also_on_a_step_that_it_did_twice(store):
    costs = {cost.name: cost for cost in read_costs(recorded(store), "r")}
    judge, agent = costs["exact_match"], costs["agent"]
    assert (judge.kind, judge.cost_usd, judge.num_requests, judge.num_tokens) == ("judge", 1.0, 6, 60)
    assert (agent.kind, agent.cost_usd, agent.num_requests, agent.num_tokens) == ("tool", 0.5, 4, 28)


def test_a_trace_shows_the_turns_inside_of_an_agents_call():
    console = Console(width=100, record=True, file=StringIO())
    console.print(trajectory_view(with_an_agent()))
    text = console.export_text()
    for words in ("inner turn 1", "(thinks) hm", "low({}) → ok", 'search({"query": "x"}) → ok', "found it", "bad_json"):
        assert words in text


def test_turns_and_calls_inside_of_an_agents_call_are_nodes_of_the_lineage(store):
    graph = read_graph(recorded(store), "r", 1)
    lowest = graph.node("call:1 0 0/0.0/0.0")
    assert lowest is not None and lowest.made_of == ("inner_turn:1 0 0/0.0/0",)
    above = [node.key for node in graph.ancestors(lowest.key)]
    assert {"trajectory:1 0", "call:1 0 0", "inner_turn:1 0 0/0", "call:1 0 0/0.0"} <= set(above)


def other(store):
    return [(cost.num_requests, cost.cost_usd) for cost in read_costs(Reader(store), "r") if cost.kind == "other"]


def test_what_no_trajectory_has_yet_is_recorded_before_the_run_ends(store):
    start_run(store, run_record("r"))
    spent = {"requests": 3, "cost_usd": 0.5}
    with Recorder(store, "r", lambda: spent) as recorder:
        recorder.note_spending()
        recorder.flush()
        assert other(store) == [(3, 0.5)]  # all that a killed process leaves
        spent = {}
        recorder(step(1, 1))
        recorder.flush()
        assert other(store) == []
        spent = {"requests": 1, "cost_usd": 0.25}
        recorder.note_spending()
    with Recorder(store, "r", lambda: {"requests": 1, "cost_usd": 0.5}) as resumed:
        resumed(step(2, 1))
        resumed.flush()
        assert other(store) == [(2, 0.75)]


def test_tools_whose_results_are_played_back_cost_nothing(store):
    start_run(store, run_record("r"))
    done = replace(step(1, 1), trajectories=[with_an_agent()], advantages=[0.5])
    with Recorder(store, "r", is_played=True) as recorder:
        recorder(done)
    assert [(cost.kind, cost.cost_usd) for cost in read_costs(Reader(store), "r")] == [("judge", 0.5)]
