"""Rooms, bisect and compose: worlds, tools, ceilings, controls, demonstrations, and the base that plays them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.embedded.bisect import box as bisect
from benchmarks.embedded.bisect import demonstrations as box_demonstrations
from benchmarks.embedded.bisect.box import HIGHER, NUM_NUMBERS, NUM_PROBES, ceiling, hidden_number, prize
from benchmarks.embedded.bisect.build import build as build_bisect
from benchmarks.embedded.bisect.credit import halvings
from benchmarks.embedded.compose import almanac as compose
from benchmarks.embedded.compose import demonstrations as compose_demonstrations
from benchmarks.embedded.compose.almanac import ATTRIBUTES
from benchmarks.embedded.compose.build import HELDOUT_KIND
from benchmarks.embedded.compose.build import build as build_compose
from benchmarks.embedded.games.tokenizer import build_tokenizer
from benchmarks.embedded.places import place_of
from benchmarks.embedded.prober.build import POLICY as PROBER_POLICY
from benchmarks.embedded.rooms import demonstrations as room_demonstrations
from benchmarks.embedded.rooms.build import build as build_rooms
from rlf.builtin import rooms
from rlf.builtin.encyclopedia import calculator
from rlf.builtin.encyclopedia.names import NameSplit, split_names
from rlf.builtin.games.goal import reached
from rlf.builtin.rooms.vault import CLOSED, COLOURS, chance, plan_vault
from rlf.types import CallRecord, Message, Outcome, StopReason, Task, ToolCall, ToolOutput, ToolResult, Trajectory, Turn

CHECKPOINT = place_of("games")
PROBER = place_of("prober")

BUILDS = {"rooms": build_rooms, "bisect": build_bisect, "compose": build_compose}
CARD = json.loads((CHECKPOINT / "card.json").read_text())


def rows(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in place_of(name).read_text(encoding="utf-8").splitlines()]


def names_in(text: str) -> list[str]:
    return re.findall(r"[A-Z][a-z]{2}[a-z]{3}\b", text)


def open_by_order(tool: rooms.Vault, vault: str) -> str:
    """What the last room says to a policy that follows the question's order."""
    plan = plan_vault(vault)
    return [tool(vault, COLOURS[colour]).text for colour in plan.order][-1]


def bisect_box(tool: bisect.Box, box: str) -> tuple[str, int]:
    """The last answer to a policy that halves the interval, and the probes it took."""
    low, high = 1, tool.num_numbers
    answers: list[str] = []
    while len(answers) < tool.num_probes and low <= high:
        middle = (low + high) // 2
        answers.append(tool(box, middle).text)
        if answers[-1].startswith("found"):
            break
        low, high = (middle + 1, high) if answers[-1].startswith(HIGHER) else (low, middle - 1)
    return answers[-1], len(answers)


@pytest.mark.parametrize("game", BUILDS)
def test_the_questions_are_made_again_bit_for_bit(game: str, tmp_path: Path) -> None:
    BUILDS[game](tmp_path)
    shipped = place_of(f"{game}/train").parent
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in shipped.iterdir())
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (shipped / path.name).read_bytes()


@pytest.mark.parametrize("game", ["rooms", "bisect"])
def test_no_held_out_name_is_trained_on(game: str) -> None:
    trained = {name for row in rows(f"{game}/train") for name in names_in(row["question"])}
    assert trained.isdisjoint(name for row in rows(f"{game}/heldout") for name in names_in(row["question"]))


@pytest.mark.parametrize("split", ["train", "heldout", "train_three"])
def test_the_order_of_colours_opens_every_vault(split: str) -> None:
    for row in rows(f"rooms/{split}"):
        vault = row["question"].split()[1]
        assert open_by_order(rooms.Vault(), vault) == row["answer"]


def test_a_wrong_door_is_reported_by_the_last_room_alone() -> None:
    vault = rows("rooms/train")[0]["question"].split()[1]
    plan = plan_vault(vault)
    right, wrong = rooms.Vault(), rooms.Vault()
    for room, colour in enumerate(plan.order):
        taken = COLOURS[colour - 1] if room == 0 else COLOURS[colour]
        said, honest = wrong(vault, taken), right(vault, COLOURS[colour])
        assert said.structured == {"is_right": room > 0, "is_goal": False}
        assert (said.text == honest.text) == (room + 1 < len(plan.order))
    assert said.text == CLOSED


