"""`rlf bench bfcl`: the package's own loader and checkers, by rlf's loop. Skipped where it is not installed."""

import asyncio
import json
import random
import sys
from contextlib import suppress

import pytest

from rlf.apps.bench.kind import BENCHMARKS
from rlf.apps.bench.kinds import bfcl
from rlf.apps.bench.run import write_benchmark
from rlf.chat.repair import stand_in
from rlf.core.errors import RlfError
from rlf.data.tasks import load_tasks
from rlf.spec.load import load_spec

PACKAGES = BENCHMARKS.get("bfcl").packages
needs_package = pytest.mark.skipif(
    PACKAGES.version is None, reason="bfcl-eval is not installed: rlf bench bfcl --setup"
)


@pytest.fixture(scope="module")
def package():
    if PACKAGES.path is not None:
        sys.path.insert(0, PACKAGES.path)
    yield bfcl.package()
    sys.path.remove(PACKAGES.path) if PACKAGES.path is not None else None


@needs_package
@pytest.mark.parametrize("name", ["hermes", "llama3", "glm4"])
def test_verdicts_are_those_of_the_official_checker_on_published_and_changed_answers(name, package, tmp_path):
    from benchmarks.bench_verdicts import answers_of, official, play_all

    benchmark = BENCHMARKS.get("bfcl")(categories="parallel_multiple,live_simple,irrelevance,multi_turn_miss_func")
    made = write_benchmark(benchmark, tmp_path)
    env = load_spec([made.spec]).spec.env
    tasks = load_tasks(str(made.spec.parent / "rows.jsonl"), answer=None, kind="kind")
    rng, plan = random.Random(name), []
    for kind in benchmark.categories.split(","):
        for task in [task for task in tasks if task.kind == kind][:2]:
            world = bfcl.BfclWorld("native")
            world.reset(task, 0)
            plan += [(task, number, turns) for number, (_, turns) in enumerate(answers_of(world, 2, rng))]
    expected = {(task.id, number): float(official(package, task.columns, turns)) for task, number, turns in plan}
    found = asyncio.run(play_all(env, stand_in(name, env.tools), plan))
    assert {key: value[0] for key, value in found.items()} == expected
    assert 0 < sum(expected.values()) < len(expected)


def write_python(calls):
    def write(name, arguments):
        return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"

    return f"[{', '.join(write(*call) for call in calls)}]"


def prompt_answers(task):
    """The published answer and a changed one as the prompt's format has them, with the official verdict on each."""
    row, used = task.columns, bfcl.package()
    entry, gold = json.loads(row["entry"]), json.loads(row["ground_truth"])
    if task.kind == "irrelevance":
        yield ["No function fits."], 1.0
        yield ["[made_up(x=1)]"], 0.0
    elif task.kind.startswith("multi_turn"):
        # By keywords: the official decoder passes over what has no name.
        named = [[bfcl.read_python_call(call, entry) for call in turn] for turn in gold]
        texts = [write_python([(one["name"], one["arguments"]) for one in turn]) for turn in named]
        turns = [line for text in texts for line in ([text] if text != "[]" else []) + ["Done."]]
        yield turns, 1.0
        yield ["Done."] * len(gold), 0.0
    else:
        calls = bfcl.right_calls(entry, gold)
        for text in (write_python(calls), write_python(calls[:-1]), write_python([*calls, *calls[:1]])):
            decoded = used.decode(text, used.formats("python"))
            verdict = used.ast_checker(entry["function"], decoded, gold, used.python, task.kind, bfcl.PROMPT)
            yield [text], float(verdict["valid"])


@needs_package
@pytest.mark.parametrize("name", ["hermes", "llama3", "glm4"])
def test_answers_in_the_prompts_format_have_the_official_verdict_through_the_whole_loop(name, package, tmp_path):
    from benchmarks.bench_verdicts import play_all

    categories = "parallel_multiple,live_simple,irrelevance,multi_turn_base"
    made = write_benchmark(BENCHMARKS.get("bfcl")(categories=categories, format="prompt"), tmp_path)
    env = load_spec([made.spec]).spec.env
    tasks = load_tasks(str(made.spec.parent / "rows.jsonl"), answer=None, kind="kind")
    chosen = [task for kind in categories.split(",") for task in [task for task in tasks if task.kind == kind][:3]]
    plan, expected = [], {}
    for task in chosen:
        for number, (turns, verdict) in enumerate(prompt_answers(task)):
            plan.append((task, number, turns))
            expected[task.id, number] = verdict
    found = asyncio.run(play_all(env, stand_in(name, env.tools), plan))
    assert {key: value[0] for key, value in found.items()} == expected
    assert {0.0, 1.0} == {*expected.values()}


