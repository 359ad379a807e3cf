"""Which turns of a task begin in equal states."""

from dataclasses import replace

from rlf.training.batch import make_batch
from rlf.types import Message, Scored, StateChange, StopReason, Task, Trajectory, Turn, WorldRecord, WorldStep


def played(task, observation, *, first_state=None, after=None, action=5):
    """Prompt 1 2, an action, an observation, an action."""
    tokens = [1, 2, action, *observation, 6]
    end = 3 + len(observation)
    world = None if after is None else WorldStep((StateChange(0, after),) if after else ())
    turns = (Turn(2, 3, end, "", world=world), Turn(end, end + 1, end + 1, ""))
    mask = [2 <= at < 3 or at == end for at in range(len(tokens))]
    record = None if first_state is None else WorldRecord("python", first_state=first_state)
    trajectory = Trajectory(
        f"{task}{tokens}", Task(task, (Message("user", "?"),)), 0, tokens, mask, [0.0] * len(tokens), turns,
        StopReason.ANSWERED, "a", world=record,
    )  # fmt: skip
    return Scored(trajectory, (), 1.0, 1.0)


def states(*items):
    return make_batch(items, reads_turns=True).turns.state_BK.tolist()


def test_a_state_is_what_was_read_last_whatever_was_sampled_before():
    (a, b), (c, d), (e, f) = states(played("t", [8]), played("t", [8], action=9), played("t", [7]))
    assert a == c == e and b == d != f and a != b


def test_a_state_is_the_worlds_too_and_stays_where_nothing_changes():
    same, other, unchanged = (played("t", [8], first_state="s", after=after) for after in ("x", "y", ""))
    (a, b), (c, d), (e, f) = states(same, other, unchanged)
    assert a == c == e and len({b, d, f}) == 3
    (_, once), (_, again) = states(same, same)
    assert once == again


def test_states_of_two_tasks_are_never_equal():
    (a, _), (b, _) = states(played("t", [8]), played("u", [8]))
    assert a != b


def test_a_first_turn_is_told_apart_by_every_token_of_its_prompt():
    one = played("t", [8])
    other = replace(one, trajectory=replace(one.trajectory, tokens=[9, *one.trajectory.tokens[1:]]))
    (a, b), (c, d) = states(one, other)
    assert a != c and b == d


def test_turns_are_left_out_where_nothing_needs_them():
    assert make_batch([played("t", [8])]).turns is None