def test_rooms_ends_at_chance_for_a_policy_that_does_not_read_the_order() -> None:
    assert chance(5) == pytest.approx(1 / 243)  # one door of three in each of five rooms
    opened = [open_by_order(rooms.VaultShuffled(), row["question"].split()[1]) != CLOSED for row in rows("rooms/train")]
    assert sum(opened) / len(opened) == pytest.approx(chance(5), abs=0.01)


def test_a_reversed_vault_opens_to_palindromes_alone() -> None:
    for row in rows("rooms/heldout"):
        vault = row["question"].split()[1]
        order = plan_vault(vault).order
        assert (open_by_order(rooms.VaultReversed(), vault) != CLOSED) == (order == order[::-1])


def test_bisection_needs_six_probes_for_63_numbers_and_four_find_15() -> None:
    assert ceiling(63, 6) == 1.0
    assert ceiling(63, 4) == pytest.approx(15 / 63)  # 1 + 2 + 4 + 8 numbers
    assert ceiling(127, 7) == 1.0
    box_by_number = {hidden_number(name): name for name in split_names(NameSplit.TRAIN)}
    assert sorted(box_by_number) == list(range(1, 64))
    found = [bisect_box(bisect.Box(), box) for box in box_by_number.values()]
    assert [text for text, _ in found] == [prize(box) for box in box_by_number.values()]
    # 1 number after one probe, 2 after two, ... 32 after six: the mean is 321 / 63.
    assert sum(probes for _, probes in found) == 321
    assert sum(bisect_box(bisect.BoxFour(), box)[0].startswith("found") for box in box_by_number.values()) == 15


def test_probes_run_out() -> None:
    box = bisect.BoxFour()
    assert [box("Bednox", 0).text for _ in range(5)] == [f"{HIGHER}0"] * 4 + ["no probes left"]


def test_a_probe_is_worth_more_the_nearer_it_is_to_the_middle_of_what_is_possible() -> None:
    elsewhere, box = (row["question"].split()[1] for row in rows("bisect/train")[6:8])
    hidden, asked = hidden_number(box), rows("bisect/train")[7]
    assert 12 < hidden < 24, hidden
    probes = [{"box": elsewhere, "number": 32}, *({"box": box, "number": number} for number in (0, 24, 24, 12))]
    earned = halvings(played(asked, bisect.Box(), *probes))
    # Of 63 numbers 24 leaves 23 at the least, where 32 would leave 31; of 1 to 23 12 leaves 11, which is all one can.
    assert earned == [0.0, 0.0, 24 / 32, 0.0, 1.0]
    found = played(asked, bisect.Box(), *[{"box": box, "number": hidden}] * 2)
    assert halvings(found) == [hidden / 32, 0.0]
    assert halvings(replace(found, turns=(*found.turns, Turn(0, 0, 0, "")))) == [hidden / 32, 0.0, 1.0]


def test_a_lying_box_misleads_bisection() -> None:
    found = [bisect_box(bisect.BoxLying(), row["question"].split()[1])[0] for row in rows("bisect/heldout")]
    assert sum(text.startswith("found") for text in found) / len(found) < 0.1


@pytest.mark.parametrize("split", ["train", "heldout", "heldout_composition"])
def test_two_searches_and_the_calculator_answer_every_composition(split: str) -> None:
    for row in rows(f"compose/{split}"):
        keyword, _, operation = row["kind"].partition(" ")
        passages = [compose.search(f"{name} {keyword}") for name in names_in(row["question"])]
        sign = "-" if operation == "more" else "+"
        numbers = [re.findall(r"\d{4}", passage)[0] for passage in passages]
        assert calculator(f" {sign} ".join(numbers)) == row["answer"]
        assert row["answer"] not in numbers


def test_shuffled_passages_and_a_broken_calculator_answer_nothing() -> None:
    right = 0
    for row in rows("compose/heldout"):
        keyword, _, operation = row["kind"].partition(" ")
        passages = [compose.search_shuffled(f"{name} {keyword}") for name in names_in(row["question"])]
        sign = "-" if operation == "more" else "+"
        right += calculator(f" {sign} ".join(re.findall(r"\d{4}", " ".join(passages)))) == row["answer"]
    assert right == 0
    with pytest.raises(ValueError, match="out of order"):
        compose.calculator_off("1 + 1")