@needs_package
def test_answers_as_text_are_decoded_by_the_package(package):
    row = {"kind": "simple_python", "ground_truth": json.dumps([{"a.add": {"x": [1], "y": [2, 3]}}])}
    properties = {"x": {"type": "integer"}, "y": {"type": "integer"}}
    function = {"name": "a.add", "parameters": {"type": "dict", "properties": properties, "required": ["x", "y"]}}
    row["entry"] = json.dumps({"id": "simple_python_x", "function": [function]})
    assert bfcl.judge_text(row, "[a.add(x=1, y=3)]")["valid"]
    assert not bfcl.judge_text(row, "[a.add(x=1, y=4)]")["valid"]
    assert not bfcl.judge_text(row, "I cannot add.")["valid"]
    assert bfcl.judge_calls(row, [("a_add", {"x": 1, "y": 2})])["valid"]
    assert not bfcl.judge_calls(row, [("a_add", {"x": 1, "y": "2"})])["valid"]


@needs_package
@pytest.mark.parametrize(
    "text",
    ["[f(x=open('{}','w') + 1)]", "[f(x=(lambda: open('{}','w'))())]", "[open('{}','w')(x=1)]", "[f(x=g(y=1)+2)]"],
)
def test_nothing_that_a_model_writes_is_run_as_code(text, package, tmp_path):
    file = tmp_path / "made"
    row = {"kind": "simple_python", "ground_truth": "[{}]", "entry": '{"id": "simple_python_x", "function": []}'}
    for judge in (lambda: bfcl.judge_text(row, text.format(file)), lambda: bfcl.read_plain_calls(text.format(file))):
        with suppress(bfcl.UnreadableAnswer, IndexError):
            judge()
        assert not file.exists()


def test_a_call_by_a_name_that_is_no_name_is_never_written_as_python():
    assert bfcl.write_plain_call("__import__('os').system", {"x": 1}) == "unknown_function()"
    assert bfcl.write_plain_call("f", {"x=1, y": 2}) == "unknown_function()"


def test_an_unknown_category_is_a_fault_that_names_the_known_ones():
    with pytest.raises(RlfError, match=r"got the category 'simple'.*simple_python"):
        BENCHMARKS.get("bfcl")(categories="simple").play  # noqa: B018


@pytest.mark.parametrize("name", [*bfcl.LEFT_OUT, "memory_kv", "web_search_base"])
def test_a_category_that_is_left_out_is_refused_with_the_reason(name):
    with pytest.raises(RlfError, match=rf"{name} cannot be tried here: .*Leave it out"):
        BENCHMARKS.get("bfcl")(categories=f"simple_python, {name}").play  # noqa: B018


@needs_package
def test_a_fault_of_the_user_in_the_packages_process_is_read_without_a_traceback():
    with pytest.raises(RlfError, match=r"^got the category 'nothing' \(known"):
        BENCHMARKS.get("bfcl")(categories="nothing").read_rows()


def test_the_own_figures_weigh_categories_as_the_leaderboard_does():
    kind = BENCHMARKS.get("bfcl")()
    rates = {
        "simple_python": (1.0, 400),
        "simple_java": (0.5, 100),
        "simple_javascript": (0.0, 50),
        "multiple": (1.0, 200),
    }
    # non-live: the mean of simple, itself a mean of three, and of multiple: (0.5 + 1.0) / 2
    assert kind.summary(rates)["non_live_ast"] == pytest.approx(0.75)
    # live: by questions: (1.0 * 258 + 0.5 * 1053) / 1311
    assert kind.summary({"live_simple": (1.0, 258), "live_multiple": (0.5, 1053)})["live_ast"] == pytest.approx(
        (258 + 526.5) / 1311
    )
