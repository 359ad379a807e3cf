"""Verify terms: a tool run on what the model produced, apart from the trajectory, held against what is expected."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rlf.apps.rewards.scoring import try_reward_files
from rlf.apps.verify import comparisons as rows_module
from rlf.apps.verify.comparisons import NO_ROWS, read_expected
from rlf.rewards import RewardContext, RewardFunction, Term, TrajectoryFacts
from rlf.runs.declared import load_rewards
from rlf.sandbox import LevelChoice
from rlf.sandbox.spec import SandboxSpec
from rlf.spec import load_spec
from rlf.tools import Executor, ToolDeclaration
from rlf.types import Outcome, Scored, ScoreState, ToolCall, ToolResult

REPOSITORY = Path(__file__).parents[2]
Answer = Callable[[Mapping[str, Any]], ToolResult | str]


class Tools:
    """One tool, `run`, whose results a function of the arguments gives. Keeps what it was asked."""

    descriptions = ()

    def __init__(self, answer: Answer, pause_s: float = 0.0) -> None:
        self._answer = answer
        self._pause_s = pause_s
        self.calls: list[Mapping[str, Any]] = []
        self.open: list[str] = []
        self.most_at_once = 0
        self.ended: list[str] = []

    async def invoke(self, call: ToolCall, *, trajectory_id: str) -> ToolResult:
        self.calls.append(call.arguments)
        self.open.append(trajectory_id)
        self.most_at_once = max(self.most_at_once, len(self.open))
        await asyncio.sleep(self._pause_s)
        self.open.remove(trajectory_id)
        said = self._answer(call.arguments)
        return ToolResult(Outcome.OK, said) if isinstance(said, str) else said

    async def end_trajectory(self, trajectory_id: str) -> None:
        self.ended.append(trajectory_id)


def echo(arguments: Mapping[str, Any]) -> str:
    return str(arguments["input"])


def verify(**keys: Any) -> Term:
    base = {"kind": "verify", "name": "checked", "tool": "run", "arguments": {"input": "{{ answer }}"}}
    return Term.model_validate({**base, **keys}, context={"folder": Path(__file__).parent})


def score(tools: Tools, term: Term, *facts: Mapping[str, Any]) -> list[Scored]:
    async def all_of_them() -> list[Scored]:
        trajectories = [TrajectoryFacts.model_validate(each).trajectory(f"t{at}") for at, each in enumerate(facts)]
        async with RewardFunction([term], RewardContext(tools, 0, lambda level, text: None)) as function:
            return await function.score_all(trajectories, step=1)

    return asyncio.run(all_of_them())


def value(term: Term, facts: Mapping[str, Any], answer: Answer = echo) -> float | None:
    return score(Tools(answer), term, facts)[0].reward


def rows(*found: list[Any], truncated: bool = False) -> ToolResult:
    table = {"columns": ["a"], "rows": list(found), "truncated": truncated}
    return ToolResult(Outcome.OK, "a table", structured=table)


@pytest.mark.parametrize(
    ("keys", "answer", "gold", "expected"),
    [
        ({}, " 42\n", "42", 1),
        ({}, "42.0", "42", 0),
        ({}, "Lyon", ["Nice", "Lyon"], 1),
        ({"compare": "numeric"}, "about 1,250.5", "1250.5", 1),
        ({"compare": "numeric", "tolerance": 0.1}, "95", "100", 1),
        ({"compare": "numeric", "tolerance": 0.01}, "95", "100", 0),
        ({"compare": "numeric"}, "none", "100", 0),
        ({"compare": "numeric"}, "100", "none", None),
        ({"compare": "json_subset"}, '{"a": 1.0, "b": [1, {"c": null}], "d": 2}', '{"a": 1, "b": [1, {"c": null}]}', 1),
        ({"compare": "json_subset"}, '{"a": true}', '{"a": 1}', 0),
        ({"compare": "json_subset"}, '{"b": [1, 2]}', '{"b": [1]}', 0),
        ({"compare": "json_subset"}, "1" + "0" * 400, "2.5", 0),
        ({"compare": "json_subset"}, "{}", "no JSON", None),
        ({"compare": "rows_set"}, "[[1], [2], [2]]", "[[2], [1]]", 1),
        ({"compare": "rows_multiset"}, "[[1], [2], [2]]", "[[2], [1]]", 0),
        ({"compare": "rows_multiset"}, '[[1.0, "a"], [2, null]]', '[[2, null], [1, "a"]]', 1),
        ({"compare": "rows_multiset"}, '[["1"]]', "[[1]]", 0),
        ({"compare": "rows_ordered"}, "[[1], [2]]", "[[2], [1]]", 0),
        ({"compare": "rows_ordered"}, "[[0.12345]]", "[[0.12346]]", 0),
        ({"compare": "rows_ordered"}, "[[0.12345671]]", "[[0.12345672]]", 1),
        ({"compare": "rows_set"}, "no rows", "[[1]]", 0),
        ({"compare": "rows_set"}, "[[1]]", "no rows", None),
        ({"compare": "rows_ordered"}, "[[0.9999999999999999]]", "[[1.0]]", 1),
        ({"compare": "rows_multiset"}, "[[1e-7]]", "[[0]]", 1),
        ({"compare": "rows_set"}, "[[1e-5]]", "[[0]]", 0),
        ({"compare": "rows_multiset"}, "[[1234567.1]]", "[[1234567.2]]", 0),
        ({"compare": "rows_multiset", "tolerance": 0.02}, '[["a", 0.31], ["b", 4]]', '[["b", 4], ["a", 0.3]]', 1),
        ({"compare": "rows_multiset", "tolerance": 0.9}, "[[1000000]]", "[[1000001]]", 0),  # keys are whole
        # 0.0 is near 0.1 and 0.1 near 0.2: taking 0.1 for 0.1 would leave two without a partner
        ({"compare": "rows_multiset", "tolerance": 0.1}, "[[0.0], [0.1]]", "[[0.1], [0.2]]", 1),
        ({"compare": "rows_multiset", "tolerance": 0.1}, "[[0.0], [0.0]]", "[[0.0], [0.2]]", 0),
        ({"compare": "rows_ordered"}, "[[null]]", '[[""]]', 0),
        ({"compare": "rows_set"}, '[["1"]]', "[[1]]", 0),
        ({"compare": "rows_set"}, "[[true]]", "[[1.0]]", 1),
        ({"compare": "rows_ordered"}, "[[5]]", "[[1e999]]", 0),
        ({"compare": "rows_multiset"}, "[[-1e999]]", "[[1e999]]", 0),
        ({"compare": "rows_set"}, "[[1e999]]", "[[1e999]]", 1),
        ({"compare": "rows_ordered"}, "[[NaN, 1]]", "[[NaN, 1]]", 1),
        ({"compare": "rows_multiset"}, "[[NaN]]", "[[1]]", 0),
        ({"compare": "rows_set"}, '[[{"a": [0.30000000000000004]}]]', '[[{"a": [0.3]}]]', 1),
        ({"compare": "rows_set"}, '[[{"a": 0.30000000000000004}]]', '[[{"b": 0.3}]]', 0),
        ({"compare": "rows_multiset"}, "[[1152921504606846976]]", "[[1152921504606846977]]", 0),
        ({"compare": "rows_multiset"}, '[["a"], ["a"]]', '[["a"]]', 0),
        ({"compare": "rows_set"}, '[["a"], ["a"]]', '[["a"]]', 1),
        ({"compare": "rows_set"}, "[[1, 2]]", "[[2, 1]]", 0),
        ({"compare": "rows_set"}, "[[]]", "[]", 0),
        ({"compare": "rows_set"}, "[1]", "[[1]]", 0),
        ({"compare": "rows_set"}, '[{"a": 1}]', "[[1]]", 0),
        ({"compare": "rows_set"}, '[["2024-01-01"]]', '[["2024-01-01 00:00:00"]]', 0),
        ({"compare": "rows_ordered"}, '[["a "]]', '[["a"]]', 0),
        ({"compare": "json_subset"}, "5", "1e999", 0),
        ({"compare": "json_subset"}, "[NaN, 1e999]", "[NaN, 1e999]", 1),
        ({"compare": "json_subset"}, '{"a": ""}', '{"a": null}', 0),
        ({"compare": "json_subset"}, '{"a": true}', '{"a": 1}', 0),
        ({"compare": "rows_set"}, f"[[1.5]{', [1.5]' * 9}, [{'[' * 900}{']' * 900}]]", "[[1.5]]", 0),
        ({"compare": "rows_set"}, "[[1.5]]", f"[[{'9' * 400}]]", 0),
    ],
)
def test_a_comparison_by_hand(keys: dict[str, Any], answer: str, gold: Any, expected: float | None) -> None:
    assert value(verify(**keys), {"answer": answer, "gold": gold}) == expected


def test_thousands_of_different_rows_are_compared_with_few_steps() -> None:
    numbers = random.Random(0)
    got = [[1, numbers.random(), "a"] for _ in range(3000)]
    shuffled = [[key, number + 1e-12, text] for key, number, text in numbers.sample(got, len(got))]
    counted = 0

    def is_near(*sides: Any) -> bool:
        nonlocal counted
        counted += 1
        return near(*sides)

    near = rows_module.is_near
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "is_near", is_near)
        found, wanted = rows_module.as_rows(got), rows_module.as_rows(shuffled)
        assert found is not None and wanted is not None
        assert rows_module.num_paired(found, wanted, None) == rows_module.num_found(found, wanted, None) == 3000
    assert counted < 20_000


def test_templates_see_answer_calls_the_last_code_block_and_columns_with_their_types() -> None:
    term = verify(
        arguments={
            "input": "{{ code }}|{{ calls[-1].arguments.q }}|{{ calls[0].result }}|{{ question }}",
            "nested": {"limit": "{{ columns.limit }}", "list": ["{{ answer }}", 7]},
        }
    )
    facts = {
        "question": "why?",
        "gold": "x",
        "columns": {"limit": 3},
        "answer": "so",
        "turns": [
            {"text": "```python\nold\n```", "calls": [{"name": "s", "arguments": {"q": "{{ gold }}"}, "result": "r"}]},
            {"text": "```\nnew\n``` and ```open"},
        ],
    }
    tools = Tools(echo)
    score(tools, term, facts)
    assert tools.calls == [{"input": "new\n|{{ gold }}|r|why?", "nested": {"limit": 3, "list": ["so", 7]}}]


def test_what_the_model_did_not_produce_is_worth_0_and_nothing_is_called() -> None:
    tools = Tools(echo)
    for template in ("{{ answer }}", "{{ code }}", "{{ calls[-1].arguments.query }}"):
        (scored,) = score(tools, verify(arguments={"input": template}), {"gold": "x", "turns": [{"text": "hm"}]})
        assert scored.reward == 0.0 and "nothing to verify" in scored.scores[0].reason
    assert tools.calls == []


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.TOOL_ERROR, 0.0),
        (Outcome.TIMEOUT, 0.0),
        (Outcome.INVALID_ARGUMENTS, 0.0),
        (Outcome.OUTPUT_REJECTED, 0.0),
    ]
    + [(outcome, None) for outcome in Outcome if outcome.is_infrastructure]
    + [(Outcome.UNKNOWN_TOOL, None)],
)
def test_an_error_of_the_models_is_0_and_a_failure_of_the_verifier_unscorable(
    outcome: Outcome, expected: float | None
) -> None:
    (scored,) = score(Tools(lambda _: ToolResult(outcome, "it broke")), verify(), {"answer": "a", "gold": "a"})
    assert scored.reward == expected
    assert "it broke" in scored.scores[0].reason
    assert scored.scores[0].state is (ScoreState.SCORED if expected == 0 else ScoreState.UNANSWERED)


GOLD_RUN = {"expected": {"arguments": {"input": "{{ columns.query }}"}}, "compare": "rows_multiset"}


def test_the_gold_is_run_through_the_same_tool_once_for_all_that_ask() -> None:
    tables = {"right": rows([1], [2]), "other words": rows([2], [1.0]), "wrong": rows([3])}
    tools = Tools(lambda arguments: tables[arguments["input"]], pause_s=0.02)
    answers = ["other words", "wrong", "right"] * 2
    scored = score(tools, verify(**GOLD_RUN), *({"answer": a, "columns": {"query": "right"}} for a in answers))
    assert [each.reward for each in scored] == [1, 0, 1] * 2
    assert len(tools.calls) == 6 + 1


def test_a_gold_that_fails_is_unscorable_and_one_that_infrastructure_failed_is_tried_again() -> None:
    tools = Tools(lambda arguments: ToolResult(Outcome.TOOL_ERROR, "no such table"))
    (scored,) = score(tools, verify(**GOLD_RUN), {"answer": "a", "columns": {"query": "q"}})
    assert scored.reward is None and "gold" in scored.scores[0].reason
    failures = iter([ToolResult(Outcome.UNREACHABLE, "down")])
    flaky = Tools(lambda arguments: next(failures, rows([1])))
    term, facts = verify(**GOLD_RUN, max_concurrency=1), {"answer": "a", "columns": {"query": "q"}}

    async def twice() -> list[float | None]:
        trajectory = TrajectoryFacts.model_validate(facts).trajectory()
        async with RewardFunction([term], RewardContext(flaky, 0, lambda level, text: None)) as function:
            return [(await function.score(trajectory, step=1)).reward for _ in range(2)]

    assert asyncio.run(twice()) == [None, 1.0]


def test_two_empty_results_are_the_same_and_a_gold_without_rows_is_warned_of_once() -> None:
    warned: list[str] = []

    async def scored() -> list[Scored]:
        each = [TrajectoryFacts(answer="a", columns={"query": "q"}).trajectory(f"t{at}") for at in range(2)]
        context = RewardContext(Tools(lambda _: rows()), 0, lambda level, text: warned.append(f"{level}: {text}"))
        async with RewardFunction([verify(**GOLD_RUN)], context) as function:
            return await function.score_all(each, step=1)

    first, _ = asyncio.run(scored())
    assert (first.reward, first.scores[0].reason) == (1.0, NO_ROWS)
    (words,) = warned
    assert words.startswith("warning: checked: task") and "any query without rows earns 1" in words


def test_rows_beyond_what_a_tool_shows_are_the_models_fault_or_make_the_gold_useless() -> None:
    facts = {"answer": "a", "columns": {"query": "gold"}}
    assert value(verify(**GOLD_RUN), facts, lambda a: rows([1], truncated=a["input"] == "a")) == 0.0
    assert value(verify(**GOLD_RUN), facts, lambda a: rows([1], truncated=a["input"] == "gold")) is None


def test_text_that_was_cut_is_the_models_fault_or_makes_the_gold_useless() -> None:
    def cut(which: str) -> Answer:
        return lambda a: ToolResult(Outcome.OK, "[[1]]", truncated=a["input"] == which)

    facts = {"answer": "a", "columns": {"query": "gold"}}
    assert value(verify(**GOLD_RUN), facts, cut("none")) == 1.0
    assert value(verify(**GOLD_RUN), facts, cut("a")) == 0.0
    assert value(verify(**GOLD_RUN), facts, cut("gold")) is None


def test_a_column_that_is_not_there_is_unscorable() -> None:
    assert value(verify(expected={"column": "rows"}), {"answer": "a"}) is None
    assert value(verify(), {"answer": "a"}) is None
    assert value(verify(expected={"column": "said"}), {"answer": "a", "columns": {"said": "a"}}) == 1.0


TESTS = {
    "compare": "tests_passed",
    "arguments": {"program": "{{ answer }}", "test": "{{ test }}"},
    "expected": {"column": "tests"},
}


@pytest.mark.parametrize("tests", [["a", "b", "c"], json.dumps(["a", "b", "c"])])
def test_the_share_of_the_tests_that_pass_each_in_a_call_of_its_own(tests: Any) -> None:
    tools = Tools(lambda a: ToolResult(Outcome.TOOL_ERROR, "assert") if a["test"] == "b" else "fine")
    (scored,) = score(tools, verify(**TESTS), {"answer": "code", "columns": {"tests": tests}})
    assert scored.reward == pytest.approx(2 / 3)
    assert scored.scores[0].reason.startswith("2 of 3 tests; the first that fails: run: tool_error: assert")
    assert len(tools.calls) == 3 == len(set(tools.ended))


def test_one_test_that_cannot_be_run_leaves_the_trajectory_unscorable() -> None:
    tools = Tools(lambda a: ToolResult(Outcome.INFRA, "gone") if a["test"] == "b" else "fine")
    (scored,) = score(tools, verify(**TESTS), {"answer": "code", "columns": {"tests": ["a", "b"]}})
    assert scored.reward is None
    (scored,) = score(tools, verify(**TESTS), {"answer": "code", "columns": {"tests": []}})
    assert scored.reward is None


def test_a_function_of_yours_compares() -> None:
    term = verify(compare="callable", callable="functions.py:share_of_words")
    assert value(term, {"answer": "red blue", "gold": "red green", "columns": {"scale": 0.5}}) == 0.25


def test_a_comparer_that_never_ends_holds_up_nothing_but_its_own_value() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    async def scored() -> Scored:
        ticking = asyncio.ensure_future(tick())
        term = verify(compare="callable", callable="functions.py:endless", timeout_s=1)
        async with RewardFunction([term], RewardContext(Tools(echo), 0, lambda level, text: None)) as function:
            said = await function.score(TrajectoryFacts(answer="a", gold="a").trajectory(), step=1)
        ticking.cancel()
        return said

    said = asyncio.run(scored())
    assert said.scores[0].state is ScoreState.UNANSWERED
    assert said.scores[0].reason.endswith("functions.py:endless: no value within 1 s")
    assert ticks > 10  # 100 on an idle machine, none where it ran on the loop


def test_a_comparer_that_raises_is_named() -> None:
    term = verify(compare="callable", callable="functions.py:refuse")
    (scored,) = score(Tools(echo), term, {"answer": "a", "gold": "a"})
    assert scored.scores[0].state is ScoreState.UNANSWERED
    assert scored.scores[0].reason.endswith("functions.py:refuse: KeyError: 'a'")


def test_calls_are_bounded_apart_from_the_trajectory_and_given_back() -> None:
    tools = Tools(echo, pause_s=0.01)
    score(tools, verify(max_concurrency=3), *({"answer": str(n), "gold": "1"} for n in range(12)))
    assert tools.most_at_once == 3
    assert sorted(tools.ended) == sorted(f"verify/checked/t{n}/0" for n in range(12))


def test_a_tool_that_never_ends_leaves_the_trajectory_unscorable_in_time() -> None:
    (scored,) = score(Tools(echo, pause_s=600), verify(timeout_s=0.05), {"answer": "1", "gold": "1"})
    assert scored.reward is None and "within 0.05 s" in scored.scores[0].reason


def test_a_gold_that_is_still_run_when_the_term_closes_is_ended() -> None:
    tools = Tools(echo, pause_s=600)
    (scored,) = score(tools, verify(timeout_s=0.05, **GOLD_RUN), {"answer": "a", "columns": {"query": "q"}})
    assert scored.reward is None and [id_.split("/")[2] for id_ in tools.ended] == ["gold"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"arguments": {"input": "{{ anser }}"}}, "arguments names 'anser'; did you mean 'answer'?"),
        ({"arguments": {"input": "{{ test }}"}}, "arguments names 'test'"),
        ({"arguments": {"input": "{{ answer"}}, "not a Jinja2 template"),
        ({"expected": {"arguments": {"input": "{{ answer }}"}}}, "expected.arguments names 'answer'"),
        ({"expected": {}}, "expected one of column and arguments"),
        ({"compare": "tests_passed"}, "needs the tests"),
        ({"compare": "tests_passed", "expected": {"column": "tests"}}, "no argument names `test`"),
        ({**TESTS, "arguments": {"input": "{{ code }}\n{{ test }}"}}, "which could then pass any test"),
        ({"compare": "callable"}, "go together"),
        ({"callable": "functions.py:right"}, "go together"),
        ({"tolerance": 0.1}, "equal takes no tolerance"),
        ({"stage": "turn"}, "whole trajectories only"),
    ],
)
def test_a_term_that_cannot_apply_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        verify(**keys)
    assert words in str(refused.value)


@pytest.mark.parametrize("value", ["[1", "nan", "[" * 100_000, "9" * 5000])
def test_text_that_is_no_json_is_reported_as_text(value: str) -> None:
    assert read_expected(value).text == value


UNSAFE = SandboxSpec(level=LevelChoice.PROCESS, allow_unsafe=True)
"""So that these tests run on every machine; levels are tested with the sandbox."""


def score_with(tool: ToolDeclaration, term: Term, *facts: Mapping[str, Any]) -> list[Scored]:
    async def scored() -> list[Scored]:
        trajectories = [TrajectoryFacts.model_validate(each).trajectory(str(at)) for at, each in enumerate(facts)]
        async with Executor([tool]) as tools:
            context = RewardContext(tools.for_rewards, 0, lambda level, text: None)
            async with RewardFunction([term], context) as function:
                return await function.score_all(trajectories, step=1)

    return asyncio.run(scored())


def test_the_shipped_sql_reward_runs_queries_on_the_database() -> None:
    spec = load_spec([REPOSITORY / "specs/sql.yaml"]).spec
    target = spec.tools[0].target.model_copy(update={"sandbox": UNSAFE})
    row = json.loads((REPOSITORY / "rlf/builtin/shop/data/train.jsonl").read_text(encoding="utf-8").splitlines()[0])

    def asked(query: str) -> Mapping[str, Any]:
        return {"columns": row, "turns": [{"calls": [{"name": "sql", "arguments": {"query": query}}]}]}

    right = row["query"]
    queries = [right, f"SELECT * FROM ({right})", f"{right} UNION ALL {right}", "SELECT 1", "SELEC", "DELETE FROM sale"]
    scored = score_with(spec.tools[0].model_copy(update={"target": target}), spec.rewards[0], *map(asked, queries))
    assert [each.reward for each in scored] == [1, 1, 0, 0, 0, 0]


def test_the_tests_of_a_verify_term_run_its_tool(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("def run(input: str) -> str:\n    return input.upper()\n")
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        """
name: hidden
model: {path: builtin:tiny}
data: {train: {path: builtin:encyclopedia/train, prompt: question}}
tools:
  - name: run
    description: Hidden from the model.
    hidden: true
    inputSchema: {type: object, properties: {input: {type: string}}, required: [input]}
    target: {kind: python, callable: "code.py:run"}
rewards:
  - kind: verify
    name: loud
    tool: run
    arguments: {input: "{{ answer }}"}
    tests:
      - {gold: ANN, answer: ann, expect: 1}
      - {gold: ann, answer: ann, expect: 0}
      - {answer: ann, expect: null}
train: {algorithm: grpo}
"""
    )
    trials = asyncio.run(try_reward_files(load_rewards([spec])))
    assert [(trial.what, trial.value, trial.shortfalls) for trial in trials] == [
        ("tests[0]", 1.0, ()),
        ("tests[1]", 0.0, ()),
        ("tests[2]", None, ()),
        ("empty", 0.0, ()),
        ("malformed", 0.0, ()),
        ("long", 0.0, ()),
    ]