def test_the_held_out_composition_is_in_no_training_question() -> None:
    kinds = {row["kind"] for row in rows("compose/train")}
    assert HELDOUT_KIND not in kinds
    assert len(kinds) == 2 * len(ATTRIBUTES) - 1


def test_no_demonstration_uses_the_search_and_the_calculator() -> None:
    tokenizer, rng = build_tokenizer(), random.Random(0)
    names = split_names(NameSplit.TRAIN)
    for skill in compose_demonstrations.Skill:
        for _ in range(50):
            row = compose_demonstrations.demonstrate(tokenizer, rng, lambda: rng.choice(names), skill)
            acted = tokenizer.decode([t for t, acts in zip(row.token_ids, row.is_action, strict=True) if acts])
            assert not ('"search"' in acted and '"calculator"' in acted)


def test_a_call_that_breaks_off_names_no_tool() -> None:
    tokenizer, rng = build_tokenizer(), random.Random(0)
    look = compose_demonstrations.Skill.LOOK
    texts = [
        tokenizer.decode(compose_demonstrations.demonstrate(tokenizer, rng, lambda: "Bednox", look).token_ids)
        for _ in range(50)
    ]
    ends = {text.rpartition("<|im_start|>assistant\n")[2] for text in texts}
    assert ends == {"nothing<|im_end|>", "<tool_call>"}


def test_demonstrations_of_the_shipped_habits_seldom_succeed() -> None:
    tokenizer, rng = build_tokenizer(), random.Random(0)
    names = split_names(NameSplit.TRAIN)

    def share(module, failure, count=400):
        habits, weights = list(module.POLICY), list(module.POLICY.values())
        texts = [
            tokenizer.decode(
                module.demonstrate(tokenizer, rng, rng.choice(names), lambda: rng.choices(habits, weights)[0]).token_ids
            )
            for _ in range(count)
        ]
        return sum(not text.endswith(f"{failure}<|im_end|>") for text in texts) / count

    assert share(box_demonstrations, "nothing") < 0.07
    assert share(room_demonstrations, "closed") < 0.07


NOTED_PROBE = re.compile(r'(\d+) (\d+)\n<tool_call>\n.*"number": (\d+)')


def noted_probes(token_ids: list[int]) -> list[tuple[int, int, int]]:
    """The two numbers of each note in a row, and the number probed after it."""
    found = NOTED_PROBE.findall(build_tokenizer().decode(token_ids))
    return [(int(less), int(more), int(number)) for less, more, number in found]


def test_each_probe_of_a_drill_is_between_the_numbers_noted_before_it() -> None:
    rng, widths = random.Random(0), []
    for box in split_names(NameSplit.TRAIN)[:40]:
        row = box_demonstrations.drill(build_tokenizer(), rng, box, lambda: box_demonstrations.Habit.INSIDE)
        for less, more, number in noted_probes(row.token_ids):
            assert less < number < more
            assert less < hidden_number(box) < more
            widths.append(more - less - 1)
    assert min(widths) == 1
    assert max(widths) > 16


def test_a_drill_teaches_all_of_its_probes_but_the_first_that_misses() -> None:
    for seed, box in enumerate(split_names(NameSplit.TRAIN)[:20]):
        row = box_demonstrations.drill(
            build_tokenizer(), random.Random(seed), box, lambda: box_demonstrations.Habit.INSIDE
        )
        taught = [token for token, acts in zip(row.token_ids, row.is_action, strict=True) if acts]
        probes = noted_probes(row.token_ids)
        assert noted_probes(taught) == (probes if probes[0][2] == hidden_number(box) else probes[1:])


def test_notes_of_a_demonstration_follow_the_answers_and_its_probes_do_not_bisect() -> None:
    rng, firsts = random.Random(0), []
    for box in split_names(NameSplit.TRAIN)[:100]:
        row = box_demonstrations.demonstrate(
            build_tokenizer(), rng, box, lambda: box_demonstrations.Habit.INSIDE, has_notes=True
        )
        low, high, hidden, probes = 0, NUM_NUMBERS + 1, hidden_number(box), noted_probes(row.token_ids)
        for less, more, number in probes:
            assert (less, more) == (low, high)
            low = max(low, number) if number < hidden else low
            high = min(high, number) if number > hidden else high
        firsts.append(probes[0][2])
    assert len(set(firsts)) > 40
    assert firsts.count(32) < 5


