"""Worlds in the rollout loop: their life, tools, words, rewards, states and failures."""

from dataclasses import replace
from pathlib import Path

import pytest

from rlf.environments import EnvSpec, WorldPool
from rlf.rollout import Prefix
from rlf.rollout.rollout import with_observation
from rlf.tools.execution import executor
from rlf.types import Message, Outcome, Phase, StopReason

from .conftest import STOP, call, world
from .worlds import Slow

ADD = call("add", amount=1)


def test_calls_of_a_trajectory_share_a_state_that_the_world_scores(played):
    (trajectory,), _ = played(world("Counter"), [call("add", amount=2) + STOP, ADD + STOP, f"Done.{STOP}"])
    assert [record.result.text for record in trajectory.calls] == ["The number is 2.", "The number is 3."]
    assert trajectory.stop is StopReason.ANSWERED
    assert trajectory.world.scores == {"exact": 1.0, "near": 1.0}
    assert trajectory.world.observation == "Count to 3."


def test_the_worlds_first_words_end_the_prompts_user_message(played, tokenizer):
    _, policy = played(world("Counter"), [f"Done.{STOP}"])
    assert "Go.\n\nCount to 3.<|im_end|>" in tokenizer.decode(policy.requests[0].tokens)
    system, said = Message("system", "Go."), Message("user", "Count to 3.")
    for before in ((system,), ()):
        assert with_observation(before, "Count to 3.") == (*before, said)
    assert with_observation((system, Message("user", "")), "Count to 3.") == (system, said), (
        "of no words no line is left"
    )


def test_worlds_of_two_trajectories_share_nothing(played):
    one, other = played(world("Counter"), [ADD + STOP, f"Done.{STOP}"], [call("add", amount=3) + STOP, f"Done.{STOP}"])[
        0
    ]
    assert [one.world.scores["exact"], other.world.scores["exact"]] == [0.0, 1.0]


def test_calls_of_one_turn_are_made_in_order(played):
    turn = "\n".join([call("add", amount=2), call("double"), call("add", amount=1)]) + STOP
    (trajectory,), _ = played(world("Counter"), [turn, f"Done.{STOP}"])
    assert [record.result.text for record in trajectory.calls][-1] == "The number is 5."
    assert [change.call for change in trajectory.turns[0].world.changes] == [0, 1, 2]
    assert trajectory.turns[0].world.changes[1].difference == "number: 2 -> 4"


def test_rewards_of_steps_stand_with_their_turn(played):
    (trajectory,), _ = played(world("Counter"), [call("double") + STOP, ADD + STOP, f"Done.{STOP}"])
    assert [turn.world.reward for turn in trajectory.turns] == [0.5, None, None]


def test_a_step_that_ends_the_episode_ends_the_trajectory(played):
    (trajectory,), _ = played(world("Counter"), [call("add", amount=500) + STOP, call("double") + STOP])
    assert (trajectory.stop, trajectory.world.scores["exact"]) == (StopReason.ENV_DONE, 0.0)


def test_a_refused_call_is_an_observation_and_the_world_goes_on(played):
    (trajectory,), _ = played(
        world("Counter"), [call("add", amount=-1) + STOP, call("add", amount=3) + STOP, f"!{STOP}"]
    )
    assert trajectory.calls[0].result.outcome is Outcome.TOOL_ERROR
    assert "amount must not be negative" in trajectory.calls[0].result.text
    assert trajectory.world.scores["exact"] == 1.0


def test_calls_of_the_last_turn_still_change_the_world(played):
    (trajectory,), _ = played(world("Counter"), [call("add", amount=3) + STOP], max_turns=1)
    assert (trajectory.stop, trajectory.world.scores["exact"]) == (StopReason.MAX_TURNS, 1.0)


def test_a_class_written_for_trl_works_as_it_is(played):
    (trajectory,), _ = played(world("IncrementEnv"), [call("increment", step=3) + STOP, f"Done.{STOP}"])
    assert (trajectory.calls[0].result.text, trajectory.world.scores) == ("3", {"reward": 1.0})


DRAWING = Path(__file__).with_name("drawing_worlds.py")


