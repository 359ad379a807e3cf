"""Builds with a language model: each way in which it may fail is handled and counted, and nothing is asked twice."""

import asyncio
import json
import threading
from contextlib import contextmanager

import pytest
import yaml
from aiohttp import web

from rlf.apps.build import BuildSettings, load_build
from rlf.apps.build.folder import WORK, build_world, read_world
from rlf.core import RlfError, RunError
from tests.apps.build.scripted import Model
from tests.apps.build.worlds import rewards_of_gold


@contextmanager
def serving(model):
    """The model behind a server on a thread with a loop of its own: a build runs its own loop."""
    loop, started, address = asyncio.new_event_loop(), threading.Event(), []

    async def start():
        app = web.Application()
        app.router.add_post("/v1/chat/completions", model.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address.append(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
        started.set()
        return runner

    def run():
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    started.wait(10)
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def settings(url, out, *, count=1, scenario="multi", **keys):
    build = {
        "kind": "llm",
        "count": count,
        "endpoints": [{"url": url, "model": "scripted", "prices": {"prompt_usd": 1.0}}],
        "seeds": [f"towns {number}" for number in range(count)],
        "repairs": 2,
        "deadline_s": 5,
        "sandbox": {"level": "process", "allow_unsafe": True, "limits": {"wall_s": 1.5}},
        **keys.pop("build", {}),
    }
    split = {"train": 1, "validation": 0, "heldout": 0}
    more = {"scenarios": {scenario: 1.0}, "hops": (2, 2), "split": split, "gates": {"spam": 1.0, "random": 1.0}, **keys}
    return BuildSettings.model_validate({"build": build, "out": str(out), **more})


def silent(done, total, tally):
    """Tells nobody."""


def built(model, tmp_path, **keys):
    with serving(model) as url:
        return build_world(settings(url, tmp_path / "out", **keys), silent)


def test_a_model_that_does_well_makes_proven_tasks_with_tools_in_the_sandbox(tmp_path):
    model = Model()
    certificate = built(model, tmp_path, count=2, complexity={"parameters": 1, "toolset": 1})
    assert certificate.holds and not certificate.dropped
    _, tasks = read_world(tmp_path / "out")
    assert [len(task.steps) for task in tasks] == [2, 2]
    assert all(len(task.tools) == 4 for task in tasks)
    names = [path.stem for path in (tmp_path / "out" / "tools").glob("*.py")]
    assert len(names) == 6 and {"river_of_town", "river_of_town_2"} <= set(names)
    spent = certificate.spent
    assert spent["answers/deploy"] == 8 and spent["cost_usd"] == pytest.approx(sum(model.asked.values()) * 100 / 1e6)


def test_tasks_of_a_model_are_rows_of_ftrl_too(tmp_path):
    from rlf.apps.build.build import write_ftrl

    built(Model(), tmp_path)
    train, *_ = write_ftrl(tmp_path / "out")
    row = json.loads(train.read_text(encoding="utf-8"))
    space = {}
    exec(json.loads(row["codes"])["river_of_town"], space)
    assert space["river_of_town"](town=" towna0 ") == {"value": "Rivera0"}


BROKEN = '{"question": "How lo'


def fenced(answer):
    return f"```json\n{json.dumps(answer)}\n```"


def changed(**keys):
    return lambda answer: json.dumps({**answer, **keys})


def coded(code):
    return lambda answer: json.dumps({**answer, "code": code})


def both(river, length):
    """The code of either function."""
    return f"def river_of_town(town):\n    {river}\n\ndef length_of_river(river):\n    {length}\n"


HANGING = both("while True: pass", "while True: pass")


def forced(answer):
    answer["steps"][1]["question"] = "the length of the river"
    return json.dumps(answer)


def leak_answer(answer):
    answer["steps"][1]["question"] = "the length of {0}, which is Rivera0"
    return json.dumps(answer)


@pytest.mark.parametrize(
    ("stage", "fault"),
    [
        ("decompose", BROKEN),
        ("decompose", fenced),
        ("decompose", forced),
        ("decompose", leak_answer),
        ("decompose", changed(answer=7)),
        ("decompose", changed(question="How long is Rivera0, the river of Towna0?")),
        ("document", changed(description="Returns rivers such as Rivera0.")),
        ("document", changed(parameters={"type": "list"})),
        ("integrate", changed(tools=[])),
        ("deploy", coded(both("return 7", "return 7"))),
        (
            "deploy",
            coded(HANGING),
        ),
        ("deploy", changed(calls=[])),
        ("decompose", "rate"),
        ("decompose", ""),
        ("deploy", ""),
    ],
)
def test_a_fault_is_repaired_with_the_error_shown(tmp_path, stage, fault):
    model = Model(**{stage: [fault]})
    certificate = built(model, tmp_path)
    assert certificate.holds and certificate.tasks == {"train": {"multi": 1}}
    again = model.asked[stage] - {"document": 2, "deploy": 2}.get(stage, 1)
    assert again == (0 if fault is fenced else 1)


@pytest.mark.parametrize(
    ("stage", "fault", "reason"),
    [
        ("decompose", BROKEN, "decompose: no usable answer after 2 repairs"),
        ("decompose", "", "decompose: no usable answer after 2 repairs"),
        ("decompose", forced, "decompose: no usable answer after 2 repairs"),
        ("verify", changed(unforced=0), "verify: a chain is forced"),
        ("verify", changed(atomic=0), "verify: a sub-question is not atomic"),
        ("answer", changed(answer="1000"), "necessity: the model answers without a tool"),
        (
            "deploy",
            coded(both("return 7", "return 7")),
            "deploy: it returns another value after 2 repairs",
        ),
        (
            "deploy",
            coded(HANGING),
            "deploy: it takes too long after 2 repairs",
        ),
        (
            "deploy",
            coded(both("return 'Rivera0'", "return 1000")),
            "deploy: the code contains its answers after 2 repairs",
        ),
    ],
)
def test_a_task_that_stays_wrong_is_dropped_with_its_reason(tmp_path, stage, fault, reason):
    model = Model(**{stage: [fault] * 20})
    with pytest.raises(RlfError, match="every task was dropped") as raised:
        built(model, tmp_path)
    assert reason in str(raised.value)


def test_code_that_writes_outside_of_the_sandbox_leaves_nothing_and_is_dropped(tmp_path):
    target = tmp_path / "escaped.txt"
    writes = f"open({str(target)!r}, 'w').write('out')"
    code = both(writes, writes)
    keys = {"sandbox": {"limits": {"wall_s": 3}}}
    try:
        with pytest.raises(RlfError, match="deploy: "):
            built(Model(deploy=[coded(code)] * 20), tmp_path, build=keys)
    finally:
        assert not target.exists()


def test_a_question_that_is_there_already_is_dropped(tmp_path):
    certificate = built(Model(), tmp_path, count=3, build={"seeds": ["towns 1"]})
    assert certificate.tasks == {"train": {"multi": 1}}
    assert certificate.dropped == {"duplicate: the question is there already": 2}


def test_an_endpoint_that_dies_stops_the_build_which_then_continues_without_asking_twice(tmp_path):
    whole = Model()
    built(whole, tmp_path / "whole", count=3)
    model = Model()
    model.dies_after = 10
    with serving(model) as url:
        chosen = settings(url, tmp_path / "out", count=3, build={"concurrency": 1})
        with pytest.raises(RunError, match="repeats no request"):
            build_world(chosen, silent)
        model.dies_after = None
        before = len(model.requests)
        answered = set(model.requests[:10])
        certificate = build_world(chosen, silent)
    assert certificate.tasks == {"train": {"multi": 3}}
    assert not answered & set(model.requests[before:])
    assert sorted(answered | set(model.requests[before:])) == sorted(set(whole.requests))


def test_a_server_that_refuses_schemas_is_asked_without_them(tmp_path, caplog):
    model = Model()
    model.takes_schemas = False
    certificate = built(model, tmp_path, count=2)
    assert certificate.tasks == {"train": {"multi": 2}} and not certificate.dropped
    assert caplog.text.count("decompose: the server refuses JSON Schemas") == 1


def test_parts_of_the_split_share_no_look_alike_and_no_name_of_a_tool(tmp_path):
    split = {"train": 0.5, "validation": 0.5, "heldout": 0}
    certificate = built(Model(), tmp_path, count=6, complexity={"toolset": 1}, split=split)
    assert certificate.tasks == {"train": {"multi": 3}, "validation": {"multi": 3}}
    _, tasks = read_world(tmp_path / "out")
    tools = {part: {name for task in tasks if task.split == part for name in task.tools} for part in split}
    assert not tools["train"] & tools["validation"]
    files = {part: {words_of(tmp_path / "out" / "tools" / f"{name}.yaml") for name in tools[part]} for part in split}
    assert {len([1 for words in files[part] if "canal" in words]) for part in ("train", "validation")} == {0, 1}
    assert certificate.dropped == {"left out, toolset: another part of the split has the look-alike": 6}
    assert {path.stem for path in (tmp_path / "out" / "tools").glob("*.py")} == tools["train"] | tools["validation"]


def words_of(file):
    return yaml.safe_load(file.read_text(encoding="utf-8"))["description"]


def test_parts_of_a_split_by_world_alone_may_share_look_alikes(tmp_path):
    split = {"train": 0.5, "validation": 0.5, "heldout": 0, "by": ["world"]}
    certificate = built(Model(), tmp_path, count=2, complexity={"toolset": 1}, split=split)
    _, tasks = read_world(tmp_path / "out")
    assert not certificate.dropped and all(len(task.tools) == 4 for task in tasks)


def test_an_empty_answer_is_no_refusal_of_a_schema_and_is_not_asked_for_again(tmp_path, caplog):
    model = Model(verify=[""])
    with serving(model) as url:
        chosen = settings(url, tmp_path / "out")
        build_world(chosen, silent)
        number = len(model.requests)
        build_world(chosen, silent, fresh=True)
    assert "refuses" not in caplog.text
    assert len(model.requests) == number and model.asked["verify"] == 2
    assert "no answer" in next(request for request in model.requests if "cannot be used" in request)


def test_a_finished_build_that_is_made_again_asks_only_for_an_answer_that_is_damaged(tmp_path, caplog):
    model = Model()
    with serving(model) as url:
        chosen = settings(url, tmp_path / "out")
        first = build_world(chosen, silent)
        number = len(model.requests)
        assert build_world(chosen, silent) == first
        assert len(model.requests) == number
        kept = next((tmp_path / "out" / WORK / "answers").rglob("*.json"))
        kept.write_text("[]", encoding="utf-8")
        build_world(chosen, silent)
    assert len(model.requests) == number + 1
    assert f"{kept}: the kept answer is damaged and is asked for again: " in caplog.text


def test_a_budget_that_is_spent_stops_the_build(tmp_path):
    model = Model()
    with pytest.raises(RunError, match=r"build.budget.tokens: 450 are spent, and 400 were allowed"):
        built(model, tmp_path, build={"budget": {"tokens": 400}, "concurrency": 1})
    assert len(model.requests) == 3


def test_a_prompt_of_ones_own_is_used(tmp_path):
    (tmp_path / "answer.md.jinja").write_text("You have no tools! {{ question }}", encoding="utf-8")
    model = Model()
    built(model, tmp_path, build={"prompts": str(tmp_path)})
    assert any("You have no tools!" in request for request in model.requests)


def test_an_edited_prompt_beside_the_build_file_is_another_build(tmp_path):
    def source_hash():
        file = tmp_path / "build.yaml"
        built = settings("http://x/v1", "out", build={"prompts": "prompts"}).model_dump(mode="json")
        file.write_text(json.dumps(built), encoding="utf-8")
        return load_build(file).build.source_hash()

    prompt = tmp_path / "prompts" / "answer.md.jinja"
    prompt.parent.mkdir()
    prompt.write_text("No tools! {{ question }}", encoding="utf-8")
    before = source_hash()
    prompt.write_text("No tools at all! {{ question }}", encoding="utf-8")
    assert source_hash() != before


def test_a_dry_run_counts_requests_and_cost(tmp_path):
    estimate = settings("http://127.0.0.1:9/v1", tmp_path, count=10).build.estimate(settings("http://x/v1", tmp_path))
    assert estimate["requests"] == 10 * (3 + 1 + 2 * 2)
    assert estimate["cost_usd"] == pytest.approx(estimate["prompt_tokens"] / 1e6)


def test_gold_calls_of_a_models_world_have_the_whole_reward_through_the_sandbox(tmp_path):
    built(Model(), tmp_path, count=2)
    _, tasks = read_world(tmp_path / "out")
    rewards = asyncio.run(rewards_of_gold(tmp_path / "out" / "spec.yaml", tasks))
    assert list(rewards.values()) == [(1.0, 1.0)] * 2
