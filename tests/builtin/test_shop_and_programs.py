"""The shop and the programs: made again from their seeds, right, and played through the specs that use them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from transformers import AutoTokenizer

import rlf
from benchmarks.embedded.programs.build import build as build_programs
from benchmarks.embedded.shop.build import build as build_shop
from rlf.apps.tools.examples import run_examples
from rlf.builtin.names import builtin_path
from rlf.chat import FORMATS
from rlf.rewards import RewardContext, RewardFunction, Term
from rlf.rollout import Rollout, RolloutLimits, Setting, play
from rlf.rollout.scripted import ScriptedPolicy
from rlf.tools import Executor, ToolDeclaration
from rlf.types import Message, Sampling, Task, Trajectory

ROOT = Path(__file__).parents[2]
DATA = {"shop": builtin_path("shop/database").parent, "programs": builtin_path("programs/train").parent}


def rows(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in builtin_path(name).read_text(encoding="utf-8").splitlines()]


def tool(name: str) -> ToolDeclaration:
    """A shipped tool, at whatever sandbox level there is: containment is tested elsewhere."""
    values = yaml.safe_load((ROOT / "tool_specs" / f"{name}.yaml").read_text())
    values["target"].setdefault("sandbox", {})["allow_unsafe"] = True
    return ToolDeclaration.model_validate(values, context={"folder": ROOT / "tool_specs"})


def content(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return list(connection.iterdump())


def test_they_are_made_again_from_their_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.embedded.shop.build.write_tasks", bool)  # tests/builtin/test_shop_world.py has them
    build_shop(tmp_path / "shop")
    build_programs(tmp_path / "programs")
    assert content(tmp_path / "shop/shop.sqlite") == content(builtin_path("shop/database"))
    for name in ("shop", "programs"):
        for split in ("train.jsonl", "heldout.jsonl"):
            assert (tmp_path / name / split).read_bytes() == (DATA[name] / split).read_bytes()
    for split in ("train_shuffled.jsonl", "heldout_shuffled.jsonl"):
        assert (tmp_path / "shop" / split).read_bytes() == (DATA["shop"] / split).read_bytes()


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_no_question_of_the_control_is_answered_by_its_own_rows(split: str) -> None:
    for own, other in zip(rows(f"shop/{split}"), rows(f"shop/{split}_shuffled"), strict=True):
        assert own["question"] == other["question"] and own["kind"] == other["kind"]
        assert own["rows"] != other["rows"]


@pytest.mark.parametrize("name", ["shop", "programs"])
def test_no_heldout_question_is_trained_on(name: str) -> None:
    train, heldout = ({row["question"] for row in rows(f"{name}/{split}")} for split in ("train", "heldout"))
    assert train and heldout and not train & heldout


def test_every_gold_query_gives_its_gold_rows() -> None:
    with closing(sqlite3.connect(builtin_path("shop/database"))) as connection:
        for row in rows("shop/train") + rows("shop/heldout"):
            found = connection.execute(row["query"]).fetchall()
            assert [list(one) for one in found] == json.loads(row["rows"]) and None not in found[0]
            assert row["answer"] == str(found[0][0])


@pytest.mark.parametrize("name", ["sql", "python"])
def test_the_shipped_tools_pass_their_own_tests(name: str) -> None:
    declaration = tool(name)

    async def main() -> list[tuple[str, ...]]:
        async with Executor([declaration]) as executor:
            return [run.shortfalls for run in await run_examples(executor, declaration)]

    assert set(asyncio.run(main())) == {()}


def played(name: str, row: dict[str, str], arguments: dict[str, str], answer: str) -> Trajectory:
    """One trajectory in which a scripted policy calls the tool, reads the result and answers."""

    async def main() -> Trajectory:
        async with Executor([tool(name)]) as executor:
            tokenizer = AutoTokenizer.from_pretrained(builtin_path("tiny"))
            chat = FORMATS.get("hermes")(tokenizer, executor.descriptions)
            call = json.dumps({"name": name, "arguments": arguments})
            script = [f"<tool_call>\n{call}\n</tool_call><|im_end|>", f"{answer}<|im_end|>"]
            policy = ScriptedPolicy(tokenizer, script)
            limits, sampling = (
                RolloutLimits(max_turns=4, max_total_tokens=4000),
                Sampling(stop_token_ids=chat.stop_token_ids),
            )
            task = Task(row["id"], (Message("user", row["question"]),), answer=row["answer"], columns=row)
            return await play(Rollout("t", task, 0, 0), Setting(policy, chat, executor, limits, sampling))

    return asyncio.run(main())


def rewarded(*trajectories: Trajectory) -> list[float | None]:
    """What the template's reward gives them."""
    folder = Path(rlf.__file__).parent / "apps/init/templates/sql/reward_specs"
    term = Term.model_validate(yaml.safe_load((folder / "right.yaml").read_text()))

    async def main() -> list[float | None]:
        async with Executor([tool("sql")]) as executor:
            context = RewardContext(executor.for_rewards, 0, lambda level, text: None)
            async with RewardFunction([term], context) as function:
                return [scored.reward for scored in await function.score_all(trajectories, step=1)]

    return asyncio.run(main())


def test_a_query_is_rewarded_for_its_rows_not_its_words() -> None:
    row = next(row for row in rows("shop/heldout") if row["kind"] == "join")
    other = row["query"].replace("sum(number * price)", "total(price * number) + 0") + " LIMIT 9"
    queries = (other, "SELECT 1 + 1", "SELECT sum(no")
    tried = [played("sql", row, {"query": query}, row["answer"]) for query in queries]
    assert tried[0].answer == row["answer"]
    assert rewarded(*tried) == [1.0, 0.0, 0.0]


def test_a_program_answers_its_question() -> None:
    row = next(row for row in rows("programs/heldout") if row["kind"] == "digits")
    sum_of = row["question"].removeprefix("What is the sum of the digits of ").removesuffix("?")
    trajectory = played("python", row, {"code": f"sum(map(int, str({sum_of})))"}, row["answer"])
    assert [record.result.text for record in trajectory.calls] == [row["answer"]] == [trajectory.answer]