@pytest.mark.parametrize("isolation", ["auto", "thread", "process", "sandbox"])
def test_a_class_for_trl_is_scored_by_its_method_or_its_number_and_neither_is_a_tool(played, isolation):
    env = EnvSpec.model_validate({"kind": "python", "callable": f"{DRAWING}:Dial", "isolation": isolation})
    assert (env.complaints(), [tool.name for tool in env.tools]) == ([], ["turn"])
    (dial,), _ = played(env, [*(call("turn", by=1) + STOP for _ in range(6)), f"Done.{STOP}"], max_turns=7)
    assert dial.error is None, dial.error
    assert [one.result.text for one in dial.calls] == list("123456")
    assert dial.world.scores == {"reward": float(dial.world.observation == "Turn the dial to 6.")}
    env = {"kind": "python", "callable": f"{DRAWING}:Dice", "isolation": isolation}
    rolls = [[*[call("roll") + STOP] * 4, f"Done.{STOP}"]]
    many, _ = played(env, *rolls * 3)
    for one in many:
        assert one.world.scores == {"score": float(one.calls[-1].result.text.removeprefix("score="))}
    if isolation != "thread":
        rolled = [[record.result.text for record in one.calls] for one in many]
        assert rolled == [rolled[0]] * 3, "each draws its own numbers, and all of a group the same"


@pytest.mark.parametrize("name", ["reward", "get_score", "compute_reward", "compute_score", "verify_tool"])
def test_a_grader_is_no_tool_unless_the_spec_says_so(name, tmp_path):
    file = tmp_path / f"with_{name}.py"
    file.write_text(
        "class World:\n    def act(self):\n        'Acts.'\n    def score(self): return 1\n"
        f"    def {name}(self):\n        'Gives the reward.'\n"
    )
    env = {"kind": "python", "callable": f"{file}:World"}
    (complaint,) = EnvSpec.model_validate(env).complaints()
    assert f"World.{name} would be a tool" in complaint
    assert EnvSpec.model_validate(env | {"methods": ["act"]}).complaints() == []


def test_two_methods_that_score_are_a_fault(tmp_path):
    file = tmp_path / "twice.py"
    file.write_text(
        "class World:\n    def act(self):\n        'Acts.'\n    def score(self): return 1\n"
        "    def get_reward(self): return 2\n"
    )
    (complaint,) = EnvSpec.model_validate({"kind": "python", "callable": f"{file}:World"}).complaints()
    assert "both `score` and `get_reward`" in complaint


def test_data_of_a_class_under_a_name_of_its_life_is_no_method(played, tmp_path):
    file = tmp_path / "named.py"
    file.write_text(
        "class Base:\n    def reset(self):\n        self.reward, self.score, self.state = 2, ['a table'], 'open'\n"
        "        self.gold = self.close = 3\n\n\nclass World(Base):\n    def __init__(self):\n"
        "        self.state, self.score = 'new', {}\n    def act(self):\n        'Acts.'\n"
    )
    for isolation in ("thread", "process"):
        env = {"kind": "python", "callable": f"{file}:World", "isolation": isolation}
        (trajectory,), _ = played(env, [call("act") + STOP, f"Done.{STOP}"])
        assert (trajectory.error, trajectory.world.scores) == (None, {"reward": 2.0})


def test_a_world_that_speaks_is_heard_as_the_user(played, tokenizer):
    (trajectory,), policy = played(world("Guess"), [f"1{STOP}", f"5{STOP}", f"3{STOP}"])
    assert trajectory.stop is StopReason.ENV_DONE
    assert [turn.world.reply for turn in trajectory.turns] == ["higher", "lower", "Right."]
    assert [turn.world.reward for turn in trajectory.turns] == [-0.1, -0.1, 1.0]
    assert tokenizer.decode(policy.requests[1].tokens).endswith(
        f"1{STOP}\n<|im_start|>user\nhigher{STOP}\n<|im_start|>assistant\n"
    )
    sampled = [token for token, acted in zip(trajectory.tokens, trajectory.action_mask, strict=True) if acted]
    assert tokenizer.decode(sampled) == f"1{STOP}5{STOP}3{STOP}"
    for before, after in zip(policy.requests, policy.requests[1:], strict=False):
        assert after.tokens[: len(before.tokens)] == before.tokens, "each prompt extends the last one"


def test_what_a_world_says_cannot_become_markup(played, tokenizer):
    (trajectory,), _ = played(world("Hostile"), [f"1{STOP}", f"2{STOP}"], max_turns=2)
    fed = trajectory.tokens[trajectory.turns[0].end : trajectory.turns[0].observation_end]
    assert tokenizer.decode(fed).count(STOP) == 2, "once as text, once as the end of the user's turn"
    assert list(fed).count(tokenizer.convert_tokens_to_ids(STOP)) == 1


