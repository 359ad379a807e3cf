"""Repairs and penalties of a turn are stored with it."""

from dataclasses import replace

from rlf.core.redact import Redactor
from rlf.lineage.rows import decode_payload, encode
from rlf.types import Message, Repair, RepairKind, StopReason, Task, Trajectory, Turn
from rlf.types.written import read

TURN = Turn(start=1, end=2, observation_end=3, text="a", sample_s=0.5, tools_s=0.25)


def trajectory(turn):
    task = Task("t", (Message("user", "a"),))
    return Trajectory(
        "t", task, 0, [1, 2, 3], [False, True, False], [0.0, -1.0, 0.0], (turn,), StopReason.ANSWERED, "a"
    )


def test_repairs_and_penalties_come_back():
    turn = replace(TURN, repairs=(Repair(RepairKind.PARAMETERS, 3, '{"name"'),), num_penalised=2)
    assert read(Turn, decode_payload(encode(trajectory(turn), Redactor({})))["turns"][0]) == turn