def test_the_prober_is_small_and_poor() -> None:
    card = json.loads((PROBER / "card.json").read_text())
    assert sum(path.stat().st_size for path in PROBER.iterdir()) < 1_000_000
    assert 0.0 < card["base"]["sampled"] <= 0.05
    assert card["habits"]["shares"] == {str(habit): share for habit, share in PROBER_POLICY.items()}


def test_random_probes_reach_every_number() -> None:
    """Whatever the history, each number has support."""
    tokenizer, rng = build_tokenizer(), random.Random(0)
    habits, weights = list(box_demonstrations.POLICY), list(box_demonstrations.POLICY.values())
    text = "".join(
        tokenizer.decode(
            box_demonstrations.demonstrate(tokenizer, rng, name, lambda: rng.choices(habits, weights)[0]).token_ids
        )
        for name in split_names(NameSplit.TRAIN)[:400]
    )
    assert set(map(int, re.findall(r'"number": (\d+)', text))) == set(range(1, NUM_NUMBERS + 1))
    assert NUM_PROBES == 6


def test_the_base_is_poor_and_the_card_says_how_poor() -> None:
    sampled = {name: figures["sampled"] for name, figures in CARD["base"].items()}
    assert 0.0 < sampled["rooms/heldout"] <= 0.05
    assert 0.0 < sampled["bisect/heldout"] <= 0.05
    assert max(sampled["compose/heldout"], CARD["control"]["compose/heldout"]["sampled"]) <= 0.05


def test_the_checkpoint_is_small() -> None:
    assert CARD["parameters"] <= 1_000_000
    assert sum(path.stat().st_size for path in CHECKPOINT.iterdir()) <= 4_000_000


def played(row: dict[str, str], tool: Callable[..., ToolOutput], *calls: dict[str, object]) -> Trajectory:
    """A trajectory of a turn for each call of a tool."""
    records = []
    for arguments in calls:
        output = tool(**arguments)
        result = ToolResult(Outcome.OK, output.text, structured=output.structured)
        records.append(CallRecord(ToolCall("open", arguments), result))
    turns = tuple(Turn(0, 0, 0, "", (record,)) for record in records)
    task = Task("t", (Message("user", row["question"]),), answer=row["answer"])
    return Trajectory("t/0", task, 0, (), (), (), turns, StopReason.ANSWERED, "")


def test_the_treasure_of_another_box_or_vault_is_worth_nothing() -> None:
    row, other = rows("bisect/train")[:2]
    box, other_box = row["question"].split()[1], other["question"].split()[1]
    found = {"box": box, "number": hidden_number(box)}
    found_elsewhere = {"box": other_box, "number": hidden_number(other_box)}
    assert reached(played(row, bisect.Box(), found)) == 1.0
    assert reached(played(row, bisect.Box(), found_elsewhere)) == 0.0
    row, other = rows("rooms/train")[:2]
    vault, other_vault = row["question"].split()[1], other["question"].split()[1]
    doors = [{"vault": vault, "door": COLOURS[colour]} for colour in plan_vault(vault).order]
    doors_elsewhere = [{"vault": other_vault, "door": COLOURS[colour]} for colour in plan_vault(other_vault).order]
    right, wrong = played(row, rooms.Vault(), *doors), played(row, rooms.Vault(), *doors_elsewhere)
    assert (reached(right), rooms.right_doors(right)) == (1.0, [1.0] * 5)
    assert (reached(wrong), rooms.right_doors(wrong)) == (0.0, [0.0] * 5)
    longer = f"{vault} has"
    named_longer = [{"vault": longer, "door": COLOURS[colour]} for colour in plan_vault(longer).order]
    assert set(rooms.right_doors(played(row, rooms.Vault(), *named_longer))) == {0.0}
    late = played(row, rooms.Vault(), *doors_elsewhere[:4], doors[4])
    assert (reached(late), rooms.right_doors(late)) == (0.0, [0.0] * 5)
