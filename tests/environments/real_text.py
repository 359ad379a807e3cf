"""Games of textarena and tasks of reasoning-gym, as these packages come; run where they are installed."""

import pytest

from rlf.types import Message, StopReason, Task

from .conftest import STOP

pytest.importorskip("textarena")


def test_bisection_finds_the_number_of_textarena(played):
    env = {"kind": "text", "make": "textarena:GuessTheNumber-v0"}
    task = Task("t", (Message("user", "Play."),), columns={"seed": 3})
    low, high, script = 1, 20, []
    for _ in range(6):
        script.append(f"[{(low + high) // 2}]{STOP}")
        (trajectory,) = played(env, [*script, f"stop{STOP}"], task=task, max_turns=len(script) + 1)[0]
        said = trajectory.turns[len(script) - 1].world.reply
        low, high = ((low + high) // 2 + 1, high) if "higher" in said else (low, (low + high) // 2 - 1)
        if trajectory.stop is StopReason.ENV_DONE:
            break
    assert trajectory.stop is StopReason.ENV_DONE and "Congratulations" in said
    assert trajectory.world.scores == {"score": 1.0, "turns": float(len(script))}
    assert trajectory.world.observation.startswith("You are Player 0.")
    assert script[0].removesuffix(STOP) not in trajectory.turns[0].world.reply, "what is new, not the whole history"


def test_a_question_of_reasoning_gym_is_scored_by_its_own_verifier(played):
    pytest.importorskip("reasoning_gym")
    from reasoning_gym import create_dataset

    entry = create_dataset("leg_counting", seed=5, size=1)[0]
    env = {"kind": "text", "make": "reasoning_gym:leg_counting"}
    task = Task("t", (Message("user", "Answer."),), columns={"seed": 5})
    answers = [f"{entry['answer']}{STOP}"], [f"<answer>{entry['answer']}</answer>{STOP}"], [f"none{STOP}"]
    right, tagged, wrong = played(env, *answers, task=task)[0]
    assert right.world.observation == entry["question"]
    assert right.world.scores["score"] == tagged.world.scores["score"] == 1.0 > wrong.world.scores["score"]