def test_a_world_that_speaks_for_ever_ends_at_the_last_turn(played):
    (trajectory,), _ = played(world("Guess"), [f"1{STOP}"] * 3, max_turns=3)
    assert (trajectory.stop, len(trajectory.turns)) == (StopReason.MAX_TURNS, 3)
    assert trajectory.world.scores == {"score": 1 / 3}


@pytest.mark.parametrize("how", ["raise", "hang"])
@pytest.mark.parametrize("phase", ["reset", "step", "reply", "score"])
def test_a_world_that_fails_makes_the_trajectory_unscorable(played, phase, how):
    limits = {"reset_s": 0.1, "step_s": 0.1, "score_s": 0.1} if how == "hang" else {}
    env = world("Broken", args={"phase": phase, "how": how}, limits=limits)
    (trajectory,), _ = played(env, [call("act") + STOP, f"Done.{STOP}"])
    assert trajectory.stop is StopReason.INFRA_FAILURE and not trajectory.scorable
    assert trajectory.world.failed is Phase(phase)
    words = "not finished within" if how == "hang" else f"RuntimeError: the {phase} is broken (worlds.py:"
    assert f"world python: {phase}: {words}" in trajectory.error
    assert trajectory.world.scores == {}


def test_a_score_that_is_no_number_is_a_failure_of_the_world(played):
    (trajectory,), _ = played(world("Broken", args={"phase": "score", "how": "nan"}), [f"Done.{STOP}"])
    assert "expected a finite number" in trajectory.error


def test_no_more_worlds_than_permits_are_alive_at_once(played):
    env = {"kind": "python", "callable": f"{Slow.__module__}:Slow", "limits": {"max_concurrency": 2}}
    trajectories, _ = played(env, *[[call("act") + STOP, f"Done.{STOP}"]] * 8)
    assert [trajectory.world.scores for trajectory in trajectories] == [{"score": 1.0}] * 8
    assert (Slow.most, Slow.alive) == (2, 0)


def test_worlds_of_many_tools_want_room_for_one_call_each(monkeypatch):
    wanted = []
    monkeypatch.setattr(executor, "affordable_calls", lambda number: wanted.append(number) or number)
    pool = WorldPool(EnvSpec.model_validate(world("Counter", limits={"max_concurrency": 64})), seed=0)
    assert len(pool.declarations) == 2
    executor.Executor(pool.declarations)._shared_gate()
    assert wanted[-1] == 64


def test_a_prefix_is_played_again_until_the_world_is_where_it_was(played):
    script = [call("add", amount=2) + STOP, ADD + STOP, f"Done.{STOP}"]
    (whole,), _ = played(world("Counter"), script)
    (again,), _ = played(world("Counter"), script[1:], prefix=Prefix(whole, 1, replays_calls=False))
    assert again.turns[1].world == whole.turns[1].world
    assert again.world.scores == whole.world.scores


def test_a_world_that_comes_out_otherwise_for_a_prefix_breaks_the_trajectory(played):
    (whole,), _ = played(world("Counter"), [call("add", amount=2) + STOP, f"Done.{STOP}"])
    (again,), _ = played(world("Counter", args={"step": 2}), [f"Done.{STOP}"], prefix=Prefix(whole, 1))
    assert again.stop is StopReason.INFRA_FAILURE and "called again for the trajectory's prefix" in again.error


def test_a_world_that_changes_otherwise_for_a_prefix_is_named(played):
    (whole,), _ = played(world("Guess"), [f"1{STOP}", f"3{STOP}"])
    turn = whole.turns[0]
    other = replace(whole, turns=(replace(turn, world=replace(turn.world, reply="colder")), *whole.turns[1:]))
    (again,), _ = played(world("Guess"), [f"3{STOP}"], prefix=Prefix(other, 1))
    assert again.stop is StopReason.INFRA_FAILURE
    assert again.error.startswith("world 'python': played again for the trajectory's prefix: ")


def test_a_dialogue_is_spoken_again_for_a_prefix(played):
    (whole,), _ = played(world("Guess"), [f"1{STOP}", f"5{STOP}", f"3{STOP}"])
    (again,), _ = played(world("Guess"), [f"3{STOP}"], prefix=Prefix(whole, 2))
    assert (again.stop, again.tokens, again.world.scores) == (whole.stop, whole.tokens, whole.world.scores)
