"""The warning of a tool that fails in every call of a run with one and the same text."""

from types import SimpleNamespace

from rlf.rewards.facts import CallFacts, TrajectoryFacts, TurnFacts
from rlf.training.missing import MissingWatch
from rlf.types import Outcome
from rlf.types.score import Scored


def warnings(*calls):
    """What is reported of one step's calls, each (arguments, result, outcome)."""
    facts = [
        CallFacts(name="weigh", arguments=arguments, result=result, outcome=outcome)
        for arguments, result, outcome in calls
    ]
    scored = [
        Scored(TrajectoryFacts(turns=(TurnFacts(calls=(call,)),)).trajectory(f"t{at}"), (), 0.0, None)
        for at, call in enumerate(facts)
    ]
    watch = MissingWatch((), str)
    events = [SimpleNamespace(step=step, trajectories=scored) for step in (1, 2)]
    return [notice.text for event in events for notice in watch.after_step(event)]


def failed(number, text="error: ValueError: the scales are broken"):
    return [({"item": f"thing {at}"}, text, Outcome.TOOL_ERROR) for at in range(number)]


def test_a_tool_that_only_fails_with_one_text_is_reported_once():
    (text,) = warnings(*failed(16))
    assert "step 1: tool weigh failed in each of 16 calls with one text, error: ValueError: the scales" in text


def test_a_tool_is_not_reported_for_what_the_policy_does():
    assert not warnings(*failed(16), ({"item": "lamp"}, "3 kg", Outcome.OK))
    assert not warnings(*failed(16), *failed(1, "error: ValueError: no such thing"))
    assert not warnings(*failed(1) * 16), "one call again and again"
    assert not warnings(*[(one[0], f"{one[1]} {at}", one[2]) for at, one in enumerate(failed(40))])
